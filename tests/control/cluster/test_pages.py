"""Decisions that one document does not hold: written, cut short by a crash, read and pruned."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.documents import codec, epoch_records
from penstock.control.cluster.documents.epoch_records import Records, clusters
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.rules.model import BarrierAck, BarrierKind, Decision, Outcome
from penstock.control.cluster.views.observer import Observer
from penstock.errors import CorruptFile, StoreUnavailable, UsageError
from penstock.store.base import Document
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import KEYS, SCOPE, Clock, Line, cut

LARGE = Decision(
    1,
    Outcome.COMMIT,
    BarrierKind.EPOCH,
    1,
    1,
    0,
    acked=tuple(f"member-{i}" for i in range(50)),
    states={f"part-{i}": "s" * 20 for i in range(50)},
    frontiers={f"member-{i}": "ü" * 40 for i in range(50)},
    files=tuple(f"file-{i}" for i in range(50)),
    watermark=7,
    request="r",
)
ABORT = Decision(1, Outcome.ABORT, BarrierKind.EPOCH, 1, 2, 0, reason="its leader did not finish it")


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setattr(epoch_records, "INLINE", 1000)
    monkeypatch.setattr(epoch_records, "PAGE", 700)
    return Records(MemoryStore(), KEYS)


def _pages(records: Records) -> list[Document]:
    return list(records.store.scan(KEYS.pages(SCOPE)))


def _dies_at(records: Records, number: int) -> Records:
    """The same store, for somebody who comes no further than to its ``number``-th write."""
    line = Line(records.store, Clock())

    def before(call: str, key: str) -> None:
        written = sum(each == "cas" for each, _ in line.calls)
        if call == "cas" and written > number:
            cut(call, key)

    line.before = before
    return Records(line, KEYS)


def test_it_reads_as_it_was_written(records: Records) -> None:
    assert records.decide(SCOPE, LARGE) == LARGE
    assert records.decision(SCOPE, 1) == LARGE
    assert records.outcome(SCOPE, 1) is Outcome.COMMIT
    assert list(records.decisions(SCOPE)) == [LARGE]
    assert len(_pages(records)) > 5
    assert all(len(document.value) <= 1000 for document in records.store.scan(KEYS.root))


def test_a_small_one_is_written_as_ever(records: Records) -> None:
    records.decide(SCOPE, ABORT)
    document = records.store.get(KEYS.epoch(SCOPE, 1))
    assert document is not None and document.value == codec.DECISION.encode(ABORT)
    assert _pages(records) == []


def test_one_that_an_older_version_wrote_whole_is_read(records: Records) -> None:
    records.store.cas(KEYS.epoch(SCOPE, 1), 0, codec.DECISION.encode(LARGE))
    assert records.decision(SCOPE, 1) == LARGE
    assert records.decide(SCOPE, ABORT) == LARGE


def test_a_version_that_does_not_know_pages_refuses_the_record(records: Records) -> None:
    """It would take it for a decision in which nobody acked anything."""
    records.decide(SCOPE, LARGE)
    document = records.store.get(KEYS.epoch(SCOPE, 1))
    assert document is not None and json.loads(document.value)["format"] == 2
    with pytest.raises(UsageError, match="format 2"):
        codec.DECISION.decode(document.key, document.value)


@pytest.mark.parametrize("write", range(9))
def test_nothing_is_decided_before_the_record_stands(records: Records, write: int) -> None:
    """Whoever comes after a leader that died among its pages gives the epoch up, or finds it decided."""
    dying = _dies_at(records, write)
    try:
        dying.decide(SCOPE, LARGE)
        decided = LARGE
    except StoreUnavailable:
        assert records.decision(SCOPE, 1) is None
        decided = ABORT
    assert records.decide(SCOPE, ABORT) == decided
    assert records.decision(SCOPE, 1) == decided
    records.prune_decisions(SCOPE, before=2, committed=0)
    assert list(records.store.scan(KEYS.root)) == []


def test_the_same_leader_goes_on_where_it_was_interrupted(records: Records) -> None:
    with pytest.raises(StoreUnavailable):
        _dies_at(records, 3).decide(SCOPE, LARGE)
    assert records.decide(SCOPE, LARGE) == LARGE
    assert records.decision(SCOPE, 1) == LARGE


def test_pages_of_one_who_came_late_do_not_mix_with_those_of_the_record(records: Records) -> None:
    other = replace(LARGE, states={"part-0": "t" * 3000})
    assert records.decide(SCOPE, LARGE) == LARGE
    assert records.decide(SCOPE, other) == LARGE
    assert records.decision(SCOPE, 1) == LARGE
    records.prune_decisions(SCOPE, before=5, committed=1)
    assert records.decision(SCOPE, 1) == LARGE
    records.prune_decisions(SCOPE, before=5, committed=4)
    assert list(records.store.scan(KEYS.root)) == []


def test_pruning_that_dies_in_the_middle_leaves_nothing_that_cannot_be_read(records: Records) -> None:
    for epoch in (1, 2, 3):
        records.decide(SCOPE, replace(LARGE, epoch=epoch))
    for writes in range(1, 40, 3):
        try:
            _dies_at(records, writes).prune_decisions(SCOPE, before=3, committed=3)
        except StoreUnavailable:
            left = [decision.epoch for decision in records.decisions(SCOPE)]
            assert left in ([2, 3], [3])
    records.prune_decisions(SCOPE, before=3, committed=3)
    assert [decision.epoch for decision in records.decisions(SCOPE)] == [3]
    assert {document.key.split("/")[4] for document in _pages(records)} == {f"{3:016}"}


def test_one_that_is_pruned_while_it_is_read_is_gone(records: Records) -> None:
    records.decide(SCOPE, LARGE)
    line = Line(records.store, Clock())

    def before(call: str, key: str) -> None:
        if key.startswith(KEYS.pages(SCOPE)):
            records.prune_decisions(SCOPE, before=5, committed=4)

    line.before = before
    assert Records(line, KEYS).decision(SCOPE, 1) is None
    assert list(Records(line, KEYS).decisions(SCOPE)) == []


@pytest.mark.parametrize("value", [None, b"something else"])
def test_a_lost_or_wrong_page_is_named(records: Records, value: bytes | None) -> None:
    records.decide(SCOPE, LARGE)
    page = _pages(records)[2]
    records.store.cas(page.key, page.version, value)
    with pytest.raises(CorruptFile, match=KEYS.epoch(SCOPE, 1)) as caught:
        records.decision(SCOPE, 1)
    assert caught.value.hint
    assert records.outcome(SCOPE, 1) is Outcome.COMMIT


def test_acks_are_pruned_however_many_there_are(records: Records) -> None:
    """Also those behind the first thousand keys."""
    for number in range(1200):
        records.write_ack(SCOPE, BarrierAck(f"m{number:04}", "s", 1, 1))
    records.prune_acks(SCOPE, ())
    assert records.acks(SCOPE) == []


def test_as_many_decisions_are_shown_as_were_asked_for() -> None:
    """Also where more than a thousand are kept, since nobody has taken them over."""
    store = MemoryStore()
    records = Records(store, KEYS)
    for epoch in range(1, 1301):
        records.decide(SCOPE, replace(ABORT, epoch=epoch))
    shown = Observer(store, ClusterConfig("test")).decided_since(SCOPE, 0)
    assert [each.epoch for each in shown] == list(range(1, 1301))


def test_clusters_are_found_without_reading_what_they_hold() -> None:
    line = Line(MemoryStore(), Clock())
    for name in ("b", "a-1", "a", "a.b"):
        for epoch in range(30):
            line.cas(Keys(name).epoch(SCOPE, epoch), 0, b"{}")
    line.calls.clear()
    assert clusters(line) == ["a", "a-1", "a.b", "b"]
    assert len(line.calls) == 5
