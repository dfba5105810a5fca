"""An output with state whose owner dies at any point of a batch: the next one repeats it as it was.

Spark is a model here: it plans, keeps its state and notes what is done as Spark does, in the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.sinks.base import Batch, Writer
from penstock.storage import Storage
from penstock.store.base import Session
from penstock.store.memory import MemoryStore
from penstock.streams.layout import Layout
from penstock.streams.log.progress import OutputProgress
from penstock.streams.outputs.claims import OutputClaims
from penstock.streams.outputs.output_query import RunningOutput
from penstock.streams.outputs.spark_checkpoints import SparkCheckpoint

LAYOUT = Layout("clicks", "0001")
OUTPUT = "counts"
POINTS = (
    "output.batch",
    "output.synced",
    "output.secured",
    "output.written",
    "claim.told",
    "spark.committed",
)


class Died(BaseException):
    """Not an error: nothing of the process does anything after it."""


class Spark:
    """A query over one source. What it hands over as the rows of a batch are the epochs that are in it."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self._ranges = Path()
        self._take: Any = None
        self.isActive = True
        self.lastProgress: Any = None

    def reads(self, ranges: Path) -> None:
        self._ranges = ranges

    @property
    def writeStream(self) -> Spark:  # noqa: N802
        return self

    def outputMode(self, _: str) -> Spark:  # noqa: N802
        return self

    def option(self, _: str, folder: str) -> Spark:
        assert Path(folder) == self._folder
        return self

    def foreachBatch(self, take: Any) -> Spark:  # noqa: N802
        self._take = take
        return self

    def start(self) -> Spark:
        return self

    def stop(self) -> None:
        self.isActive = False

    def run(self, newest: int) -> int:
        """The next batch, or again the one that was planned and is not done; up to which epoch it goes."""
        planned, done = self._last("offsets"), self._last("commits")
        assert done in (planned, planned - 1)
        number = done + 1
        if planned == done:
            self._put(f"offsets/{number}", f'v1\n{{}}\n{{"epoch":{newest}}}')
        begin, end = self._end(number - 1), self._end(number)
        assert begin >= self._world.needless, "epochs are gone that the batch needs"
        if number:
            assert (self._folder / f"state/0/0/{number}.changelog").read_text() == f"up to {begin}"
        told = {"start": begin, "end": end}
        (self._ranges / "words.json").write_text(json.dumps(told))
        self._put(f"state/0/0/{number + 1}.changelog", f"up to {end}")
        self._take((begin, end), number)
        self._put(f"commits/{number}", "v1\n{}")
        self._world.reach("spark.committed")
        source = SimpleNamespace(endOffset=json.dumps({"epoch": end}))
        self.lastProgress = SimpleNamespace(batchId=number, sources=[source])
        return end

    def _last(self, kind: str) -> int:
        return max((int(file.name) for file in self._folder.glob(f"{kind}/*")), default=-1)

    def _end(self, batch: int) -> int:
        if batch < 0:
            return 0
        return int(json.loads((self._folder / f"offsets/{batch}").read_text().splitlines()[-1])["epoch"])

    def _put(self, path: str, text: str) -> None:
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(text)


