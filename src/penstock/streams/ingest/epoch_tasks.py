"""The Spark job of an epoch: tasks build parts, poll them, write the rows, and hand back files and states.

Rows and states come back in the result of the same job. Whatever attempt of a task wins brings both, so that
a retry or a speculative attempt cannot tear them apart; what other attempts wrote is never referred to.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadState, PenstockError, SourceFailed, TransientError
from penstock.shuffle.frontier import Frontier, reduce
from penstock.shuffle.runs import RunFile
from penstock.shuffle.slices import SliceLimits
from penstock.sources.base import Part, StatefulSource
from penstock.sources.hosting import Host, Key, close
from penstock.sources.parts import PartName
from penstock.sources.state import decode, encode
from penstock.spark.faults import carried
from penstock.spark.faults import decode as decode_fault
from penstock.spark.flow import Batches
from penstock.spark.session import cancel_tag, is_local, job_tag, parallelism
from penstock.storage import FileRecord, Storage
from penstock.streams.intake import Intake
from penstock.streams.journal_task import JournalTask, Sliced, journal_tasks
from penstock.streams.model import PartState, RowFile
from penstock.streams.shuffling import NOTHING, ShuffleWork
from penstock.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.streams.stream import SourceSpec

HOST: Host[Part] = Host()
"""The parts that are suspended in this process."""
_CHUNK = 1 << 16
_LEAST = 1 << 10
_FIRST = 1 << 10
_CANCEL_EVERY = 0.2

_ANSWER = pa.schema(
    [
        ("kind", pa.string()),
        ("source", pa.string()),
        ("part", pa.string()),
        ("state", pa.string()),
        ("finished", pa.bool_()),
        ("late", pa.bool_()),
        ("newest", pa.int64()),
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one instance may poll in one epoch."""

    rows: int
    bytes: int
    seconds: float
    sizes: Mapping[str, float] = field(default_factory=dict)
    """By source, how many bytes its rows took in memory, as far as that is known."""

    def share(self, tasks: int) -> Limits:
        """What one of several tasks may poll."""
        return replace(self, rows=max(1, self.rows // tasks), bytes=max(1, self.bytes // tasks))


@dataclass(frozen=True, slots=True)
class Polled:
    """What a job brought back."""

    states: Mapping[PartName, PartState]
    files: tuple[RowFile, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Late rows that were only counted, by source."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """How many bytes a row took in memory, by source."""
    runs: tuple[RunFile, ...] = ()
    """What slices wrote for the queues of journals."""
    progress: Frontier = field(default_factory=Frontier)
    """How far they have come."""
    read: int = 0
    """How many bytes of journals were read."""
    unasked: frozenset[PartName] = frozenset()
    """Those that had not their turn, or could not be read to their end."""
    unfinished: Mapping[PartName, int] = field(default_factory=dict)
    """Where lines begin at the end of journals whose ends are not there yet."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A part that a task works on, and from where."""

    name: PartName
    state: str | None


class Ingestion:
    """Runs the jobs of one instance of a stream, one at a time."""

    def __init__(
        self, spark: SparkSession, stream: str, sources: Mapping[str, SourceSpec], storage: Storage
    ) -> None:
        self._spark = spark
        self._stream = stream
        self._sources = sources
        self._storage = storage
        self._codec = None if storage.local and is_local(spark) else "lz4"
        self._tag = f"penstock-{stream}-ingest"
        self._running = threading.Event()

    def poll(
        self,
        prefix: str,
        parts: Mapping[PartName, PartState],
        limits: Limits,
        thresholds: Mapping[str, int],
        asked: Mapping[PartName, int],
        shuffle: ShuffleWork = NOTHING,
    ) -> Polled:
        """Poll parts that are not finished; the rows go to files whose paths begin with ``prefix``.

        In the same job, ``shuffle`` is done for journals.

        ``asked`` says in which epoch a part was asked last. Those that have waited longest come first: where
        a limit is reached before all were asked, it is not always the same that go without.
        """
        most = parallelism(self._spark)
        shares = tuple(_by_waiting(share, asked) for share in self._shares(parts))
        journals = tuple(journal_tasks(shuffle, most))
        tasks = max(len(shares), len(journals))
        task = _Poll(
            self._stream,
            self._sources,
            (*shares, *((),) * (tasks - len(shares))),
            limits.share(tasks),
            thresholds,
            self._storage,
            prefix,
            self._codec,
            journals,
        )
        return self._run(task, tasks)

    def collect(self, parts: Mapping[PartName, PartState]) -> Polled:
        """Ask parts that move elsewhere for their states, and shut them down here."""
        shares = self._shares(parts)
        return self._run(_Collect(self._stream, self._sources, shares), len(shares))

    def warm_up(self) -> None:
        """Let Spark start its Python workers, so that the first epoch need not wait for them."""
        count = parallelism(self._spark)
        self._run(_Collect(self._stream, self._sources, ((),) * count), count)

    def cancel(self) -> None:
        """End the job that runs, if one does, and wait until it has ended. From any thread."""
        while self._running.is_set():
            with suppress(Exception):
                cancel_tag(self._spark, self._tag)
            time.sleep(_CANCEL_EVERY)

    def _shares(self, parts: Mapping[PartName, PartState]) -> tuple[tuple[Ticket, ...], ...]:
        """The parts in as many heaps as tasks can run at once.

        A part stays in its heap while the parts stay.
        """
        tickets = [Ticket(name, parts[name].state) for name in sorted(parts)]
        count = max(1, min(len(tickets), parallelism(self._spark)))
        return tuple(tuple(tickets[n::count]) for n in range(count))

    def _run(self, task: Any, tasks: int) -> Polled:
        self._running.set()
        try:
            with job_tag(self._spark, self._tag):
                seeds = self._spark.range(0, tasks, 1, tasks)
                return _gathered(seeds.mapInArrow(task, spark_schema(_ANSWER)).collect())
        except PenstockError:
            raise
        except Exception as error:
            raise decode_fault(error) from error
        finally:
            self._running.clear()


@dataclass(frozen=True, slots=True)
class _Poll:
    """A task that polls its share of the parts."""

    stream: str
    sources: Mapping[str, SourceSpec]
    shares: tuple[tuple[Ticket, ...], ...]
    limits: Limits
    thresholds: Mapping[str, int]
    storage: Storage
    prefix: str
    codec: str | None
    journals: tuple[JournalTask, ...] = ()

    def __call__(self, seeds: Batches) -> Batches:
        with carried("ingestion"):
            for seed in seeds:
                for number in seed.column(0).to_pylist():
                    yield self._run(number)

    def _run(self, number: int) -> pa.RecordBatch:
        from pyspark import TaskContext

        HOST.sweep()
        HOST.make_room(len(self.shares[number]))
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        intake = Intake(self.storage, f"{self.prefix}-{number}-{attempt}", self.codec, self.thresholds)
        journals = self.journals[number] if number < len(self.journals) else None
        with _Desk(self.stream, self.sources) as desk:
            with intake:
                self._fill(desk, intake, self.shares[number])
                states = desk.snapshots()
                if journals is not None:
                    journals.show(self.sources, self.storage, intake)
            desk.suspend(states)
        if journals is None:
            return _answer(states, intake)
        # Documents take their room twice: in runs, and in the queue before these are deleted.
        limits = SliceLimits(max(1, self.limits.bytes // 2), self.limits.rows, self.limits.seconds)
        sliced = journals.read(self.sources, self.storage, limits, f"{number}-{attempt}", self.codec)
        return _answer({**states, **sliced.states}, intake, sliced)

    def _fill(self, desk: _Desk, intake: Intake, tickets: Sequence[Ticket]) -> None:
        """Go round the parts until all have nothing more, or the limits are reached.

        A part is opened when its turn comes, and those whose turn does not come stay as they are: thousands
        of them need not be open at once.
        """
        deadline = time.monotonic() + self.limits.seconds
        waiting, measure = deque(tickets), _Measure(self.limits)
        while waiting and intake.rows < self.limits.rows and intake.bytes < self.limits.bytes:
            ticket = waiting.popleft()
            name = ticket.name
            desk.open(ticket)
            brought = desk.poll(name, measure.rows(name.source, intake, len(waiting) + 1))
            before = intake.bytes
            came = intake.take(self.sources[name.source], name.part, brought)
            measure.learn(name.source, came, intake.bytes - before)
            if desk.is_finished(name):
                desk.finish(name)
            elif came:
                waiting.append(ticket)
            if time.monotonic() >= deadline:
                return


class _Measure:
    """How many rows a poll is asked for.

    Rows can be of any size, and how large they were is known only afterwards. So a source that nobody has
    read yet is asked for few, and then for as many as still fit if they are like those of its last poll.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sizes = dict(limits.sizes)

    def rows(self, source: str, taken: Intake, waiting: int) -> int:
        """The rows for the next of ``waiting`` parts."""
        left = self._limits.rows - taken.rows
        fair = min(left, _CHUNK, max(_LEAST, left // waiting))
        size = self._sizes.get(source)
        fitting = _FIRST if size is None else int((self._limits.bytes - taken.bytes) / max(1.0, size))
        return max(1, min(fair, fitting))

    def learn(self, source: str, rows: int, size: int) -> None:
        if rows:
            self._sizes[source] = size / rows


@dataclass(frozen=True, slots=True)
class _Collect:
    """A task that shuts parts down for their move."""

    stream: str
    sources: Mapping[str, SourceSpec]
    shares: tuple[tuple[Ticket, ...], ...]

    def __call__(self, seeds: Batches) -> Batches:
        with carried("the move of parts"):
            for seed in seeds:
                for number in seed.column(0).to_pylist():
                    with _Desk(self.stream, self.sources) as desk:
                        for ticket in self.shares[number]:
                            desk.open(ticket)
                        states = desk.collected()
                    yield _answer(states)


class _Desk:
    """The open parts of a task. What is not suspended when the block ends is closed."""

    def __init__(self, stream: str, sources: Mapping[str, SourceSpec]) -> None:
        self._stream = stream
        self._sources = sources
        self.parts: dict[PartName, Part] = {}
        self._finished: dict[PartName, PartState] = {}

    def __enter__(self) -> _Desk:
        return self

    def __exit__(self, *_: object) -> None:
        for name, part in self.parts.items():
            close(part, self._key(name))
        self.parts.clear()

    def open(self, ticket: Ticket) -> None:
        """Open a part that is not open yet."""
        name, state = ticket.name, ticket.state
        if name in self.parts:
            return
        part = HOST.take(self._key(name), state)
        if part is None:
            value = None if state is None else decode(str(name), state)
            source = self._sources[name.source].source
            assert isinstance(source, StatefulSource)
            with _asking(name, "build_part"):
                part = source.build_part(name.part, value)
        if not isinstance(part, Part):
            raise SourceFailed(
                f"source {name.source}: build_part({name.part!r}) returned {part!r}, not a Part"
            )
        self.parts[name] = part

    def poll(self, name: PartName, limit: int) -> Any:
        with _asking(name, "poll"):
            brought = self.parts[name].poll(limit)
        if brought is not None and hasattr(brought, "__len__"):
            count = brought.num_rows if hasattr(brought, "num_rows") else len(brought)
            if count > limit:
                raise SourceFailed(
                    f"source {name.source}, part {name.part!r}: poll({limit}) returned {count} rows",
                    hint="at most `limit` rows may come at a time; keep the rest for the next poll",
                )
        return brought

    def is_finished(self, name: PartName) -> bool:
        with _asking(name, "is_finished"):
            return bool(self.parts[name].is_finished())

    def finish(self, name: PartName) -> None:
        """Take the last state of a part, and let go of it."""
        part = self.parts[name]
        self._finished[name] = self._state(name, "snapshot", part.snapshot)
        close(self.parts.pop(name), self._key(name))

    def snapshots(self) -> dict[PartName, PartState]:
        """The states of all parts that were opened."""
        states = {name: self._state(name, "snapshot", part.snapshot) for name, part in self.parts.items()}
        return states | self._finished

    def collected(self) -> dict[PartName, PartState]:
        return {name: self._state(name, "collect", part.collect) for name, part in self.parts.items()}

    def _state(self, name: PartName, method: str, ask: Any) -> PartState:
        finished = self.is_finished(name)
        with _asking(name, method):
            value = ask()
        return PartState(encode(str(name), value), finished)

    def suspend(self, states: Mapping[PartName, PartState]) -> None:
        """Set aside those that go on."""
        going_on = [name for name in self.parts if not states[name].finished]
        for name in going_on:
            with _asking(name, "suspend"):
                self.parts[name].suspend()
        for name in going_on:
            if (state := states[name].state) is not None:
                HOST.keep(self._key(name), state, self.parts.pop(name))

    def _key(self, name: PartName) -> Key:
        return self._stream, name.source, name.part


@contextmanager
def _asking(name: PartName, method: str) -> Iterator[None]:
    """Errors of a source say which part and method they came from; what may pass stays transient."""
    try:
        yield
    except BadState:
        raise
    except Exception as error:
        passing = isinstance(error, TransientError | ConnectionError | TimeoutError)
        kind = TransientError if passing else SourceFailed
        what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, PenstockError) else None
        raise kind(
            f"source {name.source}, part {name.part!r}: {method} failed: {what}",
            left="the epoch was not committed, and is tried again",
            hint=hint,
        ) from error


def _answer(
    states: Mapping[PartName, PartState], intake: Intake | None = None, sliced: Sliced | None = None
) -> pa.RecordBatch:
    """What a task hands back: a row with all states, one for each file, and for each count of rows."""
    # Thousands of rows would take longer on their way than the states take to be made.
    packed = json.dumps([[n.source, n.part, each.state, each.finished] for n, each in states.items()])
    rows: list[dict[str, Any]] = [{"kind": "states", "state": packed}]
    if intake is not None:
        rows += [
            {"kind": "file", "source": f.source, "late": f.late, "newest": f.newest, **f.record.to_json()}
            for f in intake.written
        ]
        rows += [{"kind": "late", "source": name, "rows": count} for name, count in intake.dropped.items()]
        rows += [
            {"kind": "size", "source": name, "rows": count, "bytes": size}
            for name, (count, size) in intake.taken.items()
        ]
    if sliced is not None:
        rows += [{"kind": "run", "state": json.dumps(file.to_json())} for file in sliced.files]
        rows += [
            {"kind": "line", "source": n.source, "part": n.part, "bytes": offset}
            for n, offset in sliced.unfinished.items()
        ]
        unasked = json.dumps([[name.source, name.part] for name in sliced.unasked])
        rows.append({"kind": "unasked", "state": unasked})
        progress = json.dumps(sliced.progress.to_json())
        rows.append({"kind": "progress", "state": progress, "bytes": sliced.read})
    return pa.RecordBatch.from_pylist(rows, schema=_ANSWER)


def _gathered(answers: Sequence[Row]) -> Polled:
    states, files, dropped = {}, [], dict[str, int]()
    taken: dict[str, tuple[int, int]] = {}
    runs, progress, read = list[RunFile](), Frontier(), 0
    unfinished: dict[PartName, int] = {}
    unasked: set[PartName] = set()
    for row in answers:
        if row["kind"] == "states":
            for source, part, state, finished in json.loads(row["state"]):
                states[PartName(source, part)] = PartState(state, finished)
        elif row["kind"] == "file":
            record = FileRecord(row["path"], row["rows"], row["bytes"], row["sha256"])
            files.append(RowFile(row["source"], record, row["late"], row["newest"]))
        elif row["kind"] == "late":
            dropped[row["source"]] = dropped.get(row["source"], 0) + row["rows"]
        elif row["kind"] == "line":
            unfinished[PartName(row["source"], row["part"])] = row["bytes"]
        elif row["kind"] == "run":
            runs.append(RunFile.from_json(json.loads(row["state"])))
        elif row["kind"] == "progress":
            progress = reduce(progress, Frontier.from_json(json.loads(row["state"])))
            read += row["bytes"]
        elif row["kind"] == "unasked":
            unasked.update(PartName(source, part) for source, part in json.loads(row["state"]))
        else:
            rows, size = taken.get(row["source"], (0, 0))
            taken[row["source"]] = rows + row["rows"], size + row["bytes"]
    sizes = {source: size / rows for source, (rows, size) in taken.items()}
    return Polled(
        states,
        tuple(files),
        dropped,
        sizes,
        tuple(runs),
        progress,
        read,
        frozenset(unasked),
        unfinished,
    )


def _by_waiting(share: tuple[Ticket, ...], asked: Mapping[PartName, int]) -> tuple[Ticket, ...]:
    """Those that were never asked first, then those that were asked longest ago."""
    return tuple(sorted(share, key=lambda ticket: asked.get(ticket.name, -1)))
