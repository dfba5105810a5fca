"""Spark is started again whatever goes wrong on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.server.engine.engine import SparkEngine
from penstock.server.process import spark_supervisor
from penstock.server.process.spark_supervisor import SparkSupervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables
    from penstock.server.shadow import Shadow

LONG = 60.0


class Spark:
    """A Spark that ends when a test says so."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.killed = threading.Event()


class Liveness:
    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def over(self) -> str | None:
        return self._spark.why

    def close(self) -> None:
        pass


class FewTables:
    version = 1

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True
        raise OSError("no file left")

    def listed(self, _: object) -> list[object]:
        raise KeyError("a table that has just gone")


class SomeShadow:
    problem = None


class Engine:
    """What a supervisor tells an engine. Its steps fail as a test says."""

    def __init__(self, faults: dict[str, list[Exception]]) -> None:
        self.faults = faults
        self.lost = 0
        self.renewed = threading.Event()
        self.has: Spark | None = None
        self.waits_for: threading.Event | None = None

    def lose(self) -> None:
        self.lost += 1
        if self.waits_for is not None:
            assert self.waits_for.wait(LONG), "the JVM was not killed first"
        self._fail("lose")

    def renew(self, spark: Spark, _: object) -> None:
        self._fail("renew")
        self.has = spark
        self.renewed.set()

    def _fail(self, step: str) -> None:
        if self.faults.get(step):
            raise self.faults[step].pop()


class World:
    def __init__(self, faults: dict[str, list[Exception]], tell: Callable[[str], None]) -> None:
        self.sparks: list[Spark] = []
        self.faults = faults
        self.engine = Engine(faults)
        self.supervisor = SparkSupervisor(cast("Any", self.start), cast("Any", self.furnish), tell)
        self.supervisor.begin()
        self.supervisor.watch(cast("SparkEngine", self.engine))

    def start(self) -> Spark:
        if self.sparks and self.faults.get("start"):
            raise self.faults["start"].pop()
        self.sparks.append(Spark())
        return self.sparks[-1]

    def furnish(self, _: Spark) -> FewTables:
        return FewTables()


@pytest.fixture(autouse=True)
def _pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_supervisor, "SparkLiveness", Liveness)
    monkeypatch.setattr(spark_supervisor, "kill", lambda spark: spark.killed.set())
    monkeypatch.setattr(spark_supervisor, "discard", lambda spark: spark.killed.set())
    monkeypatch.setattr(spark_supervisor, "_PAUSES", (0.01,))


def ended(world: World) -> None:
    world.engine.renewed.clear()
    world.sparks[-1].why = "killed"
    assert world.engine.renewed.wait(LONG), "Spark was not started again"
    assert world.engine.has is world.sparks[-1] and world.sparks[-1].why is None


def test_no_fault_on_the_way_leaves_the_server_without_spark() -> None:
    told: list[str] = []

    def tell(what: str) -> None:
        told.append(what)
        raise BrokenPipeError

    faults: dict[str, list[Exception]] = {
        "start": [OSError("too many open files")],
        "renew": [OSError("no space"), KeyError("t")],
        "lose": [RuntimeError("x")],
    }
    world = World(faults, tell)
    try:
        ended(world)
        assert not any(faults.values()) and world.engine.lost == 1
        assert any("too many open files" in each for each in told)
        ended(world)
        # The new Spark is given to the engine as it is: no fault of that ends it.
        assert len(world.sparks) == 3 and world.engine.lost == 2
    finally:
        world.supervisor.rest()


def test_the_jvm_is_killed_before_anybody_waits() -> None:
    world = World({}, lambda _: None)
    world.engine.waits_for = world.sparks[0].killed
    try:
        ended(world)
    finally:
        world.supervisor.rest()


def test_statements_go_on_although_the_shadow_could_not_be_told() -> None:
    old, new = cast("SparkSession", Spark()), cast("SparkSession", Spark())
    tables = cast("Tables", FewTables())
    engine = SparkEngine(old, tables, spool="", shadow=cast("Shadow", SomeShadow()))
    engine.lose()
    engine.renew(new, tables)
    assert engine._sessions.spark is new
