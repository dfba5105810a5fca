from __future__ import annotations

import pytest

from penstock.errors import StreamMismatch
from penstock.streams.log.progress import EpochRange, OutputProgress

LINES = frozenset(["lines"])
BOTH = frozenset(["lines", "clicks"])


def test_batches_that_join_on() -> None:
    first = OutputProgress().after(0, {"lines": EpochRange(0, 5)}, "counts")
    second = first.after(1, {"lines": EpochRange(5, 9, final=True)}, "counts")
    assert (first.epoch(LINES), first.is_final(LINES)) == (5, False)
    assert (second.batch, second.epoch(LINES), second.is_final(LINES)) == (1, 9, True)


def test_a_batch_that_is_repeated() -> None:
    reached = OutputProgress(4, {"lines": 9})
    assert reached.after(4, {"lines": EpochRange(5, 9)}, "counts") == reached


def test_a_batch_without_rows_has_the_range_of_the_one_before() -> None:
    reached = OutputProgress(4, {"lines": 9}).after(5, {"lines": EpochRange(5, 9)}, "counts")
    assert (reached.batch, reached.epoch(LINES)) == (5, 9)


def test_after_a_restart_a_source_without_news_has_told_no_range() -> None:
    reached = OutputProgress(4, {"lines": 9, "clicks": 8}).after(5, {"lines": EpochRange(9, 12)}, "counts")
    assert (reached.epoch(BOTH), reached.epoch(LINES)) == (8, 12)


def test_the_end_is_reached_with_the_last_of_all_sources() -> None:
    one = OutputProgress().after(
        0, {"lines": EpochRange(0, 7, final=True), "clicks": EpochRange(0, 4)}, "counts"
    )
    both = one.after(
        1, {"lines": EpochRange(0, 7, final=True), "clicks": EpochRange(4, 7, final=True)}, "counts"
    )
    assert (one.epoch(BOTH), one.is_final(BOTH)) == (4, False)
    assert (both.epoch(BOTH), both.is_final(BOTH)) == (7, True)


@pytest.mark.parametrize(
    ("batch", "found", "words"),
    [
        (7, EpochRange(9, 12), "batch 7 comes after batch 5"),
        (0, EpochRange(0, 3), "batch 0 comes after batch 5"),
        (6, EpochRange(8, 12), "from epoch 8 to 12 of lines, and the one before it ended at 9"),
        (6, EpochRange(10, 12), "from epoch 10 to 12 of lines"),
        (5, EpochRange(5, 8), "from epoch 5 to 8 of lines"),
    ],
)
def test_what_does_not_join_on_is_refused(batch: int, found: EpochRange, words: str) -> None:
    with pytest.raises(StreamMismatch, match=words) as refused:
        OutputProgress(5, {"lines": 9}).after(batch, {"lines": found}, "counts")
    assert "new name" in (refused.value.hint or "")
