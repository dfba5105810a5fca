"""The number of segments and the cost of the log stay small, however many epochs there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage import Storage
from penstock.store.base import Document
from penstock.store.memory import MemoryStore
from penstock.streams.log import segments as segments_module
from penstock.streams.log.epoch_log import COMPACT_EVERY, EpochLog
from penstock.streams.log.segments import FULL, LOG, MANY, SMALL, Epochs, LogDocument, LogSegment, merged_from
from penstock.streams.model import SCOPE, Pointer
from tests.streams.log.support import Made, numbers

if TYPE_CHECKING:
    import pytest

POINTER = Pointer("streams/ticks-0a1b2c3d/log/0000000000000001-0000000000004096-01234567.json", "a" * 64)


def segment(first: int, epochs: int) -> LogSegment:
    return LogSegment(POINTER, first, first + epochs - 1, epochs, epochs, epochs)


def grown(sizes: list[int]) -> tuple[list[LogSegment], int]:
    """The segments after appending so many epochs each time, and how many epochs were written in all."""
    found: list[LogSegment] = []
    first, written = 1, 0
    for size in sizes:
        fresh = segment(first, size)
        start = min(merged_from([*found, fresh]), len(found))
        merged = sum(each.epochs for each in found[start:]) + size
        found = [*found[:start], segment(first + size - merged, merged)]
        first, written = first + size, written + merged
    return found, written


@given(st.lists(st.integers(1, COMPACT_EVERY * 3), max_size=2000))
@settings(max_examples=25, deadline=None)
def test_segments_are_few_and_epochs_are_seldom_written_again(sizes: list[int]) -> None:
    found, written = grown(sizes)
    assert sum(each.epochs for each in found) == sum(sizes)
    small = [each for each in found if each.epochs < SMALL]
    middle = [each for each in found if SMALL <= each.epochs < FULL]
    assert len(small) < MANY and len(middle) <= FULL // SMALL
    assert all(each.epochs < 2 * FULL for each in found)
    assert written <= 4 * sum(sizes) + SMALL * len(sizes)


def test_a_stream_of_half_a_million_epochs() -> None:
    found, written = grown([COMPACT_EVERY] * (500_000 // COMPACT_EVERY))
    assert len(found) <= 500_000 / FULL + MANY + 8
    assert written < 4 * 500_000
    assert len(LOG.encode(LogDocument(segments=tuple(found)))) < 40_000


def test_the_document_comes_back_as_it_was() -> None:
    document = LogDocument(5, 4, 1, 99, 98, 1000, 7, 3, (segment(5, 60),))
    assert LOG.decode("log", LOG.encode(document)) == document
    assert LOG.decode("log", LOG.encode(LogDocument())) == LogDocument()


class Counted(MemoryStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()

    def get(self, key: str) -> Document | None:
        self.read["get"] += 1
        return super().get(key)

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        found = super().list(prefix, after, limit)
        self.read["list"] += 1
        self.read["documents"] += len(found)
        return found


def test_five_thousand_epochs_are_cheap_to_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Counted()
    made = Made(store, tmp_path)
    for number in range(1, 5001):
        made.bare(1, size=10)
        if number % COMPACT_EVERY == 0 and made.log.compact():
            made.prune(number)
    read: list[str] = []
    original = segments_module.read_segment

    def counted(storage: Storage, pointer: Pointer) -> Epochs:
        read.append(pointer.path)
        return original(storage, pointer)

    monkeypatch.setattr(segments_module, "read_segment", counted)
    fresh = EpochLog(store, made.storage, made.layout)
    store.read.clear()
    assert numbers(fresh.entries(4999)) == [5000]
    assert len(read) <= 1 and store.read["get"] <= 4
    assert store.read["documents"] <= COMPACT_EVERY
    store.read.clear()
    made.bare(1)
    store.read.clear()
    assert numbers(fresh.entries(5000)) == [5001]
    assert (store.read["get"], store.read["documents"]) == (2, 1)
    assert fresh.size() == 50_000
    read.clear()
    assert numbers(fresh.entries(100, 110)) == list(range(101, 111))
    assert len(read) == 1
    assert len(fresh.view().document.segments) <= 5000 // FULL + MANY + 8
    assert len(list(made.records.decisions(SCOPE))) <= 2 * COMPACT_EVERY
    found = store.get(made.layout.log_key)
    assert found is not None and len(found.value) < 4000
    assert numbers(fresh.entries(0)) == list(range(1, 5002))
