"""Our side of the comparison."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.lab import Lab, Place
from bench.streams.load import Load
from bench.streams.sides import Pauses, Rescaling, Steady
from bench.streams.trace import Commit, Trace, expect_all, newest, polls
from bench.streams.waiting import wait_until
from penstock.config import ClusterConfig, Config, SparkConfig, StreamConfig

if TYPE_CHECKING:
    from penstock.store import Store
    from penstock.streams import registry
    from penstock.streams.api.stream import Stream
    from penstock.streams.views.events import StreamEvent

_BATCH = re.compile(r"/(\d{16})-\d{16}-[0-9a-f]{8}/[^/]*$")
_CLUSTER = ClusterConfig(lease_ttl=2.0, renew_every=0.5, member_ttl=3.0)
_POLL = 1 << 16
# Measured: epochs of 1 and 2 million rows are slower.
_ROWS_AT_ONCE = 4_000_000


@dataclass(slots=True)
class Told:
    """What instances told, and when that was heard."""

    events: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, event: StreamEvent) -> None:
        self.events.append((time.monotonic(), event.kind, dict(event.values)))

    def times(self, kind: str) -> list[float]:
        return [at for at, told, _ in list(self.events) if told == kind]

    def batches(self) -> dict[int, float]:
        """When each batch of the output was committed."""
        return {values["batch"]: at for at, kind, values in list(self.events) if kind == "batch"}


@dataclass(frozen=True, slots=True)
class Ours:
    lab: Lab
    name: str = "Penstock"

    def throughput(self, rows: int, interval: float) -> float:
        from bench.streams.penstock_job import counting

        with self.lab.place("streams") as place:
            load = Load(str(place.path), rows, _POLL, interval, 2)
            settings = StreamConfig(epoch_every=0.1, list_every=0.5, max_rows=_ROWS_AT_ONCE)
            with running(self.lab, place, counting(load), settings) as run:
                run.begin()
                run.thread.join()
                commits = run.commits()
                expect_all(newest(commit.counts for commit in commits), load)
                return max(commit.at for commit in commits) - run.began

    def latency(self, steady: Steady) -> list[float]:
        from bench.streams.penstock_job import counting

        with self.lab.place("streams") as place:
            load = steady.load(place.path, 2)
            settings = StreamConfig(epoch_every=steady.interval, list_every=0.5)
            with running(self.lab, place, counting(load), settings) as run:
                run.begin()
                wait_until(lambda: len(run.told.batches()) > 1, "the first results")
                time.sleep(steady.seconds)
                run.instance.stop()
                run.thread.join()
                trace = Trace(polls(load.folder("polls")), run.commits())
                trace.check(load)
                return trace.latencies()

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        from bench.streams.processes import rescaled

        with self.lab.place("streams") as place:
            load = rescaling.load(place.path, rescaling.workers[0])
            settings = StreamConfig(epoch_every=rescaling.interval, list_every=0.5)
            config = configured(place, settings, SparkConfig(master="local[2]", memory="768m"))
            return rescaled(load, config, rescaling)


@dataclass(slots=True)
class Run:
    """A stream in a thread of this process, on the lab's session. It waits until `begin`."""

    place: Place
    store: Store
    record: registry.StreamRecord
    instance: Any
    thread: threading.Thread
    told: Told
    began: float = 0.0

    def begin(self) -> None:
        """Let it poll, once its query is there: neither side's start counts."""
        from penstock.streams import registry

        # A query begins with a batch, also where there are no rows yet.
        wait_until(lambda: bool(self.told.batches()), "the output to start")
        self.began = time.monotonic()
        registry.wish(self.store, self.record.name, wanted="running")

    def commits(self) -> list[Commit]:
        return commits(self.store, self.place, self.record, self.told.batches())


def configured(place: Place, settings: StreamConfig, spark: SparkConfig) -> Config:
    return Config(place.store, str(place.storage), spark=spark, cluster=_CLUSTER, stream=settings)


def commits(
    store: Store, place: Place, record: registry.StreamRecord, batches: dict[int, float]
) -> list[Commit]:
    """What each batch of the output brought, and when."""
    import pyarrow.parquet as pq

    from penstock.sinks import StreamTable
    from penstock.storage import Storage

    table = StreamTable(store, Storage(place.storage), record.name, record.id, "counts")
    found: dict[int, dict[int, int]] = {}
    for path in table.paths():
        match = _BATCH.search(path)
        assert match is not None, path
        rows = pq.read_table(path)
        counts = dict(zip(rows["key"].to_pylist(), rows["count"].to_pylist(), strict=True))
        found.setdefault(int(match[1]), {}).update(counts)
    return [Commit(batches[batch], counts) for batch, counts in sorted(found.items())]


@contextmanager
def running(lab: Lab, place: Place, stream: Stream, settings: StreamConfig) -> Iterator[Run]:
    from pyspark import cloudpickle

    import bench.streams
    from penstock.store import open_store
    from penstock.streams import registry
    from penstock.streams.instance import StreamInstance
    from penstock.streams.place import Place as StreamPlace

    cloudpickle.register_pickle_by_value(bench.streams)  # type: ignore[no-untyped-call]
    lab.wake()
    config, told = configured(place, settings, SparkConfig()), Told()
    with open_store(config.store) as store:
        record = registry.open_stream(store, stream.name, stream.describe())
        registry.wish(store, stream.name, wanted="suspended")
        where = StreamPlace(config.store, config.storage, stream.name, record.id)
        instance = StreamInstance(stream, where, config, "bench", lab.spark, told)
        thread = threading.Thread(target=_kept(instance.run), daemon=True)
        thread.start()
        try:
            yield Run(place, store, record, instance, thread, told)
        finally:
            instance.stop()
            thread.join()
    os.sync()


def _kept(run: Callable[[], object]) -> Callable[[], None]:
    def kept() -> None:
        run()

    return kept
