"""Positions of outputs before they begin, and looks at rows that go meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.errors import CorruptFile, EpochGone, StreamMismatch
from penstock.streams import registry
from penstock.streams.api.rows import Rows
from penstock.streams.api.stream import Stream
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.log.retention import LogRetention
from penstock.streams.outputs.running_outputs import reserve
from penstock.streams.registry import StreamRecord, open_stream
from penstock.streams.views import preview
from penstock.types.tables import Table
from tests.streams.flow.support import Nowhere, Source
from tests.streams.log.support import NOON, Made


class Numbers(Table):
    key: int


def defined(*outputs: str) -> Stream:
    stream = Stream("ticks")
    rows: Rows = stream.source("numbers", Source(Numbers))
    for name in outputs:
        stream.output(name, rows, Nowhere())
    return stream


def opened(made: Made, stream: Stream) -> None:
    """The stream's record, under the id that its epochs have."""
    record = open_stream(made.store, "ticks", stream.describe(), accept_changes=True)
    found = made.store.get("streams/ticks/stream")
    assert found is not None
    made.store.cas(found.key, found.version, registry.RECORD.encode(replace(record, id=made.layout.id)))


def test_what_an_output_needs_stays_until_it_begins(made: Made) -> None:
    stream = defined("sums", "copy")
    opened(made, stream)
    reserve(made.log, stream)
    holds = ReaderPositions(made.log)
    for _ in range(4):
        made.commit(1)
    keeper = LogRetention(made.log, age=1.0, size=1 << 30, clock=lambda: NOON.timestamp() + 3600)
    holds.advance("sums.numbers", 4)
    assert keeper.tidy().floor == 1
    holds.advance("copy.numbers", 2)
    assert keeper.tidy().floor == 3
    newer = defined("sums", "more")
    with pytest.raises(StreamMismatch):
        reserve(made.log, newer)
    opened(made, newer)
    reserve(made.log, newer)
    assert {each.reader: each.epoch for each in holds.list()} == {"sums.numbers": 4, "more.numbers": 2}


@pytest.mark.parametrize("floor_moves", [True, False])
def test_a_look_at_rows_that_go_meanwhile(
    made: Made, monkeypatch: pytest.MonkeyPatch, floor_moves: bool
) -> None:
    for _ in range(3):
        made.commit(1)
    made.log.compact(force=True)
    record = StreamRecord("ticks", made.layout.id, {"sources": {"numbers": {}}}, "")
    read: Callable[..., object] = preview._read_ipc

    def too_late(*arguments: object) -> object:
        made.storage.delete(made.layout.epoch_rows(1))
        if floor_moves:
            made.log.raise_floor(lambda view: 2)
        return read(*arguments)

    monkeypatch.setattr(preview, "_read_ipc", too_late)
    with pytest.raises(EpochGone if floor_moves else CorruptFile):
        preview.rows(made.store, made.storage, record, "numbers", epoch=1)
