"""A stream without Spark: sources in memory, what reads them, and workers that a test leads by hand."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.control.cluster.participant import EpochWork
from penstock.control.cluster.rules import barrier as rules
from penstock.control.cluster.rules.assignment import successor
from penstock.control.cluster.rules.barrier import Alignment
from penstock.control.cluster.rules.model import (
    Barrier,
    BarrierAck,
    BarrierKind,
    Decision,
    Outcome,
    Scope,
    Seat,
    Snapshot,
)
from penstock.sources.base import Part, PartName, StatefulSource
from penstock.sources.state import State, decode, encode
from penstock.storage import FileRecord, Storage
from penstock.streams.api.stream import SourceSpec, Timestamps
from penstock.streams.ingest.jobs.epoch_job import Ingestion
from penstock.streams.ingest.jobs.epoch_tasks import PollLimits
from penstock.streams.ingest.jobs.task_results import Polled
from penstock.streams.ingest.journal_shuffle import NOTHING, ShuffleWork
from penstock.streams.ingest.pacing import Allowance
from penstock.streams.ingest.part_listing import Run
from penstock.streams.ingest.worker import StreamWorker
from penstock.streams.layout import Layout
from penstock.streams.model import Brought, PartState, RowFile
from penstock.types.tables import Table

LAYOUT = Layout("ticks", "0001")
LIMITS = PollLimits(1000, 1 << 20, 1.0)
ROOMY = 1 << 30
ROW_BYTES = 10


class Ticks(Table):
    n: int


class MemoryStorage(Storage):
    """Small files in this process, and which were written."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        return sorted((path, len(data)) for path, data in self.files.items() if path.startswith(f"{prefix}/"))

    def delete(self, prefix: str) -> None:
        self.files.pop(prefix, None)

    def remove_empty(self, prefix: str) -> None:
        """There are no folders."""

    def copy(self, path: str, to: str) -> None:
        self.files[to] = self.read(path)

    def written(self) -> Counter[str]:
        """How many files there are of each kind."""
        return Counter(path.removeprefix(f"{LAYOUT.root}/").partition("/")[0] for path in self.files)


class MemorySource(StatefulSource):
    """A source whose parts can be read right here."""

    table: type[Table] = Ticks

    def build_part(self, part: str, state: State) -> Part:
        raise NotImplementedError

    def read(self, part: str, begin: int, limit: int) -> tuple[Sequence[int], bool]:
        """The event times of the rows from ``begin`` on, and whether the part is finished after them."""
        raise NotImplementedError


class Scripted(MemorySource):
    """A source that holds what the test says: by part the event times of its rows."""

    def __init__(self, **parts: Sequence[int]) -> None:
        self.rows = {name: list(times) for name, times in parts.items()}
        self.endless: set[str] = set()
        self.hidden: set[str] = set()
        self.looks = 0
        self.on_look: Callable[[], object] = lambda: None

    def list_parts(self) -> Iterable[str]:
        self.looks += 1
        self.on_look()
        return [name for name in self.rows if name not in self.hidden]

    def read(self, part: str, begin: int, limit: int) -> tuple[Sequence[int], bool]:
        times = self.rows[part][begin : begin + limit]
        return times, part not in self.endless and begin + len(times) == len(self.rows[part])


@dataclass(frozen=True, slots=True)
class Poll:
    """One call of `MemoryIngestion.poll`."""

    parts: Mapping[PartName, PartState]
    limits: PollLimits
    thresholds: Mapping[str, int]
    asked: Mapping[PartName, int]


