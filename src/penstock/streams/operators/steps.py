"""Functions of rows and batches at work in Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, TransformFailed, TransientError, TypeMismatch, UnknownField
from penstock.spark.faults import raised_at
from penstock.spark.fitting import fit, from_rows
from penstock.spark.flow import Batches, Step
from penstock.streams.operators.sites import Site

Row = Mapping[str, Any]

_PASSING = (TransientError, ConnectionError, TimeoutError)
_OLDER = (
    "an operator may not move a row back in time, since it might then be late: "
    "use assign_timestamps(extract=…), or give the time a name of its own"
)


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What rows a function makes, and checks that it does. ``time``: their event time."""

    site: Site
    table: str
    schema: pa.Schema
    time: str | None = None

    def batch(self, rows: list[Row]) -> pa.RecordBatch:
        """Rows as a batch of the schema."""
        known = set(self.schema.names)
        for row in rows:
            self._check(row, known)
        try:
            made = from_rows(rows, self.schema)
        except TypeMismatch as error:
            what = f"returned a row of {self.table} that does not fit: {error.what}"
            raise self.site.error(TypeMismatch, what, hint=error.hint) from error
        return self.fitted(made)

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch with the types of the schema, and no null where none may be."""
        names = batch.schema.names
        if missing := [name for name in self.schema.names if name not in names]:
            raise self.site.error(UnknownField, f"returns no {', '.join(missing)} for {self.table}")
        if extra := [name for name in names if name not in self.schema.names]:
            raise self._unknown(extra)
        return fit(f"{self.site}: {self.table}", batch, self.schema)

    def check_time(self, made: Row, source: Row) -> None:
        """That a row is not older than the one that it was made of."""
        if self.time is None:
            return
        new, old = made.get(self.time), source[self.time]
        try:
            older = new is not None and new < old
        except TypeError as error:
            raise self.site.error(
                TypeMismatch,
                f"returns {self.table}.{self.time} as {new!r}",
                hint="the event time is a datetime with a time zone: datetime.now(UTC)",
            ) from error
        if older:
            raise self.older(new, old)

    def older(self, new: Any, old: Any) -> TransformFailed:
        return self.site.error(
            TransformFailed, f"makes a row of {new} out of rows that are not older than {old}", hint=_OLDER
        )

    def _check(self, row: Any, known: set[str]) -> None:
        if not isinstance(row, Mapping):
            raise self.site.error(
                TransformFailed, f"returned {type(row).__name__} for a row", hint="a row is a dictionary"
            )
        if row.keys() == known:
            return
        if extra := [name for name in row if name not in known]:
            raise self._unknown(extra)
        missing = [f.name for f in self.schema if f.name not in row and not f.nullable]
        if missing:
            raise self.site.error(UnknownField, f"returned a row without {', '.join(missing)}")

    def _unknown(self, names: Iterable[Any]) -> UnknownField:
        return self.site.error(
            UnknownField,
            f"returned {', '.join(map(str, names))}, which rows of {self.table} do not have here",
            hint=f"they have: {', '.join(self.schema.names)}",
        )


@dataclass(frozen=True, slots=True)
class MapRows:
    """A row for each row."""

    function: Callable[[dict[str, Any]], Row]
    made: ExpectedRows

    def __call__(self, batches: Batches) -> Batches:
        for batch in full(batches):
            found = []
            for row in batch.to_pylist():
                # The function may change its row, and the time is compared with what it was.
                made = called(self.made.site, self.function, dict(row))
                if isinstance(made, Mapping):
                    self.made.check_time(made, row)
                found.append(made)
            yield self.made.batch(found)


@dataclass(frozen=True, slots=True)
class FlatMapRows:
    """Any number of rows for each row."""

    function: Callable[[dict[str, Any]], Iterable[Row]]
    made: ExpectedRows

    def __call__(self, batches: Batches) -> Batches:
        for batch in full(batches):
            rows = [made for row in batch.to_pylist() for made in self._of(row)]
            if rows:
                yield self.made.batch(rows)

    def _of(self, row: dict[str, Any]) -> list[Row]:
        made: list[Row] = called(self.made.site, self._listed, dict(row))
        for each in made:
            if isinstance(each, Mapping):
                self.made.check_time(each, row)
        return made

    def _listed(self, row: dict[str, Any]) -> list[Row]:
        made = self.function(row)
        if isinstance(made, Mapping | str) or not isinstance(made, Iterable):
            raise self.made.site.error(
                TransformFailed,
                f"returned {type(made).__name__}",
                hint="return a list of rows, or yield them",
            )
        return list(made)


@dataclass(frozen=True, slots=True)
class FilterRows:
    """The rows for which the function says ``wanted``; None counts as no."""

    function: Callable[[dict[str, Any]], bool | None]
    site: Site
    wanted: bool = True

    def __call__(self, batches: Batches) -> Batches:
        for batch in full(batches):
            said = [bool(called(self.site, self.function, row)) is self.wanted for row in batch.to_pylist()]
            if any(said):
                yield batch.filter(pa.array(said, pa.bool_()))


@dataclass(frozen=True, slots=True)
class MapBatches:
    """A batch for each batch."""

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    made: ExpectedRows

    def __call__(self, batches: Batches) -> Batches:
        for batch in full(batches):
            made = called(self.made.site, self.function, batch)
            for each in made.to_batches() if isinstance(made, pa.Table) else [made]:
                if not isinstance(each, pa.RecordBatch):
                    raise self.made.site.error(
                        TransformFailed, f"returned {type(each).__name__}", hint="return a RecordBatch"
                    )
                if each.num_rows:
                    yield self.made.fitted(each)


@dataclass(frozen=True, slots=True)
class Forward:
    """A step that takes batch by batch, watched: no row may come out older than its whole batch."""

    step: Step
    made: ExpectedRows

    def __call__(self, batches: Batches) -> Batches:
        time = self.made.time
        if time is None:
            yield from self.step(batches)
            return
        oldest: list[Any] = [None]
        for made in self.step(_watched(batches, time, oldest)):
            new = pc.min(made.column(time)).as_py()
            if new is not None and new < oldest[0]:
                raise self.made.older(new, oldest[0])
            yield made


def _watched(batches: Batches, time: str, oldest: list[Any]) -> Batches:
    for batch in full(batches):
        oldest[0] = pc.min(batch.column(time)).as_py()
        yield batch


def full(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The batches that have rows."""
    return (batch for batch in batches if batch.num_rows)


def called(site: Site, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function returns; what it raises names the operator and its line."""
    try:
        return function(*arguments)
    except _PASSING as error:
        raise site.error(TransientError, _told(site, error)) from error
    except PenstockError:
        raise
    except Exception as error:
        raise site.error(TransformFailed, _told(site, error)) from error


def _told(site: Site, error: Exception) -> str:
    line = raised_at(error, site.location)
    return f"raised {type(error).__name__}: {error}" + (f" ({line})" if line != site.location else "")
