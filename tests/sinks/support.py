"""What the tests of all sinks share: outputs, batches, and a crash at any point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.sinks.base import Batch, Mode, Sink, Target, Writer
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Sale(Table):
    id: int
    city: str
    amount: int | None


Rows = list[tuple[Any, ...]]


class Crash(BaseException):
    """The process ends here: nothing may catch it."""


@dataclass(frozen=True)
class Bench:
    """An output of a stream, to be opened by one owner after the other."""

    target: Target

    def owner(self, token: int, **changes: Any) -> Target:
        return replace(self.target, token=token, **changes)

    def open(self, sink: Sink, token: int, **changes: Any) -> Writer:
        return sink.open(self.owner(token, **changes))

    def frame(self, rows: Iterable[tuple[Any, ...]], table: type[Table] = Sale) -> DataFrame:
        schema = table.arrow_schema()
        found = [dict(zip(schema.names, row, strict=True)) for row in rows]
        frame = self.target.spark.createDataFrame(pa.Table.from_pylist(found, schema=schema))
        return frame.repartition(2) if len(found) > 1 else frame


def bench(store: Store, storage: Storage, spark: SparkSession, mode: Mode = "append") -> Bench:
    keys = ("id",) if mode == "update" else ()
    return Bench(Target("sales", "s1", "out", 1, Sale, mode, keys, store, storage, spark))


def sales(batch: int, count: int = 10) -> Rows:
    """The rows of a batch: ids do not repeat in others."""
    return [(batch * 1000 + n, f"city {n % 3}", None if n % 4 == 0 else n) for n in range(count)]


def number(n: int, *, epoch: int | None = None, final: bool = False) -> Batch:
    return Batch(n, n + 1 if epoch is None else epoch, final)


@contextmanager
def crash_at(monkeypatch: pytest.MonkeyPatch, module: Any, point: str) -> Iterator[None]:
    """Whatever is in the block ends at the point, which it must reach."""

    def reach(name: str) -> None:
        if name == point:
            raise Crash(name)

    with monkeypatch.context() as patched:
        patched.setattr(module, "reach", reach)
        with pytest.raises(Crash):
            yield


@contextmanager
def meanwhile(
    monkeypatch: pytest.MonkeyPatch, module: Any, point: str, action: Callable[[], object]
) -> Iterator[None]:
    """When the block first comes to the point, somebody else acts."""
    done: list[str] = []

    def reach(name: str) -> None:
        if name == point and not done:
            done.append(name)
            action()

    with monkeypatch.context() as patched:
        patched.setattr(module, "reach", reach)
        yield
    assert done, f"nobody came to {point}"


def plain(rows: Iterable[Any]) -> Rows:
    return sorted(tuple(row) for row in rows)