class MemoryIngestion(Ingestion):
    """Reads the parts of memory sources. A file of rows holds pairs of part and number, as JSON.

    Parts whose turn does not come before the limit is reached are not asked, and get no state.
    """

    def __init__(self, sources: Mapping[str, SourceSpec], storage: Storage) -> None:
        self._sources = sources
        self._storage = storage
        self.polls: list[Poll] = []
        self.collected: list[frozenset[PartName]] = []
        self.cancelled = 0
        self.during: Callable[[], object] = lambda: None

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
        self.polls.append(Poll(parts, limits, thresholds, dict(asked)))
        self.during()
        states: dict[PartName, PartState] = {}
        newest: dict[PartName, int] = {}
        rows: dict[tuple[str, bool], list[tuple[str, int, int]]] = {}
        order = sorted(parts, key=lambda name: (asked.get(name, -1), name))
        left, waiting = limits.rows, deque((name, parts[name]) for name in order)
        while waiting and left > 0:
            name, known = waiting.popleft()
            begin = offset(name, known)
            times, finished = self._source(name).read(name.part, begin, left)
            left -= len(times)
            for number, time in enumerate(times, begin):
                late = time < thresholds.get(name.source, time)
                rows.setdefault((name.source, late), []).append((name.part, number, time))
            if times:
                newest[name] = max(times)
            states[name] = PartState(encode(str(name), begin + len(times)), finished)
        files = tuple(self._file(prefix, *key, found) for key, found in rows.items())
        return Polled(states, files, newest)

    def collect(self, parts: Mapping[PartName, PartState], within: float | None = None) -> Polled:
        self.collected.append(frozenset(parts))
        self.during()
        return Polled(
            {name: PartState(encode(str(name), offset(name, known))) for name, known in parts.items()}
        )

    def cancel(self) -> None:
        self.cancelled += 1

    def _source(self, name: PartName) -> MemorySource:
        source = self._sources[name.source].source
        assert isinstance(source, MemorySource)
        return source

    def _file(self, prefix: str, source: str, late: bool, rows: list[tuple[str, int, int]]) -> RowFile:
        path = f"{prefix}-{source}{'-late' if late else ''}.json"
        data = json.dumps([(part, number) for part, number, _ in rows]).encode()
        self._storage.write(path, data)
        record = FileRecord(path, len(rows), ROW_BYTES * len(rows), hashlib.sha256(data).hexdigest())
        return RowFile(source, record, late, None if late else max(time for *_, time in rows))


