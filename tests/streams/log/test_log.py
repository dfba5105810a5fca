"""What readers see of committed epochs, before and after they are moved into the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.control.cluster.documents import codec
from penstock.control.cluster.rules.model import BarrierKind, Decision, Outcome
from penstock.errors import CorruptFile, EpochGone
from penstock.store.base import Store
from penstock.streams.log import epoch_log as log_module
from penstock.streams.log.epoch_log import EpochLog
from penstock.streams.log.segments import LogDocument
from penstock.streams.log.tail import BrokenChain, chain
from penstock.streams.model import END, SCOPE
from tests.streams.log.support import Made, numbers


def test_a_stream_without_epochs(made: Made) -> None:
    log = made.log
    assert (log.committed(), log.floor, log.size(), log.end(), log.entries(0)) == (0, 1, 0, None, [])
    assert log.wait(0, 0) is None
    assert not log.compact(force=True)


def test_only_committed_epochs_with_rows_are_there(made: Made) -> None:
    made.commit(3)
    made.commit()
    made.abort(4)
    made.commit(late=2)
    made.commit(5)
    made.open()
    found = made.log.entries(0)
    assert [(e.number, e.rows, e.late) for e in found] == [(1, 3, 0), (4, 0, 2), (5, 5, 0)]
    assert made.log.committed() == 5
    assert made.log.size() == sum(e.bytes for e in found) > 0


def test_what_is_decided_and_not_published_is_not_there(made: Made) -> None:
    made.commit(1)
    made.commit(1, publish=False)
    assert numbers(made.log.entries(0)) == [1]


@pytest.mark.parametrize("compacted", [False, True])
def test_entries_begin_after_and_end_with(made: Made, compacted: bool) -> None:
    for rows in (1, 0, 1, 1, 0, 1):
        made.commit(rows)
    if compacted:
        assert made.log.compact(force=True)
    made.commit(1)
    assert numbers(made.log.entries(0)) == [1, 3, 4, 6, 7]
    assert numbers(made.log.entries(3)) == [4, 6, 7]
    assert numbers(made.log.entries(2, 4)) == [3, 4]
    assert numbers(made.log.entries(4, 5)) == []
    assert numbers(made.log.entries(7)) == []


def test_the_log_is_the_same_after_compaction_and_pruning(made: Made) -> None:
    for number in range(200):
        if number % 7 == 3:
            made.abort()
        else:
            made.bare(number % 3, size=number)
    expected, size = made.log.entries(0), made.log.size()
    assert made.log.compact()
    made.prune(190)
    assert len(list(made.records.decisions(SCOPE))) < 20
    other = EpochLog(made.store, made.storage, made.layout)
    for log in (made.log, other):
        assert log.entries(0) == expected
        assert (log.size(), log.committed()) == (size, made.room.read().scope(SCOPE).committed)
    assert not made.log.compact()
    assert not other.compact(force=True)


def test_compaction_waits_until_it_is_worth_it(made: Made) -> None:
    for _ in range(log_module.COMPACT_EVERY - 1):
        made.bare()
    assert not made.log.compact()
    assert made.log.needed() == 1
    made.bare(1)
    assert made.log.compact()
    assert made.log.needed() == log_module.COMPACT_EVERY + 1
    assert made.files(made.layout.log) != set()


def test_epochs_without_rows_leave_nothing_in_storage(made: Made) -> None:
    for _ in range(130):
        made.bare()
    assert made.log.compact()
    assert made.files(made.layout.log) == set()


def test_who_dies_before_the_document_leaves_only_a_file(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.commit(1)
    expected = made.log.entries(0)
    with monkeypatch.context() as dying:
        dying.setattr(log_module, "reach", _die)
        with pytest.raises(KeyboardInterrupt):
            made.log.compact(force=True)
    assert made.log.needed() == 1
    assert made.log.entries(0) == expected
    assert made.log.compact(force=True)
    assert EpochLog(made.store, made.storage, made.layout).entries(0) == expected
    assert len(made.files(made.layout.log)) == 2


def _die(name: str) -> None:
    raise KeyboardInterrupt(name)


def test_two_who_compact_at_once_do_not_lose_or_repeat(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        made.commit(1)
    other = EpochLog(made.store, made.storage, made.layout)
    reached: list[str] = []

    def meanwhile(name: str) -> None:
        if not reached:
            reached.append(name)
            made.commit(1)
            other.compact(force=True)
            made.commit(1)

    monkeypatch.setattr(log_module, "reach", meanwhile)
    assert made.log.compact(force=True)
    assert reached == ["log.written"]
    assert numbers(other.entries(0)) == numbers(made.log.entries(0)) == list(range(1, 8))
    assert made.log.needed() == 8


def test_a_reader_survives_that_segments_are_merged_and_deleted(made: Made) -> None:
    for _ in range(7):
        made.bare(1)
        made.log.compact(force=True)
    reader = EpochLog(made.store, made.storage, made.layout)
    view = reader.view()
    old = {segment.pointer.path for segment in view.document.segments}
    made.bare(1)
    made.log.compact(force=True)
    for path in old:
        made.storage.delete(path)
    with pytest.raises(CorruptFile):
        list(reader.retained(view))
    calls: list[int] = []

    def read(found: log_module.LogView) -> list[int]:
        calls.append(found.version)
        return numbers(list(reader.retained(view if len(calls) == 1 else found)))

    reader._document = _first(view, reader)  # type: ignore[method-assign]
    assert reader.read(read) == list(range(1, 9))
    assert len(calls) == 2


def _first(view: log_module.LogView, log: EpochLog) -> Callable[[], tuple[LogDocument, int]]:
    """A log that sees the document of ``view`` once, and then as it is."""
    real, seen = log._document, [(view.document, view.version)]
    return lambda: seen.pop() if seen else real()


def test_a_lost_segment_is_named(made: Made) -> None:
    made.commit(1)
    made.log.compact(force=True)
    (path,) = made.files(made.layout.log)
    made.storage.write(path, b"{}")
    with pytest.raises(CorruptFile, match=path):
        EpochLog(made.store, made.storage, made.layout).entries(0)
    made.storage.delete(path)
    with pytest.raises(CorruptFile, match=f"{path} is missing"):
        EpochLog(made.store, made.storage, made.layout).entries(0)


def test_a_lost_record_is_an_error_and_not_a_gap(made: Made) -> None:
    for _ in range(3):
        made.commit(1)
    key = made.records.keys.epoch(SCOPE, 2)
    found = made.store.get(key)
    assert found is not None
    made.store.cas(key, found.version, None)
    with pytest.raises(CorruptFile, match="committed epoch 2 is missing"):
        EpochLog(made.store, made.storage, made.layout).entries(0)


def test_an_abort_never_stands_for_a_commit() -> None:
    def decision(epoch: int, outcome: Outcome) -> Decision:
        return Decision(epoch, outcome, BarrierKind.EPOCH, 1, 1, epoch - 1)

    commits = {number: decision(number, Outcome.COMMIT) for number in (1, 2, 3)}
    assert [each.epoch for each in chain(commits, 0, 3)] == [1, 2, 3]
    assert [each.epoch for each in chain(commits, 2, 3)] == [3]
    with pytest.raises(BrokenChain, match="epoch 2 is missing"):
        chain({**commits, 2: decision(2, Outcome.ABORT)}, 0, 3)


def test_what_a_leader_wrote_that_slept_for_long_is_not_seen(made: Made) -> None:
    """Its record was pruned, so that it could write another one."""
    for _ in range(5):
        made.commit(1)
    made.abort()
    made.commit(1)
    made.log.compact(force=True)
    expected = made.log.entries(0)
    made.prune(7)
    late = Decision(6, Outcome.COMMIT, BarrierKind.EPOCH, 1, 1, 5, files=made.records_of(7))
    made.store.cas(made.records.keys.epoch(SCOPE, 6), 0, codec.DECISION.encode(late))
    made.commit(1)
    assert EpochLog(made.store, made.storage, made.layout).entries(0)[:-1] == expected


# the end


@pytest.mark.parametrize("compacted", [None, 2, 3])
def test_the_end_is_said_once(made: Made, compacted: int | None) -> None:
    made.commit(1)
    for number, ended in ((2, False), (3, True), (4, True)):
        assert made.commit(ended=ended) == number
        if compacted == number:
            made.log.compact(force=True)
    assert [(e.number, e.ended) for e in made.log.entries(0)] == [(1, False), (3, True)]
    fresh = EpochLog(made.store, made.storage, made.layout)
    assert (fresh.end(), fresh.entries(0)) == (3, made.log.entries(0))
    assert made.room.read().scope(SCOPE).watermark == END


# waiting


def test_waiting_ends_with_the_next_rows(made: Made) -> None:
    made.commit(1)
    assert made.log.wait(0, 0) == 1
    found: list[int | None] = []
    waiting = threading.Thread(target=lambda: found.append(made.log.wait(1, 30)))
    waiting.start()
    made.commit()
    made.abort()
    made.commit(1)
    waiting.join(20)
    assert found == [4]


def test_waiting_for_nothing_takes_the_time_given(made: Made) -> None:
    made.commit(1)
    began = time.monotonic()
    assert made.log.wait(1, 0.3) is None
    assert 0.3 <= time.monotonic() - began < 5


# what was let go


def test_below_the_floor_is_an_error_that_says_what_to_do(made: Made, tmp_path: Path, store: Store) -> None:
    for _ in range(4):
        made.commit(1)
    made.log.compact(force=True)
    assert made.log.raise_floor(lambda view: 3).floor == 3
    assert numbers(made.log.entries(2)) == [3, 4]
    with pytest.raises(EpochGone, match=r"epoch 2 is not retained .* oldest that is retained is 3") as caught:
        made.log.entries(1)
    assert "begin at epoch 3" in str(caught.value)
    assert made.log.size() == sum(e.bytes for e in made.log.entries(2))


def test_the_floor_never_passes_what_the_log_has(made: Made) -> None:
    for _ in range(4):
        made.commit(1)
    assert made.log.raise_floor(lambda view: 4).floor == 1
    assert numbers(made.log.entries(0)) == [1, 2, 3, 4]
