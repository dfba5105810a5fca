"""A place for runs of a pipeline with exchanges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

import penstock as ps
from penstock.batch.exchange.packing import ExchangePlan
from penstock.batch.runs import exchanges, runs
from penstock.batch.runs.runs import Run
from penstock.control.claims import Board
from penstock.core.ranges import PartitionName
from tests.batch.runner import orders, trades
from tests.batch.runner.conftest import Child, Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = 4
"""Partitions of the phases over rows: three of orders, one of accounts."""
KEYS, EVERYTHING = 2, 3
"""The phases that read exchanges."""
FIRST_OF_KEYS = 2
"""The first stage of the phase over keys."""
EXCHANGING: dict[str, Any] = {"whole_bytes": 1, "small_bytes": 1}
"""Inputs this small would otherwise be given whole, or be one partition."""


class OrdersPlace(Place):
    """Store, storage, inputs and hooks of one test of exchanges."""

    def __init__(self, path: Path, spark: SparkSession) -> None:
        self.path = path
        self.url = f"sqlite:///{path}/store.db"
        self.spark = spark
        self.hooks = path / "hooks"
        self.hooks.mkdir()
        self.orders, self.accounts = orders.make_inputs(path)
        self.store = ps.open_store(self.url)
        self.storage = ps.Storage(path / "storage")
        self.children: list[Child] = []
        self.events = []
        for table in (orders.Orders, orders.Accounts):
            name = table.__table_name__
            ps.register(
                None,
                self.store,
                self.storage,
                name,
                str(path / f"{name}.parquet"),
                partition_rows=orders.PARTITION,
                table_schema=table.input_schema(),
            )

    def runner(self, pipeline: ps.Pipeline = orders.pipeline, **options: Any) -> ps.Runner:
        return super().runner(pipeline, **{**EXCHANGING, **options})

    def child(self, name: str = "child", failpoints: str = "", **options: Any) -> Child:
        return super().child(name, failpoints, **{"pipeline": "orders", **EXCHANGING, **options})

    def map(self) -> None:
        """Work up to the barrier: the phases over rows are complete, and nothing is planned."""
        assert self.run(max_batches=MAPPED).ending == "stopped"
        self.events.clear()

    @property
    def record(self) -> Run:
        return runs.load(self.store, "orders")

    @property
    def boards(self) -> list[Board]:
        return runs.boards(self.store, self.record)

    def plan(self, phase: int = KEYS) -> ExchangePlan | None:
        return exchanges.find_plan(self.store, self.record, phase)

    def tokens(self) -> dict[str, int]:
        """How often each partition was claimed."""
        return {
            str(PartitionName(phase, view.range)): view.token
            for phase, board in enumerate(self.boards)
            for view in board.partitions()
        }

    def acked(self) -> Counter[int]:
        """How many partitions of each phase were acked here."""
        return Counter(event.phase for event in self.seen("acked"))

    def computed(self) -> list[int]:
        """How often rows of each partition of orders were computed: for its output and for its run file."""
        return [len((self.hooks / f"visits-{n}").read_text()) for n in range(3)]

    def run_files(self) -> list[str]:
        return [path for path, _ in self.storage.list("runs") if "/exchange/" in path]

    def assert_exact(self, run: str = "orders") -> None:
        output = ps.Output(self.store, run)
        for table, rows in orders.expected(self.orders, self.accounts).items():
            found = output.arrow(table).to_pylist()
            assert sorted(found, key=_as_text) == sorted(rows, key=_as_text), table
        proof = ps.verify(self.store, run)
        assert proof.ok, proof


def _as_text(row: dict[str, Any]) -> list[str]:
    return [str(value) for value in row.values()]


@contextmanager
def opened(path: Path, spark: SparkSession) -> Iterator[OrdersPlace]:
    """A place whose processes and store are gone when the block ends."""
    for module in (orders, trades):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    place = OrdersPlace(path, spark)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_TEST_HOOKS", str(place.hooks))
        yield place
    for child in place.children:
        child.end()
    place.store.close()
