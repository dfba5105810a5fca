"""Streams whose epochs a test commits by hand, with the rules and records of a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules import barrier as rules
from penstock.control.cluster.rules.barrier import Alignment
from penstock.control.cluster.rules.commands import Abort, Acquire, Command, Prepare, Publish, Rotate
from penstock.control.cluster.rules.model import Barrier, BarrierAck, BarrierKind, Decision, Seat, Snapshot
from penstock.storage import Storage
from penstock.store.base import Store
from penstock.streams.layout import Layout
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.model import END, OPEN, PORTION, SCOPE, Brought, Pointer, Portion, RowFile, Standing

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), False),
        pa.field("word", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC"), False),
    ]
)
SEAT = Seat("ann", "session-1")
OWNER = "ann#session-1"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Made:
    """A stream under way. ``source`` is the name of its one source; rows are numbered by ``key``."""

    def __init__(self, store: Store, folder: Path, stream: str = "ticks") -> None:
        self.store = store
        self.storage = Storage(folder)
        self.layout = Layout(stream, "0a1b2c3d")
        keys = Keys(self.layout.cluster)
        self.room, self.records = Room(store, keys), Records(store, keys)
        self.log = EpochLog(store, self.storage, self.layout)
        self.keys = 0
        self._lead(Acquire(OWNER, "ann", 5.0, None, "", 8))
        self._lead(Rotate(OWNER, 1, Snapshot(1, 1, (SEAT,), (0,), "")))

    def open(self) -> Barrier:
        """Announce an epoch, and leave it at that."""
        number = str(self.room.read().scope(SCOPE).next)
        self._lead(Prepare(OWNER, 1, SCOPE, BarrierKind.EPOCH, (SEAT,), number))
        barrier = self.room.read().scope(SCOPE).open
        assert barrier is not None
        return barrier

    def commit(
        self,
        rows: int = 0,
        *,
        late: int = 0,
        ended: bool = False,
        at: datetime = NOON,
        standing: Standing | None = None,
        publish: bool = True,
        files: Sequence[RowFile] | None = None,
    ) -> int:
        """An epoch with so many new rows; its number."""
        barrier = self.open()
        brought: tuple[Brought, ...] = ()
        if files is not None:
            brought = (self.portion(barrier.epoch, files),)
        elif rows or late:
            brought = (self.bring(barrier.epoch, rows, late),)
        decision = self.decided(barrier, brought, ended, at, standing)
        self.records.decide(SCOPE, decision)
        if publish:
            self._lead(Publish(OWNER, 1, SCOPE, decision.epoch, decision.watermark))
        return decision.epoch

    def bare(self, rows: int = 0, size: int = 0, at: datetime = NOON) -> int:
        """An epoch that only claims to have rows: nothing of it is in storage."""
        barrier = self.open()
        pointer = Pointer(self.layout.portion(barrier.epoch, "ann", "1"), "0" * 64)
        brought = (Brought("ann", pointer, rows, size),) if rows else ()
        self.records.decide(SCOPE, self.decided(barrier, brought, False, at, None))
        self._lead(Publish(OWNER, 1, SCOPE, barrier.epoch, OPEN))
        return barrier.epoch

    def abort(self, rows: int = 0) -> int:
        """An epoch that wrote rows and was given up."""
        barrier = self.open()
        if rows:
            self.bring(barrier.epoch, rows, 0)
        self.records.decide(SCOPE, rules.abort(barrier, self.room.read().scope(SCOPE), "a test"))
        self._lead(Abort(OWNER, 1, SCOPE, barrier.epoch))
        return barrier.epoch

    def decided(
        self,
        barrier: Barrier,
        brought: Sequence[Brought],
        ended: bool,
        at: datetime,
        standing: Standing | None,
    ) -> Decision:
        scope = self.room.read().scope(SCOPE)
        ack = BarrierAck(
            "ann",
            "session-1",
            barrier.epoch,
            1,
            frontier=(standing or Standing()).encode(),
            files=tuple(each.encode() for each in brought),
            watermark=END if ended else OPEN,
        )
        stamp = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return replace(rules.commit(Alignment(barrier).receive(ack), scope, None), at=stamp)

    def bring(self, epoch: int, rows: int, late: int) -> Brought:
        files = [self.file(epoch, "numbers", rows)] if rows else []
        files += [self.file(epoch, "numbers", late, late=True)] if late else []
        return self.portion(epoch, files)

    def portion(self, epoch: int, files: Sequence[RowFile]) -> Brought:
        path = self.layout.portion(epoch, "ann", "1")
        pointer = Pointer.write(self.storage, path, PORTION, Portion(tuple(files)))
        on_time = sum(file.record.rows for file in files if not file.late)
        late = sum(file.record.rows for file in files if file.late)
        return Brought("ann", pointer, on_time, sum(file.record.bytes for file in files), late)

    def file(self, epoch: int, source: str, rows: int, *, late: bool = False, batch: int = 1000) -> RowFile:
        """A file with the next rows."""
        path = f"{self.layout.epoch_rows(epoch)}/ann-1-{source}-{self.keys}{'-late' if late else ''}.arrow"
        pieces = self.rows(rows).to_batches(max_chunksize=batch)
        with (
            self.storage.create(path) as sink,
            pa.ipc.new_file(pa.PythonFile(sink, mode="w"), SCHEMA) as writer,
        ):
            for piece in pieces:
                writer.write_batch(piece)
        return RowFile(source, sink.record(path, rows), late)

    def rows(self, count: int) -> pa.Table:
        numbers = range(self.keys, self.keys + count)
        self.keys += count
        at = pa.array([int(NOON.timestamp()) * 1_000_000 + n * 1_000_000 for n in numbers], pa.int64())
        words = pa.array([f"w{n % 5}" for n in numbers], pa.string())
        return pa.table(
            [pa.array(numbers, pa.int64()), words, at.cast(SCHEMA.field("at").type)], schema=SCHEMA
        )

    def prune(self, before: int) -> None:
        """What a leader does with decisions that nobody needs."""
        committed = self.log.committed()
        while True:
            kept = len(list(self.records.decisions(SCOPE)))
            self.records.prune_decisions(SCOPE, min(before, self.log.needed()), committed)
            if len(list(self.records.decisions(SCOPE))) == kept:
                return

    def records_of(self, epoch: int) -> tuple[str, ...]:
        """What an epoch brought, as its record has it."""
        (found,) = self.log.entries(epoch - 1, epoch)
        return tuple(each.encode() for each in found.brought)

    def files(self, folder: str) -> set[str]:
        return {path for path, _ in self.storage.list(folder)}

    def _lead(self, command: Command) -> None:
        _, why = self.room.lead(command)
        assert why is None, why


def numbers(epochs: Sequence[object]) -> list[int]:
    return [epoch.number for epoch in epochs]  # type: ignore[attr-defined]