class World:
    """One owner after the other, with what lasts between them: a store, a disk, and what the sink got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = Storage(folder)
        self.store = MemoryStore()
        self.claims = OutputClaims(self.store, LAYOUT)
        self.got: dict[int, list[tuple[int, int]]] = {}
        self.needless = 0
        self.deadly: str | None = None
        self.owners: list[RunningOutput] = []
        self._synced: dict[Path, bytes] = {}
        self._session: Session | None = None

    def reach(self, point: str) -> None:
        if point == self.deadly:
            raise Died(point)

    def sync(self, file: Path) -> None:
        self._synced[file] = file.read_bytes()

    def lose_power(self) -> None:
        """What was not synced is not there, though its name is."""
        for file in self.folder.rglob("*"):
            if file.is_file():
                file.write_bytes(self._synced.get(file, b""))

    def begin(self) -> tuple[RunningOutput, Spark]:
        """The next owner; the one before is dead."""
        if self._session is not None:
            self._session.close()
        self._session = self.store.session(30.0)
        claim = self.claims.take(OUTPUT, "somebody", self._session.id)
        assert claim is not None
        checkpoint = SparkCheckpoint(self.storage, LAYOUT.output(OUTPUT), claim.token)
        query = Spark(self, self.folder / checkpoint.folder)
        surroundings = SimpleNamespace(
            claims=self.claims,
            starting=nullcontext(),
            checkpoint=lambda *_: checkpoint,
            readers=lambda: SimpleNamespace(advance=self._let_go),
            target=lambda *_: None,
            set_up=lambda _: None,
            located=lambda folder: str(self.folder / folder),
            took=self._took,
        )
        sink = SimpleNamespace(open=lambda _: _Sink(self))
        output = SimpleNamespace(
            name=OUTPUT, sink=sink, reads=("words",), mode="update", frame=lambda *_: query
        )
        running = RunningOutput(cast("Any", surroundings), cast("Any", output), claim, self._session.id)

        def reading(_: object, __: str, ranges: Path) -> Any:
            query.reads(ranges)

        self.owners.append(running)
        running.start(cast("Any", None), reading)
        return running, query

    def _let_go(self, _: str, epoch: int) -> None:
        self.needless = max(self.needless, epoch)

    def _took(self, name: str, token: int, batch: Batch, reached: OutputProgress, _: float) -> None:
        ends: Mapping[str, int] = dict(reached.ends)
        self.claims.update(name, token, batch=batch.number, epoch=batch.epoch, ends=ends)
        self.reach("claim.told")


class _Sink(Writer):
    def __init__(self, world: World) -> None:
        self._world = world

    def write(self, frame: Any, batch: Batch) -> None:
        self._world.got.setdefault(batch.number, []).append(frame)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr("penstock.streams.outputs.output_query.reach", made.reach)
    monkeypatch.setattr("penstock.streams.outputs.spark_checkpoints._sync", made.sync)
    monkeypatch.setattr("penstock.streams.outputs.spark_checkpoints.sync_folder", lambda *_, **__: None)
    yield made
    for running in made.owners:
        running.stop()


@pytest.mark.parametrize("power", ["power stays", "power fails"])
@pytest.mark.parametrize("settled", ["settled", "back to back"])
@pytest.mark.parametrize("point", POINTS)
def test_every_batch_has_the_same_rows_whoever_brings_it(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str, settled: str, power: str
) -> None:
    monkeypatch.setattr(
        "penstock.streams.outputs.output_query._IDLE", 0.0 if settled == "settled" else float("inf")
    )
    running, query = world.begin()
    for newest in (1, 2, 3):
        query.run(newest)
        running.let_go()
    # Two owners die, and more has come whenever another goes on.
    for newest in (4, 6):
        world.deadly = point
        with pytest.raises(Died):
            query.run(newest)
        if power == "power fails":
            world.lose_power()
        world.deadly = None
        running, query = world.begin()
    while query.run(8) < 8:
        pass
    assert all(len(set(rows)) == 1 for rows in world.got.values()), world.got
    ranges = [rows[0] for _, rows in sorted(world.got.items())]
    assert [begin for begin, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == 8


def test_a_slow_thread_does_not_take_back_what_is_safe(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.outputs.output_query._IDLE", 0.0)
    running, query = world.begin()
    query.run(1)
    # Two batches pass while what the first one wrote is synced.
    monkeypatch.setattr(running, "_checkpoint", SimpleNamespace(sync=lambda: None))
    told = query.lastProgress
    query.run(2)
    query.run(3)
    query.lastProgress = told
    running.let_go()
    assert world.claims.read(OUTPUT).safe == 1
