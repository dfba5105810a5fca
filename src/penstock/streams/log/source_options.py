"""The options of the Spark source ``penstock``: texts by name, as Spark hands them on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import UnknownType, UsageError
from penstock.streams.log.row_files import WantedRows
from penstock.streams.log.schemas import COUNT, check_event_time
from penstock.streams.place import Place
from penstock.types.spark import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROWS_PER_BATCH = 10_000_000
EPOCHS_PER_BATCH = 1_000
WAIT = 0.5
_ALL = "all"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read of which stream, and how.

    ``reader`` names a reader whose position is kept, so that nothing goes that it still needs; without a
    checkpoint it begins there. One that has no position yet begins before the first epoch; if that is gone,
    ``from_oldest`` lets it begin with the oldest that is retained. ``output`` is the output that reads under
    this name. ``counted`` are the only fields to read: rows that are equal in them come as one, with their
    number in column `penstock.streams.log.schemas.COUNT`. ``hold_for`` is how many seconds the files of a
    batch read are kept for it. ``event_time`` asks for the row at the end of the stream (see
    `penstock.streams.log.schemas.END_OF_TIME`), and ``watermarks`` for rows that tell how far the source is
    (`penstock.streams.log.schemas.WATERMARK`). ``late`` asks for the rows that came too late instead of those
    that did not; None for all. ``ranges`` is a local file that tells the epochs of the newest
    batch. ``rows`` and ``epochs`` bound a batch; one epoch is always taken as a whole. ``wait`` is how many
    seconds an idle source waits for the next epoch before it says that there is none: in a query over several
    sources, they wait one after the other.
    """

    place: Place
    source: str
    late: bool | None = False
    event_time: str | None = None
    reader: str | None = None
    ranges: str | None = None
    tasks: int = 4
    rows: int = ROWS_PER_BATCH
    epochs: int = EPOCHS_PER_BATCH
    wait: float = WAIT
    at_epoch: int | None = None
    hold_for: float = 600.0
    from_oldest: bool = False
    output: str | None = None
    counted: tuple[str, ...] | None = None
    watermarks: bool = False

    def to_options(self) -> dict[str, str]:
        """As Spark takes them."""
        given = {name: getattr(self, field) for name, (field, _) in _OPTIONS.items()}
        given["late"] = _ALL if self.late is None else self.late
        texts = {name: _text(value) for name, value in given.items() if value is not None}
        return texts | {"place": self.place.encode()}

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """What the options say; `UsageError` names the one that is unknown, missing or wrong."""
        known = {name.lower(): name for name in _OPTIONS}
        given: dict[str, Any] = {}
        for key, text in options.items():
            name = known.get(key.lower())
            if name is None and key.lower() not in _OTHERS:
                raise UsageError(f"unknown option {key}", hint=f"options: {', '.join([*_OPTIONS, *_OTHERS])}")
            if name is not None:
                field, parse = _OPTIONS[name]
                given[field] = _parsed(name, text, parse)
        if missing := {"place", "source"} - given.keys():
            raise UsageError(f"option {min(missing)} is missing")
        made = cls(**given)
        if made.counted is not None and made.event_time is not None:
            raise UsageError(
                "rows that are counted have no event time", hint="leave out countBy or eventTime"
            )
        return made

    def wanted(self, schema: StructType) -> WantedRows:
        names = schema.names if self.counted is None else [name for name in schema.names if name != COUNT]
        return WantedRows(self.source, tuple(names), self.late)

    def arrow(self, schema: StructType) -> pa.Schema:
        """The schema of the batches."""
        try:
            found = arrow_schema(schema)
        except UnknownType as error:
            raise UsageError(error.what) from None
        if self.event_time is not None:
            check_event_time(found, self.event_time)
        return found


def columns_of(options: Mapping[str, str]) -> tuple[str, ...] | None:
    """The option ``columns``."""
    text = options.get("columns")
    return None if text is None else _names(text)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, tuple) else str(value)


def _names(text: str) -> tuple[str, ...]:
    """Names with commas between them, or a list in JSON."""
    if text.lstrip().startswith("["):
        return tuple(map(str, json.loads(text)))
    return tuple(name.strip() for name in text.split(","))


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _flag_or_all(text: str) -> bool | None:
    return None if text.lower() == _ALL else _flag(text)


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError("must be at least 1")
    return value


def _parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"option {name} = {text[:100]!r}: {error}") from None


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "place": ("place", Place.decode),
    "source": ("source", str),
    "late": ("late", _flag_or_all),
    "eventTime": ("event_time", str),
    "reader": ("reader", str),
    "fromOldest": ("from_oldest", _flag),
    "output": ("output", str),
    "ranges": ("ranges", str),
    "tasks": ("tasks", _count),
    "rowsPerBatch": ("rows", _count),
    "epochsPerBatch": ("epochs", _count),
    "wait": ("wait", float),
    "atEpoch": ("at_epoch", int),
    "holdFor": ("hold_for", float),
    "countBy": ("counted", _names),
    "watermarks": ("watermarks", _flag),
}
_OTHERS = ("schema", "columns")
