"""Simulated instances of a stream: real nodes with real stream workers, over sources and files in memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Decision
from penstock.errors import SessionLost, StoreUnavailable
from penstock.sources.base import PartName
from penstock.streams.api.stream import SourceSpec
from penstock.streams.ingest import epoch_files
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.ingest.pacing import Allowance, StreamRhythm
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.model import END, SCOPE, PartState
from tests.simulation.instances import CONFIG, Fleet, Instance
from tests.simulation.invariants import Referee
from tests.simulation.oracle import Oracle, StreamReferee
from tests.simulation.participant import Grumble
from tests.simulation.run import Run, Simulation
from tests.simulation.springs import springs
from tests.simulation.weather import Weather
from tests.simulation.world import Violation, World
from tests.streams.support import LAYOUT, MemoryIngestion, MemoryStorage

_EVERY = 1.0
_LIST_EVERY = 1.5
_ROOM = 1 << 20
_SLICE = 0.2
_LONGEST = 20.0


class Disk(MemoryStorage):
    """An instance's way to the files that all share: slow, and out of order once in a while."""

    def __init__(self, world: World, weather: Weather, shared: MemoryStorage, oracle: Oracle) -> None:
        super().__init__()
        self._oracle = oracle
        self._world = world
        self._weather = weather
        self.files = shared.files

    def read(self, path: str) -> bytes:
        self._wait()
        return super().read(path)

    def write(self, path: str, data: bytes) -> None:
        self._wait()
        self._world.check(path not in self.files, f"{path} is written a second time")
        super().write(path, data)
        self._wait()

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        self._wait()
        return super().list(prefix)

    def delete(self, prefix: str) -> None:
        self._wait()
        self._oracle.deleted(prefix)
        super().delete(prefix)

    def _wait(self) -> None:
        self._world.sleep(self._weather.latency())
        if self._weather.grumbles():
            raise Grumble("the storage does not answer")


class Job(MemoryIngestion):
    """Jobs that take their time, fail, and can be cancelled."""

    def __init__(
        self, world: World, weather: Weather, instance: Reader, sources: Mapping[str, SourceSpec], disk: Disk
    ) -> None:
        super().__init__(sources, disk)
        self._world = world
        self._weather = weather
        self._instance = instance
        self._runs = False
        self._ends = False

    def poll(
        self,
        prefix: str,
        parts: Mapping[PartName, PartState],
        limits: PollLimits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        shuffle: ShuffleWork = NOTHING,
        within: float | None = None,
    ) -> Polled:
        self._instance.polls(parts)
        self._runs, self._ends = True, False
        try:
            self._take_time()
            polled = super().poll(prefix, parts, limits, thresholds, asked)
            self._take_time()
            return polled
        finally:
            self._runs = False

    def collect(self, parts: Mapping[PartName, PartState], within: float | None = None) -> Polled:
        self._runs, self._ends = True, False
        try:
            self._take_time()
            return super().collect(parts)
        finally:
            self._runs = False

    def cancel(self) -> None:
        while self._runs:
            self._ends = True
            self._world.sleep(_SLICE)

    def _take_time(self) -> None:
        mood = self._weather.mood()
        if mood in ("refusing", "raising"):
            raise Grumble("the job failed")
        longest = 8.0 if mood == "slow" else self._instance.pace
        until = self._world.now + self._world.random.random() * longest
        while self._world.now < until:
            self._world.sleep(min(_SLICE, until - self._world.now))
            if self._ends:
                raise Grumble("the job was cancelled")


class Reader(Instance):
    """A process that takes part in the stream."""

    def __init__(self, stream: Stream, world: World, *arguments: Any) -> None:
        self._stream = stream
        self.pace = world.random.choice((0.1, 0.5, 1.5))
        """How long a job takes at most if nothing holds it up."""
        super().__init__(world, *arguments)

    def polls(self, parts: Mapping[PartName, PartState]) -> None:
        """A job begins to read ``parts``."""
        served = self.node._served.get(SCOPE) if self.node is not None else None
        if served is not None and self._stream.is_alive(served.session.id):
            self._stream.oracle.polled(self.name, parts)

    def _made(self) -> Node:
        stream, world, weather = self._stream, self._world, self._weather
        disk = Disk(world, weather, stream.storage, stream.oracle)
        limits = PollLimits(stream.most, 1 << 20, 1.0)
        participant = StreamWorker(
            self.member.id,
            stream.sources,
            Job(world, weather, self, stream.sources, disk),
            disk,
            LAYOUT,
            Allowance(limits, self._room),
            _LIST_EVERY,
            self._since,
            self.clock,
            lambda _: None,
            lambda work: work(),
        )
        rhythm = StreamRhythm(_EVERY, limits.rows, limits.bytes, self._goes_on, lambda _: None)
        return Node(self.wire, self.member, CONFIG, {SCOPE: participant}, {SCOPE: rhythm}, self.clock)

    def _room(self) -> int:
        full = not self._weather.calm and self._world.random.random() < 0.1
        return 0 if full else _ROOM

    def _goes_on(self) -> bool:
        return self.node is not None and self.node.control.scope(SCOPE).watermark != END

    def _since(self, known: int) -> Decision | None:
        assert self.node is not None
        committed = self.node.room.newest.scope(SCOPE).committed
        return self.node.records.decision(SCOPE, committed) if committed > known else None


class Stream(Simulation):
    """One seed of a stream."""

    recovery = 90.0
    farewells = 0.0
    expected = (*Simulation.expected, SessionLost, StoreUnavailable)

    def __init__(self, seed: int, record: bool) -> None:
        self.storage = MemoryStorage()
        super().__init__(seed, record)
        random = self.world.random
        self.sources = springs(self.world, self.weather, random.uniform(5.0, _LONGEST))
        self.most = random.choice((4, 10, 50))
        self.oracle = Oracle(self.world, self.storage, self.sources)

    def is_alive(self, session: str) -> bool:
        return self.backend.is_alive(session)

    def inside(self) -> AbstractContextManager[object]:
        numbers = count()
        secrets = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}")
        quiet = SimpleNamespace(warning=lambda *_: None)
        return patch.multiple(epoch_files, secrets=secrets, _log=quiet)

    def _fleet(self) -> Fleet:
        return Fleet(self.world, self.weather, self.backend, partial(Reader, self))

    def _referee(self) -> Referee:
        keys, leaders = Keys(CONFIG.name), self.fleet.leaders
        referee = StreamReferee(self.world, self.backend, keys, CONFIG.vnodes, leaders, self.weather.happened)
        referee.oracle = lambda: self.oracle
        referee.history.counts = False
        return referee

    def _missing(self) -> str | None:
        return self.oracle.missing()

    def result(self, violation: Violation | None) -> Run:
        run = super().result(violation)
        return replace(run, rows=self.oracle.rows, ended=self.oracle.ended is not None)
