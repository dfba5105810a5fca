"""An Arrow transform as a step that runs inside a Python worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch.pipeline.retry import attempt, is_transient
from penstock.batch.pipeline.stages import ROW
from penstock.batch.pipeline.transforms import Retry
from penstock.errors import (
    PenstockError,
    TransformFailed,
    TransientError,
    UndeclaredRead,
    UndeclaredWrite,
    UnknownField,
)
from penstock.spark.faults import raised_at
from penstock.spark.fitting import fit, unchanged
from penstock.spark.flow import Batches


@dataclass(frozen=True, slots=True)
class ArrowStep:
    """Gives the function the declared columns of each batch, and puts the result back in its place.

    Because the function sees nothing else, an undeclared read fails on its first batch; that it
    hands back what it only read is compared on the first batch of each task.
    """

    name: str
    location: str
    function: Callable[..., Any]
    table: str
    target: str
    fields: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    drops: bool
    created: pa.Schema | None
    written: pa.Schema
    retry: Retry
    resources: Mapping[str, Any]

    def __call__(self, batches: Batches) -> Batches:
        resources = {name: handle.value for name, handle in self.resources.items()}
        first = True
        for batch in batches:
            if batch.num_rows == 0:
                continue
            made = self._made(batch, resources)
            merged = self._created(made) if self.created is not None else self._merged(batch, made, first)
            first = False
            if merged.num_rows:
                yield merged

    def _made(self, batch: pa.RecordBatch, resources: Mapping[str, Any]) -> pa.RecordBatch:
        visible = batch.select(list(self.reads))
        if self.drops:
            visible = visible.append_column(ROW, _numbers(batch.num_rows))
        try:
            made = attempt(lambda: self.function(**{self.table: visible}, **resources), self.retry)
        except TransientError as error:
            raise self._failed(error) from error
        except PenstockError:
            raise
        except Exception as error:
            raise self._undeclared_read(error) or self._failed(error) from error
        if isinstance(made, pa.Table):
            made = pa.RecordBatch.from_arrays(
                [_one_array(column) for column in made.columns], schema=made.schema
            )
        if not isinstance(made, pa.RecordBatch):
            raise self._error(TransformFailed, f"returned {type(made).__name__}, not a RecordBatch")
        return made

    def _created(self, made: pa.RecordBatch) -> pa.RecordBatch:
        assert self.created is not None
        self._check_names(made, set(self.created.names))
        if missing := [n for n in self.created.names if n not in made.schema.names]:
            raise self._error(UnknownField, f"declares to write {', '.join(missing)}, but does not")
        return fit(f"{self.location}: transform {self.name}: {self.target}", made, self.created)

    def _merged(self, batch: pa.RecordBatch, made: pa.RecordBatch, compare: bool) -> pa.RecordBatch:
        base = self._kept(batch, made)
        self._check_names(made, {*self.reads, *self.writes, ROW})
        if missing := [n for n in self.writes if n not in made.schema.names]:
            raise self._error(UnknownField, f"declares to write {', '.join(missing)}, but does not")
        if compare:
            for name in self.reads:
                if (
                    name not in self.writes
                    and name in made.schema.names
                    and not unchanged(base[name], made[name])
                ):
                    raise self._error(
                        UndeclaredWrite,
                        f"changes {self.table}.{name}, which it only declares to read",
                        f"add {name} to writes, or write to a field of its own",
                    )
        if not self.writes:
            return base
        fresh = fit(
            f"{self.location}: transform {self.name}: {self.target}",
            made.select(list(self.writes)),
            self.written,
        )
        columns = {field.name: (field, base.column(field.name)) for field in base.schema}
        columns |= {field.name: (field, fresh.column(field.name)) for field in self.written}
        return pa.RecordBatch.from_arrays(
            [column for _, column in columns.values()],
            schema=pa.schema([field for field, _ in columns.values()]),
        )

    def _kept(self, batch: pa.RecordBatch, made: pa.RecordBatch) -> pa.RecordBatch:
        if self.drops:
            if ROW not in made.schema.names:
                raise self._error(
                    TransformFailed,
                    f"lost the column {ROW}",
                    f"filter or take the batch it was given, so that {ROW} says which rows are left",
                )
            return self._left(batch, made[ROW])
        if made.num_rows != batch.num_rows:
            raise self._error(
                UndeclaredWrite,
                f"returned {made.num_rows} rows for {batch.num_rows}",
                f"declare drops={self.table.title().replace('_', '')} if it removes rows",
            )
        return batch

    def _left(self, batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
        if rows.equals(_numbers(batch.num_rows)):
            return batch
        if pc.count_distinct(rows).as_py() != len(rows):
            raise self._error(
                UndeclaredWrite,
                "returned a row twice, or one that it was not given",
                "a transform that multiplies rows creates a table of its own",
            )
        return batch.take(rows)

    def _check_names(self, made: pa.RecordBatch, allowed: set[str]) -> None:
        if extra := [n for n in made.schema.names if n not in allowed]:
            raise self._error(
                UndeclaredWrite, f"returns {', '.join(extra)}, which it does not declare in writes"
            )

    def _undeclared_read(self, error: Exception) -> PenstockError | None:
        """How pyarrow, a row as a dictionary and pandas say that there is no such column."""
        if not isinstance(error, KeyError | pa.ArrowInvalid) or not error.args:
            return None
        said = str(error.args[0])
        for name in self.fields:
            texts = (f'Field "{name}" ', f"Column {name} ", f"Column '{name}' ", f"FieldRef.Name({name})")
            if name not in self.reads and (said == name or any(text in said for text in texts)):
                return self._error(
                    UndeclaredRead,
                    f"reads {self.table}.{name}, which it does not declare",
                    f"add {name} to reads",
                )
        return None

    def _failed(self, error: Exception) -> PenstockError:
        tried = f" {self.retry.times + 1} times" if is_transient(error, self.retry) else ""
        where = raised_at(error, self.location)
        return TransformFailed(
            f"{where}: transform {self.name} raised{tried} {type(error).__name__}: {error}"
        )

    def _error(self, kind: type[PenstockError], what: str, hint: str | None = None) -> PenstockError:
        return kind(f"{self.location}: transform {self.name} {what}", hint=hint)


def _numbers(count: int) -> pa.Array:
    """0 to ``count``, which is not 0, without a Python object for each."""
    one = pa.scalar(1, pa.int32())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count)), one)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
