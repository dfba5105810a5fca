"""Our side: a stream over the journals, until all documents are in committed queue files."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.lab import Lab, Place
from bench.shuffle.data import Made, Payments
from penstock.config import ClusterConfig, Config, SparkConfig, StreamConfig
from penstock.streams.api.stream import Stream

if TYPE_CHECKING:
    from penstock.streams.log.epoch_log import EpochLog

QUEUES = 4
CLUSTER = ClusterConfig(lease_ttl=2.0, renew_every=0.5, member_ttl=3.0)
SETTINGS = StreamConfig(epoch_every=0.1, queue_bytes=64 << 30, retain_bytes=64 << 30)
_LOOK = 0.02


class Reading(Stream):
    """A stream that only reads: what queries cost is measured elsewhere."""

    def check(self) -> None:
        pass


def stream_over(made: Made) -> Stream:
    from penstock.sources import JournalSource

    stream = Reading("shuffle")
    stream.source("payments", JournalSource(made.root, Payments, key=["/customer"], queues=QUEUES))
    return stream


@dataclass(slots=True)
class Run:
    """A stream in a thread of this process, and its log. It waits until `begin`."""

    log: EpochLog
    instance: Any
    thread: threading.Thread

    def begin(self) -> float:
        """Let it read, once it has its seat: starting does not count on either side. When that was."""
        from penstock.control.cluster.documents.control_document import Room
        from penstock.control.cluster.documents.keys import Keys
        from penstock.streams import registry

        room = Room(self.log.store, Keys(self.log.layout.cluster))
        self.thread.start()
        while not room.read().assignment.seats:
            if not self.thread.is_alive():
                raise RuntimeError("the instance did not start")
            time.sleep(_LOOK)
        registry.wish(self.log.store, self.log.layout.stream, wanted="running")
        return time.perf_counter()

    def rows(self) -> int:
        return self.log.view().rows

    def wait(self, rows: int, patience: float = 600.0) -> None:
        deadline = time.monotonic() + patience
        while self.rows() < rows:
            if not self.thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(f"{self.rows():,} of {rows:,} documents came out")
            time.sleep(_LOOK)


def open_run(place: Place, stream: Stream, settings: StreamConfig, spark: Any, member: str) -> Run:
    """A run that has not been started."""
    from penstock.storage import Storage
    from penstock.store import open_store
    from penstock.streams import registry
    from penstock.streams.instance import StreamInstance
    from penstock.streams.log.epoch_log import EpochLog
    from penstock.streams.place import Place as StreamPlace

    config = Config(place.store, str(place.storage), spark=SparkConfig(), cluster=CLUSTER, stream=settings)
    store = open_store(config.store)
    record = registry.open_stream(store, stream.name, stream.describe())
    registry.wish(store, stream.name, wanted="suspended")
    where = StreamPlace(config.store, config.storage, stream.name, record.id)
    instance = StreamInstance(stream, where, config, member, spark)
    log = EpochLog(store, Storage(config.storage), where.layout)
    return Run(log, instance, threading.Thread(target=instance.run, daemon=True))


@contextmanager
def running(lab: Lab, place: Place, made: Made, settings: StreamConfig = SETTINGS) -> Iterator[Run]:
    from pyspark import cloudpickle

    import bench.shuffle

    cloudpickle.register_pickle_by_value(bench.shuffle)  # type: ignore[no-untyped-call]
    lab.wake()
    run = open_run(place, stream_over(made), settings, lab.spark, "bench")
    try:
        yield run
    finally:
        run.instance.stop()
        if run.thread.is_alive():
            run.thread.join()
        run.log.store.close()
        os.sync()


def cost(lab: Lab, made: Made) -> float:
    """Microseconds for a document, until the last one is committed."""
    with lab.place("shuffle") as place:
        os.sync()
        with running(lab, place, made) as run:
            began = run.begin()
            run.wait(made.spec.documents)
            seconds = time.perf_counter() - began
            check(run, made)
    return seconds * 1e6 / made.spec.documents


def check(run: Run, made: Made) -> None:
    """That every document came out once; queues are in the order of clocks, which grow with the ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = count = 0
    for epoch in run.log.entries(0):
        for brought in epoch.brought:
            for file in brought.files(run.log.storage):
                with run.log.storage.open(file.record.path) as opened:
                    ids = pa.ipc.open_file(opened).read_all().column("id")
                total, count = total + pc.sum(ids).as_py(), count + len(ids)
                if not pc.all(pc.greater(ids[1:], ids[:-1])).as_py():
                    raise RuntimeError(f"{file.record.path} is not in order")
    if (total, count) != (made.checksum, made.spec.documents):
        raise RuntimeError(f"{count:,} documents came out, with another sum of ids")
