"""Real instance processes of a stream, and the books of every row that it published."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.config import ClusterConfig, Config, SparkConfig, StreamConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.model import Control
from penstock.project import load_stream
from penstock.sinks import StreamTable
from penstock.sources.state import decode
from penstock.storage import Storage
from penstock.store import Store, open_store
from penstock.streams import registry
from penstock.streams.ingest.part_lists import PartLists
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.model import END, SCOPE, PartState, Standing
from penstock.streams.outputs.claims import OutputClaims
from penstock.workers.children import Crew
from penstock.workers.stream_instances import StreamChild
from penstock.workers.stream_job import StreamJob

JOBS = Path(__file__).with_name("jobs")
CLUSTER = ClusterConfig(lease_ttl=2.0, renew_every=0.5, member_ttl=3.0, barrier_timeout=60.0)
STREAM = StreamConfig(epoch_every=0.1, list_every=0.5)
SPARK = SparkConfig(master="local[2]", memory="512m", fast_start=True)


class Fleet:
    """Instances of the stream in ``job``, each a process with its own Spark."""

    def __init__(
        self,
        job: str,
        store: str,
        storage: Path,
        settings: StreamConfig = STREAM,
        spark: SparkConfig = SPARK,
    ) -> None:
        self.config = Config(store=store, storage=str(storage), spark=spark, cluster=CLUSTER, stream=settings)
        self.project = load_stream(str(JOBS / f"{job}.py"))
        self.store: Store = open_store(store)
        self.storage = Storage(storage)
        name = self.project.stream.name
        self.record = registry.open_stream(self.store, name, self.project.stream.describe())
        self.layout = self.record.layout
        self.log = EpochLog(self.store, self.storage, self.layout)
        self.room = Room(self.store, Keys(self.layout.cluster))
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.crew: Crew[StreamChild] = Crew(
            lambda child, event: self.events.append((child.name, event)), lambda _: None
        )
        self._number = 0

    @property
    def control(self) -> Control:
        return self.room.read()

    @property
    def committed(self) -> int:
        return self.control.scope(SCOPE).committed

    @property
    def ended(self) -> bool:
        """Whether all rows are in, and every output has taken everything in."""
        claims = OutputClaims(self.store, self.layout).all()
        outputs = self.project.stream.outputs
        done = all(name in claims and claims[name].finished for name in outputs)
        return self.control.scope(SCOPE).watermark == END and done

    @property
    def alive(self) -> list[StreamChild]:
        return [child for child in self.crew.children if child.code is None]

    def start(self, failpoints: str = "") -> StreamChild:
        """One more instance."""
        self._number += 1
        job = StreamJob(self.project.source, self.record.id, f"i{self._number}", self.config)
        with _environment(PENSTOCK_FAILPOINTS=failpoints):
            return self.crew.add(StreamChild(job))

    def seated(self, child: StreamChild) -> bool:
        """Whether the instance owns its share."""
        return self.control.assignment.seat(child.name) is not None

    def leader(self) -> StreamChild | None:
        member = self.control.lease.member
        return next((child for child in self.alive if child.name == member), None)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [event for _, event in list(self.events) if event["kind"] == kind]

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        """Wait for a condition; the value it became true with."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.05)
        problems = "\n".join(event["text"] for event in self.told("problem")[-5:])
        raise AssertionError(f"did not happen within {seconds} s: {what}\n{problems}")

    def more_epochs(self, count: int) -> None:
        """Wait until so many more epochs are committed."""
        goal = self.committed + count
        self.until(lambda: self.committed >= goal or self.ended, f"{count} more epochs")

    def states(self) -> dict[str, PartState]:
        """Where each part of all sources stands, as of the last committed epoch."""
        committed = self.committed
        decision = Records(self.store, Keys(self.layout.cluster)).decision(SCOPE, committed)
        standings = [Standing.decode(text) for text in decision.frontiers.values()] if decision else []
        lists = PartLists.read(self.storage, standings, {})
        return {
            name.part: known
            for name, known in (*lists.states.items(), *lists.finished_parts.parts(self.storage))
        }

    def numbers(self) -> dict[str, int]:
        """How many rows of each part are committed, where that is what its state says."""
        return {part: decode(part, known.state) for part, known in self.states().items() if known.state}

    def readers(self, after: int) -> set[str]:
        """Who brought rows after an epoch."""
        return {
            brought.member for epoch in self.log.entries(after) for brought in epoch.brought if brought.rows
        }

    def close(self) -> None:
        for child in self.alive:
            os.kill(child.pid, signal.SIGCONT)
            child.kill()
        self.crew.close()
        self.store.close()

    # what was published

    def queue(self) -> pa.Table:
        """Every committed row of the queue, in the order of epochs."""
        batches = []
        for epoch in self.log.entries(0):
            for brought in epoch.brought:
                for file in brought.files(self.storage):
                    with self.storage.open(file.record.path) as opened:
                        batches.append(pa.ipc.open_file(opened).read_all())
        return pa.concat_tables(batches)

    def table(self, output: str) -> StreamTable:
        return StreamTable(self.store, self.storage, self.layout.stream, self.layout.id, output)

    def rows(self, output: str) -> pa.Table:
        """All rows that the sink of ``output`` published, also those that later ones replace."""
        return pa.concat_tables([pq.read_table(path) for path in self.table(output).paths()])


def misfits(rows: pa.Table, parts: int, count: int) -> str:
    """What is wrong with numbered rows that should be there once each; nothing if all is right."""
    return uneven_misfits(rows, {str(part): count for part in range(parts)})


def uneven_misfits(rows: pa.Table, counts: Mapping[str, int]) -> str:
    """The same where parts have different numbers of rows."""
    found = Counter(zip(rows["part"].to_pylist(), rows["number"].to_pylist(), strict=True))
    wanted = {(part, number) for part, count in counts.items() for number in range(count)}
    twice = [row for row, times in found.items() if times > 1]
    lost, strange = wanted - found.keys(), found.keys() - wanted
    told = {"twice": twice, "lost": lost, "strange": strange}
    return "; ".join(f"{len(rows)} {what}, such as {min(rows)}" for what, rows in told.items() if rows)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if value})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def with_settings(**changes: Any) -> StreamConfig:
    return replace(STREAM, **changes)
