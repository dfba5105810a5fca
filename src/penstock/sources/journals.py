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
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from penstock.errors import DefinitionError
from penstock.journals import Journals, names
from penstock.journals.uuids import time_clock
from penstock.sources.base import Source
from penstock.tables import Table

Meta = Literal["uuid", "journal", "offset", "time", "producer"]
"""What there is to know of a document besides its fields."""

QUEUES = 4
_TICKS = 160_000_000
_META: Mapping[str, str] = {
    "uuid": "str",
    "journal": "str",
    "offset": "int",
    "time": "datetime",
    "producer": "str",
}


class JournalSource(Source):
    """The documents of the journals below ``root`` whose names begin with ``prefix``.

    ``where`` takes those alone whose partition fields have one of the given values. A document's members are
    the table's fields; other members are left out.

    ``key`` says what documents belong together (JSON pointers to fields of the table): equal keys go to one
    of ``queues`` queues. Without a key documents are spread by their clocks. ``meta`` fills fields of the
    table with what is known of a document: ``{"at": "time", "id": "uuid"}``.

    Journals of a higher ``priority`` are read before those of a lower one. A document is read only when
    ``read_delay`` seconds have passed since its clock. Sources of a stream with the same priority and delay
    form a cohort: transactions that reach over several of their journals become visible as a whole.

    Documents with a clock before ``not_before`` or from ``not_after`` on are left out. ``schema`` is a JSON
    schema that each document must fulfil; one that does not fails the epoch, or is counted and left out with
    ``on_invalid="skip"``. Bytes that a journal has lost fail the epoch too, unless ``on_gap="skip"``.
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
        self.not_before = None if not_before is None else time_clock(not_before)
        self.not_after = None if not_after is None else time_clock(not_after)
        self.schema = None if schema is None else dict(schema)
        self.on_invalid = on_invalid
        self.on_gap = on_gap
        self._check()

    def __repr__(self) -> str:
        return f"JournalSource({self.journals.root}, {self.prefix!r})"

    @property
    def cohort(self) -> tuple[int, float]:
        return self.priority, self.read_delay

    @property
    def delay(self) -> int:
        """The read delay as a difference of clocks."""
        return round(self.read_delay * _TICKS)

    def describe(self) -> dict[str, object]:
        return {
            "journals": self.journals.root,
            "prefix": self.prefix,
            "where": ", ".join(f"{name}={'|'.join(sorted(v))}" for name, v in sorted(self.where.items())),
            "key": ", ".join(self.key),
            "queues": self.queues,
            "meta": ", ".join(f"{field}={what}" for field, what in sorted(self.meta.items())),
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
        unknown = sorted(set(self.meta.values()) - _META.keys())
        if unknown:
            raise DefinitionError(
                f"{self!r}: no document has {', '.join(unknown)}", hint=f"meta: {', '.join(_META)}"
            )
        if self.schema is not None:
            json.dumps(self.schema)


def _values(given: str | Collection[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)