def offset(name: PartName, known: PartState) -> int:
    """How many rows of a part were read, as its state says."""
    return int(decode(str(name), known.state)) if known.state is not None else 0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Crew:
    """Workers of some members, and a leader whose every move the test makes itself."""

    def __init__(
        self,
        *members: str,
        list_every: float = 0.0,
        timestamps: Timestamps | None = None,
        **sources: Scripted,
    ) -> None:
        self.sources = {name: SourceSpec(name, source, timestamps) for name, source in sources.items()}
        self.storage = MemoryStorage()
        self.list_every = list_every
        self.clock = Clock()
        self.room = ROOMY
        self.told: list[str] = []
        """What workers have said of sources."""
        self.run: Run = lambda work: work()
        """How workers let a source be listed."""
        self.workers: dict[str, StreamWorker] = {}
        self.ingestions: dict[str, MemoryIngestion] = {}
        self.snapshot = Snapshot()
        self.scope = Scope()
        self.decision: Decision | None = None
        """The last committed one."""
        self.chain: list[Decision] = []
        """All committed ones."""
        self._versions: dict[str, int] = {}
        self._sessions = 0
        self.seat(*members)

    # what happens to members

    def start(self, member: str) -> StreamWorker:
        """A process that knows nothing begins to work for ``member``."""
        ingestion = MemoryIngestion(self.sources, self.storage)
        worker = StreamWorker(
            member,
            self.sources,
            ingestion,
            self.storage,
            LAYOUT,
            Allowance(LIMITS, lambda: self.room),
            self.list_every,
            self._since,
            self.clock,
            self.told.append,
            self.run,
        )
        self.workers[member], self.ingestions[member] = worker, ingestion
        self._versions[member] = 0
        return worker

    def seat(self, *members: str) -> None:
        """Change the owners, without a word to the old ones."""
        for member in members:
            if member not in self.workers:
                self.start(member)
        self._sessions += 1
        seats = tuple(Seat(member, f"{member}-{self._sessions}") for member in sorted(members))
        self.snapshot = successor(self.snapshot, seats, 16, 1)

    def die(self, member: str) -> None:
        del self.workers[member], self.ingestions[member]

    def move(self, *members: str) -> Decision:
        """Drain those who are alive, and change the owners."""
        drained = self.drain(*members)
        self.seat(*members)
        return drained

    # epochs

    def epoch(self) -> Decision:
        """An epoch that is committed."""
        decision = self.end(self.announce())
        assert decision.outcome is Outcome.COMMIT, decision.reason
        return decision

    def epochs(self, count: int) -> None:
        for _ in range(count):
            self.epoch()

    def fail(self) -> Decision:
        """An epoch that all answer and that is given up."""
        return self.end(self.announce(), Outcome.ABORT)

    def drain(self, *members: str) -> Decision:
        target = tuple(Seat(member, "later") for member in sorted(members))
        alive = tuple(seat for seat in self.snapshot.seats if seat.member in self.workers)
        return self.end(self.announce(BarrierKind.DRAIN, alive, target))

    def announce(
        self,
        kind: BarrierKind = BarrierKind.EPOCH,
        required: tuple[Seat, ...] | None = None,
        target: tuple[Seat, ...] = (),
    ) -> Barrier:
        """Open a barrier, and tell workers what they own under it."""
        seats = self.snapshot.seats if required is None else required
        barrier = Barrier(self.scope.next, kind, self.snapshot.version, 1, seats, target=target)
        self.scope = Scope(self.scope.next + 1, barrier, self.scope.committed, self.scope.watermark)
        for member, worker in self.workers.items():
            if self._versions[member] != self.snapshot.version and kind is BarrierKind.EPOCH:
                worker.assigned(self.snapshot, self.decision)
                self._versions[member] = self.snapshot.version
        return barrier

    def end(self, barrier: Barrier, outcome: Outcome | None = None) -> Decision:
        """Ask all who are required and alive, and decide by what they say, or as the test wants it."""
        alignment = Alignment(barrier)
        for seat in barrier.required:
            if seat.member in self.workers:
                work = self.ask(seat.member, barrier)
                alignment = alignment.receive(self._ack(seat, barrier, work))
        if outcome is Outcome.ABORT or not alignment.aligned:
            decision = rules.abort(barrier, self.scope, alignment.refusal or "somebody is gone", alignment)
        else:
            decision = rules.commit(alignment, self.scope, self.decision)
        self._publish(barrier, decision)
        return decision

    def ask(self, member: str, barrier: Barrier) -> EpochWork:
        """A worker's answer; an error is a refusal."""
        try:
            return self.workers[member].prepare(barrier)
        except Exception as error:
            return EpochWork(refusal=f"{type(error).__name__}: {error}")

    def _ack(self, seat: Seat, barrier: Barrier, work: EpochWork) -> BarrierAck:
        return BarrierAck(
            seat.member,
            seat.session,
            barrier.epoch,
            barrier.assignment,
            work.states,
            work.frontier,
            work.files,
            work.watermark,
            work.refusal,
        )

    def _publish(self, barrier: Barrier, decision: Decision) -> None:
        committed = decision.outcome is Outcome.COMMIT
        if committed:
            self.decision = decision
            self.chain.append(decision)
        self.scope = Scope(
            self.scope.next, None, decision.epoch if committed else self.scope.committed, decision.watermark
        )
        for seat in barrier.required:
            if seat.member in self.workers:
                worker = self.workers[seat.member]
                (worker.committed if committed else worker.aborted)(barrier.epoch)

    def _since(self, known: int) -> Decision | None:
        return self.decision if self.decision is not None and self.decision.epoch > known else None

    # what came of it

    def brought(self, decision: Decision) -> dict[str, list[str]]:
        """The rows of an epoch as ``part:number`` by member; those that are late say so."""
        found: dict[str, list[str]] = {}
        for brought in map(Brought.decode, decision.files):
            for file in brought.files(self.storage):
                rows = json.loads(self.storage.read(file.record.path))
                late = "late " if file.late else ""
                found.setdefault(brought.member, []).extend(f"{late}{part}:{number}" for part, number in rows)
        return found

    def rows(self) -> list[str]:
        """All committed rows, in the order of epochs."""
        return [row for decision in self.chain for rows in self.brought(decision).values() for row in rows]

    def polled(self, member: str) -> list[set[str]]:
        """The parts that each poll of a member asked."""
        return [{str(name) for name in poll.parts} for poll in self.ingestions[member].polls]


def all_of(**parts: int) -> list[str]:
    """The names of that many rows of each part, sorted."""
    return sorted(f"{part}:{number}" for part, count in parts.items() for number in range(count))
