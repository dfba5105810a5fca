"""Journals as a source: documents of many producers, some in transactions, each one read once.

::

    JournalSource("/data/journals", Orders, prefix="acme/orders", key=["/customer"])

Every journal below ``root`` whose name begins with the prefix is a part. Documents are routed by their key to
queues, and come out of an epoch in the order of their clocks within a queue. What several journals got in one
transaction becomes visible in one epoch, also if they belong to different sources of a stream.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

from penstock.core.packages import need
from penstock.errors import BadInput, DefinitionError
from penstock.journals import Journals
from penstock.journals.format import names
from penstock.journals.format.hints import META
from penstock.journals.format.uuids import SECOND, time_clock
from penstock.sources.base import Source
from penstock.types.tables import Table, refuse_zones

Meta = Literal["uuid", "journal", "offset", "time", "producer"]
"""What there is to know of a document besides its fields."""

QUEUES = 4
_DAY = 86_400.0
FORGET_AFTER = 7 * _DAY
"""For how many seconds a journal must be gone until it is forgotten."""
_WRONG = ("invalid", "gap", "disorder")
_META: Mapping[str, tuple[str, pa.DataType]] = {
    "uuid": ("str", pa.string()),
    "journal": ("str", pa.string()),
    "offset": ("int", pa.int64()),
    "time": ("datetime", pa.timestamp("us", "UTC")),
    "producer": ("str", pa.string()),
}
_ESCAPE = re.compile(r"~(?![01])")


class JournalSource(Source):
    """The documents of the journals below ``root`` whose names begin with ``prefix``.

    ``where`` takes those alone whose partition fields have one of the given values. A document's members are
    the table's fields; other members are left out.

    ``key`` says what documents belong together (JSON pointers to fields of the table): equal keys go to one
    of ``queues`` queues. Without a key documents are spread by their clocks. ``meta`` fills fields of the
    table with what is known of a document: ``{"at": "time", "id": "uuid"}``.

    Journals of a higher ``priority`` are read before those of a lower one. A document is read only when
    ``read_delay`` seconds have passed since its clock. Sources of a stream with the same priority and delay
    form a cohort: transactions that reach over several of their journals become visible as a whole, and in
    all of those that read the same journal.

    Documents with a clock before ``not_before`` or from ``not_after`` on are left out. ``schema`` is a JSON
    schema that each document must fulfil; one that does not fails the epoch, or is counted and left out with
    ``on_invalid="skip"``. Bytes that a journal has lost fail the epoch too, unless ``on_gap="skip"``; and so
    do documents of a producer that form no transactions, unless ``on_disorder="skip"``: then what is open
    there up to that document is left out, logged, and counted as one document. What other journals have of
    the same transaction is not.

    A journal that is gone is forgotten when no listing has found it for ``forget_after`` seconds in which the
    stream ran (None: never). If it comes back after that, documents that may have been read before are
    refused.
    """

    grows = True

    def __init__(
        self,
        root: str | os.PathLike[str],
        table: type[Table],
        *,
        prefix: str = "",
        where: Mapping[str, str | Collection[str]] | None = None,
        key: Sequence[str] = (),
        queues: int = QUEUES,
        meta: Mapping[str, Meta] | None = None,
        priority: int = 0,
        read_delay: float = 0.0,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        schema: Mapping[str, Any] | None = None,
        on_invalid: Literal["fail", "skip"] = "fail",
        on_gap: Literal["fail", "skip"] = "fail",
        on_disorder: Literal["fail", "skip"] = "fail",
        forget_after: float | None = FORGET_AFTER,
    ) -> None:
        self.journals = Journals(os.fspath(root))
        self.table = table
        self.prefix = prefix
        self.where = {name: _values(given) for name, given in (where or {}).items()}
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.queues = queues
        self.meta = dict(meta or {})
        self.priority = priority
        self.read_delay = read_delay
        self.not_before = self._clock(not_before)
        self.not_after = self._clock(not_after)
        self.schema = None if schema is None else dict(schema)
        self.on_invalid = on_invalid
        self.on_gap = on_gap
        self.on_disorder = on_disorder
        self.forget_after = forget_after
        self._check()

    def __repr__(self) -> str:
        return f"JournalSource({self.journals.root}, {self.prefix!r})"

    @property
    def cohort(self) -> tuple[int, float]:
        return self.priority, self.read_delay

    @property
    def delay(self) -> int:
        """The read delay as a difference of clocks."""
        return round(self.read_delay * SECOND)

    def describe(self) -> dict[str, object]:
        return {
            "journals": self.journals.root,
            "prefix": self.prefix,
            "where": ", ".join(f"{name}={'|'.join(sorted(v))}" for name, v in sorted(self.where.items())),
            "key": ", ".join(self.key),
            "queues": self.queues,
            "priority": self.priority,
            "read_delay": self.read_delay,
            "meta": ", ".join(f"{field}={what}" for field, what in sorted(self.meta.items())),
            "clocks": f"{self.not_before or ''}..{self.not_after or ''}",
            "schema": "" if self.schema is None else json.dumps(self.schema, sort_keys=True),
            "skips": ", ".join(name for name in _WRONG if getattr(self, f"on_{name}") == "skip"),
        }

    def list_parts(self) -> list[str]:
        return [name for name in self.journals.list(self.prefix) if self.matches(name)]

    def matches(self, journal: str) -> bool:
        """Whether this source reads a journal of this name."""
        if not journal.startswith(self.prefix):
            return False
        fields = names.fields(journal) if self.where else {}
        return all(fields.get(name) in values for name, values in self.where.items())

    def _check(self) -> None:
        if not 1 <= self.queues <= 1024:
            raise DefinitionError(f"{self!r}: {self.queues} queues", hint="take 1 to 1,024")
        if not 0 <= self.read_delay < timedelta(days=3650).total_seconds():
            raise DefinitionError(
                f"{self!r}: read_delay is {self.read_delay}", hint="give seconds, 0 or more"
            )
        # Clocks of writers may differ by a day. What is written after so long has a later clock than all that
        # a journal had before it was gone.
        if self.forget_after is not None and not self.forget_after >= _DAY:
            raise DefinitionError(
                f"{self!r}: forget_after is {self.forget_after}",
                hint="give seconds, 86,400 (a day) or more; None for never",
            )
        for name in (f"on_{wrong}" for wrong in _WRONG):
            if (value := getattr(self, name)) not in ("fail", "skip"):
                raise DefinitionError(f"{self!r}: {name} is {value!r}", hint='write "fail" or "skip"')
        if self.schema is not None:
            need("journals", "a JSON schema")
        try:
            json.dumps(self.schema)
        except (TypeError, ValueError) as error:
            raise DefinitionError(f"{self!r}: the JSON schema is no JSON: {error}") from error
        refuse_zones(repr(self), self.table)
        fields = self.table.input_schema()
        if META in fields.names and META not in self.meta:
            raise DefinitionError(
                f"{self!r}: the table has a field {META}, where documents have their UUID",
                hint='call the field otherwise, and fill it: meta={"id": "uuid"}',
            )
        self._check_meta(fields)
        for pointer in self.key:
            try:
                check_key(pointer, fields)
            except DefinitionError as error:
                raise DefinitionError(f"{self!r}: {error.what}", hint=error.hint) from None

    def _check_meta(self, fields: pa.Schema) -> None:
        unknown = sorted(set(self.meta.values()) - _META.keys())
        if unknown:
            raise DefinitionError(
                f"{self!r}: no document has {', '.join(unknown)}", hint=f"meta: {', '.join(_META)}"
            )
        for name, what in self.meta.items():
            if name not in fields.names:
                raise DefinitionError(
                    f"{self!r}: meta fills {name}, which is no field of table {self.table.__table_name__}",
                    hint="declare it in the table, and not as derived",
                )
            written, kind = _META[what]
            if fields.field(name).type != kind:
                raise DefinitionError(
                    f"{self!r}: meta fills {name}, a {fields.field(name).type}, with the {what} of documents",
                    hint=f"declare it as {written}",
                )

    def _clock(self, when: datetime | None) -> int | None:
        try:
            return None if when is None else time_clock(when)
        except BadInput as error:
            raise DefinitionError(f"{self!r}: {error.what}", hint=error.hint) from None


def parse_pointer(pointer: str) -> tuple[str, ...]:
    """The names on the way to a member of a document (JSON pointer, RFC 6901)."""
    if not pointer.startswith("/"):
        raise DefinitionError(
            f"the key {pointer!r} is no JSON pointer", hint="write it with a slash: /id or /customer/id"
        )
    if _ESCAPE.search(pointer):
        raise DefinitionError(
            f"the key {pointer!r} is no JSON pointer: a ~ stands alone", hint="write ~0 for ~ and ~1 for /"
        )
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def check_key(pointer: str, fields: pa.Schema) -> None:
    """Raise `DefinitionError` unless the pointer leads to a field of the table that can be hashed."""
    kind = pa.struct(list(fields))
    for name in parse_pointer(pointer):
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            raise DefinitionError(
                f"the key {pointer} leads to no field of the table",
                hint="declare the fields of a key in the table",
            )
        kind = kind.field(name).type
    if pa.types.is_nested(kind):
        raise DefinitionError(f"the key {pointer} is a {kind}", hint="name the members that make up the key")


def _values(given: str | Collection[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)
