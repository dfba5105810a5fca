"""Instances of a stream in threads of the test, which share its Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.config import Config, StreamConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.sinks import StreamTable
from penstock.storage import Storage
from penstock.store import open_store
from penstock.streams import registry
from penstock.streams.api.stream import Stream
from penstock.streams.instance import StreamInstance
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.place import Place
from penstock.streams.views.events import StreamEvent
from tests.streams.fleet import CLUSTER, STREAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Station:
    """Instances of a stream in threads of this process, which share one Spark."""

    def __init__(
        self, spark: SparkSession, stream: Stream, folder: Path, settings: StreamConfig = STREAM
    ) -> None:
        self._spark = spark
        self._stream = stream
        url = f"sqlite:///{folder}/store.db"
        self.config = Config(store=url, storage=str(folder / "storage"), cluster=CLUSTER, stream=settings)
        self.store = open_store(url)
        self.storage = Storage(folder / "storage")
        record = registry.open_stream(self.store, stream.name, stream.describe())
        self.layout = record.layout
        self.place = Place(url, str(folder / "storage"), stream.name, record.id)
        self.log = EpochLog(self.store, self.storage, self.layout)
        self.events: list[StreamEvent] = []
        self.endings: dict[str, str] = {}
        self._running: list[tuple[StreamInstance, threading.Thread]] = []

    def start(self, name: str = "i1") -> None:
        """One more instance."""
        # Outputs change settings of their session, which other tests share.
        spark = self._spark.newSession()
        instance = StreamInstance(
            self._stream, self.place, self.config, name, spark, listener=self.events.append
        )
        thread = threading.Thread(target=lambda: self.endings.update({name: instance.run()}), daemon=True)
        self._running.append((instance, thread))
        thread.start()

    def leave(self) -> None:
        """The instance that came last leaves."""
        instance, thread = self._running[-1]
        instance.stop()
        thread.join()

    def seats(self) -> int:
        return len(Room(self.store, Keys(self.layout.cluster)).read().assignment.seats)

    def close(self) -> None:
        for instance, _ in self._running:
            instance.stop()
        for _, thread in self._running:
            thread.join()
        self.store.close()

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := condition():
                return found
            time.sleep(0.05)
        problems = "\n".join(event.text for event in self.told("problem")[-5:])
        raise AssertionError(f"did not happen within {seconds} s: {what}\n{problems}")

    def told(self, kind: str) -> list[StreamEvent]:
        return [event for event in list(self.events) if event.kind == kind]

    def queue(self) -> pa.Table:
        """Every committed row that is retained."""
        files = [f for e in self.log.entries(0) for b in e.brought for f in b.files(self.storage)]
        read = []
        for file in files:
            with self.storage.open(file.record.path) as opened:
                read.append(pa.ipc.open_file(opened).read_all())
        return pa.concat_tables(read) if read else pa.table({})

    def output(self, name: str) -> pa.Table:
        table = StreamTable(self.store, self.storage, self.layout.stream, self.layout.id, name)
        read = [pq.read_table(path) for path in table.paths()]
        return pa.concat_tables(read) if read else pa.table({})
