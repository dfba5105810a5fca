"""A source under examination: parts that are watched, and the rows that they brought when first read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.sources.base import Part, StatefulSource
from penstock.sources.state import State, decode, encode
from penstock.spark.fitting import fit, from_rows
from penstock.types.tables import Table

_PAUSE = 0.005
_LIMITS = (1, 2, 1, 7, 40, 300)


class DiffersError(Exception):
    """A part does not do what it must."""

    def __init__(self, part: str | None, what: str) -> None:
        super().__init__(what)
        self.part = part
        self.what = what


@dataclass(frozen=True, slots=True)
class Reference:
    """What a part brought when it was read first: rows as text, and states by the number of rows before."""

    rows: tuple[str, ...]
    finished: bool
    states: tuple[tuple[int, str], ...]


class Watched:
    """A part whose every call is watched: an error is told with the method that it came from."""

    def __init__(self, subject: Subject, name: str, state: State = None) -> None:
        self.name = name
        self.rows: list[str] = []
        self.finished = False
        self._subject = subject
        self._part: Part = self._ask("build_part", lambda: subject.source.build_part(name, state))
        if not isinstance(self._part, Part):
            raise DiffersError(name, f"build_part returned {self._part!r}, not a Part")

    def poll(self, limit: int) -> pa.RecordBatch | None:
        """The rows of one poll, if they fit the table."""
        began = time.monotonic()
        brought = self._ask("poll", lambda: self._part.poll(limit))
        took = time.monotonic() - began
        if took > self._subject.timeout:
            raise DiffersError(self.name, f"poll({limit}) took {took:.1f} s; it should return what there is")
        batch = as_batch(self.name, brought, self._subject.source.table)
        self.finished = self.is_finished()
        if batch is not None:
            self.rows += [repr(row) for row in batch.to_pylist()]
        return batch

    def is_finished(self) -> bool:
        return bool(self._ask("is_finished", self._part.is_finished))

    def snapshot(self) -> str:
        """The state, encoded."""
        return self._encoded("snapshot", self._part.snapshot)

    def collect(self) -> str:
        """The state for a move, encoded."""
        return self._encoded("collect", self._part.collect)

    def suspend(self) -> None:
        self._ask("suspend", self._part.suspend)

    def close(self) -> None:
        self._ask("close", self._part.close)

    def read(
        self,
        rows: int,
        limits: Iterable[int],
        *,
        to_the_end: bool = False,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        """Poll until there are so many rows, or until it has finished; ``between`` is called after a poll."""
        deadline = time.monotonic() + self._subject.timeout
        each = cycle(limits)
        while not self.finished and (len(self.rows) < rows or to_the_end):
            limit = next(each)
            batch = self.poll(limit if to_the_end else min(limit, rows - len(self.rows)))
            between()
            if batch is None and not self.finished:
                if time.monotonic() > deadline:
                    raise DiffersError(self.name, self._missing(rows))
                time.sleep(_PAUSE)

    def _missing(self, rows: int) -> str:
        within = f"within {self._subject.timeout:g} s"
        if len(self.rows) < rows:
            return f"only {len(self.rows)} of {rows} rows came {within}"
        return f"it did not finish {within}, where it had finished after {rows} rows"

    def _encoded(self, method: str, ask: Callable[[], State]) -> str:
        return encode_state(self.name, self._ask(method, ask))

    def _ask(self, method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise DiffersError(self.name, f"{method} raised {type(error).__name__}: {error}") from error


@dataclass
class Subject:
    """A source, and how much of it is looked at."""

    source: StatefulSource
    timeout: float
    quiet: float
    most_rows: int
    most_parts: int
    _references: dict[str, Reference] = field(default_factory=dict)

    def listed(self) -> list[Any]:
        """What list_parts gives, whatever that is."""
        try:
            return list(self.source.list_parts())
        except Exception as error:
            raise DiffersError(None, f"list_parts raised {type(error).__name__}: {error}") from error

    def parts(self) -> Sequence[str]:
        """The parts that are looked at."""
        return self.listed()[: self.most_parts]

    def build(self, part: str, state: str | None = None) -> Watched:
        """A part from an encoded state."""
        return Watched(self, part, None if state is None else decode(part, state))

    def polls(self, part: str, limits: Iterable[int] = _LIMITS) -> Iterator[tuple[Watched, int, int]]:
        """Poll a part until it finishes, is quiet, or has brought enough.

        Yields, after each poll that brought rows or the end, the part, the limit and how many rows came.
        """
        watched = self.build(part)
        last = time.monotonic()
        each = cycle(limits)
        while not watched.finished and len(watched.rows) < self.most_rows:
            limit = next(each)
            batch = watched.poll(limit)
            if batch is not None or watched.finished:
                last = time.monotonic()
                yield watched, limit, batch.num_rows if batch is not None else 0
            elif time.monotonic() > last + self.quiet:
                break
            else:
                time.sleep(_PAUSE)
        watched.close()

    def reference(self, part: str) -> Reference:
        if part not in self._references:
            self._references[part] = self._read_first(part)
        return self._references[part]

    def _read_first(self, part: str) -> Reference:
        untouched = self.build(part)
        states = [(0, untouched.snapshot())]
        untouched.close()
        rows: list[str] = []
        finished = False
        for watched, _, _ in self.polls(part):
            states.append((len(watched.rows), watched.snapshot()))
            rows, finished = watched.rows, watched.finished
        return Reference(tuple(rows), finished, tuple(states))

    def same_rows(self, watched: Watched, since: int, how: str) -> None:
        """Complain unless a part that was read from row ``since`` on brought what it brought at first."""
        first = self.reference(watched.name)
        expected = first.rows[since:]
        for number, (now, before) in enumerate(zip(watched.rows, expected, strict=False), since):
            if now != before:
                raise DiffersError(
                    watched.name, f"{how}, row {number} is {now}, where it was {before} before"
                )
        if len(watched.rows) < len(expected):
            raise DiffersError(
                watched.name,
                f"{how}, it finished after row {since + len(watched.rows)}, where there were "
                f"{len(first.rows)} rows before",
            )
        if len(watched.rows) > len(expected):
            extra = watched.rows[len(expected)]
            raise DiffersError(watched.name, f"{how}, a row came after the end: {extra}")

    def rest(self, part: str, state: str | None, since: int, limits: Iterable[int], how: str) -> None:
        """Build a part, read all that there was behind row ``since``, and compare."""
        first = self.reference(part)
        watched = self.build(part, state)
        watched.read(len(first.rows) - since, limits, to_the_end=first.finished)
        watched.close()
        self.same_rows(watched, since, how)


def encode_state(part: str, state: State) -> str:
    try:
        return encode(part, state)
    except PenstockError as error:
        raise DiffersError(part, error.what) from error


def as_batch(part: str, brought: Any, table: type[Table]) -> pa.RecordBatch | None:
    """What a poll brought, fitted to the table; None for nothing."""
    schema = table.input_schema()
    if brought is None:
        return None
    if not isinstance(brought, pa.RecordBatch):
        brought = _from_rows(part, brought, schema)
    if not brought.num_rows:
        return None
    for name in brought.schema.names:
        if name not in schema.names:
            raise DiffersError(part, f"poll brought a field {name!r}, which {table} does not have")
    for name in schema.names:
        if name not in brought.schema.names:
            raise DiffersError(part, f"poll brought no field {name!r}, which {table} has")
    try:
        return fit(table.__table_name__, brought, schema)
    except PenstockError as error:
        raise DiffersError(part, f"poll brought rows that do not fit the table: {error.what}") from error


def _from_rows(part: str, brought: Any, schema: pa.Schema) -> pa.RecordBatch:
    if not isinstance(brought, Sequence) or not all(isinstance(row, Mapping) for row in brought):
        raise DiffersError(
            part,
            f"poll returned {type(brought).__name__}, neither a record batch, nor dictionaries, nor None",
        )
    for row in brought:
        for name in row:
            if name not in schema.names:
                raise DiffersError(part, f"poll brought a field {name!r}, which the table does not have")
    try:
        return from_rows(brought, schema)
    except PenstockError as error:
        raise DiffersError(part, f"poll brought rows that do not fit the table: {error.what}") from error
