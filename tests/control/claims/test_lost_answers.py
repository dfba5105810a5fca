"""Claims that were granted while the answer got lost: each is handed out once, and none is forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest

from penstock.control.claims import SHARD_PARTITIONS, Board, Claim, PartitionState, register
from penstock.control.claims.codec import encode
from penstock.control.claims.machine import REMEMBERED
from penstock.control.claims.model import Shard
from penstock.core.ranges import Range
from penstock.errors import PenstockError, RangeOverlap, SessionLost, StoreUnavailable
from penstock.store.base import Document, Session, Write
from penstock.store.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.claims.combiner.time.sleep", lambda seconds: None)


class Mute(MemoryStore):
    """While ``mute``: carries out the next write, and then does not answer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.mute = False
        self.deaf = False
        self.gone = False

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        if self.gone:
            raise StoreUnavailable
        return super().get_many(keys)

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        if self.gone or self.deaf:
            self.gone = True
            raise StoreUnavailable
        done = super().cas_many(writes)
        if self.mute:
            self.gone = True
            raise StoreUnavailable
        return done

    def silently(self, board: Board, session: Session, owner: str = "me", count: int = 1) -> None:
        """A claim that is granted without an answer."""
        self.mute = True
        with pytest.raises(StoreUnavailable):
            board.claim(session, owner, count)
        self.mute = self.gone = False


def rows(claims: Sequence[Claim]) -> list[str]:
    return [str(claim.range) for claim in claims]


def assert_all_are_held(board: Board, claims: Sequence[Claim]) -> None:
    """What is claimed in the store is exactly what was handed out."""
    claimed = [(view.range, view.token) for view in board.partitions([PartitionState.CLAIMED])]
    assert claimed == sorted((claim.range, claim.token) for claim in claims)


def test_no_more_is_returned_than_was_asked_for() -> None:
    store = Mute()
    board, session = register(store, "r", 40, 10), store.session(9)
    store.silently(board, session, count=2)
    held = [claim for _ in range(4) for claim in _one(board.claim(session, "me"))]
    assert sorted(rows(held)) == ["0-10", "10-20", "20-30", "30-40"]
    assert_all_are_held(board, held)
    assert board.claim(session, "me") == []


def test_several_lost_answers_come_one_by_one() -> None:
    store = Mute()
    board, session = register(store, "r", 40, 10), store.session(9)
    question = board._claim_command(session, "me", 1), board._claim_command(session, "me", 1)
    store.mute = True
    for command in question:
        with pytest.raises(StoreUnavailable):
            board._granted(0, command)
        store.gone = False
    store.mute = False
    held = [*_one(board.claim(session, "me")), *_one(board.claim(session, "me"))]
    assert sorted(rows(held)) == ["0-10", "10-20"]
    assert_all_are_held(board, held)


def _one(claims: list[Claim]) -> list[Claim]:
    assert len(claims) == 1
    return claims


def test_a_lost_answer_is_found_however_much_happened_since() -> None:
    store = Mute()
    board, session = register(store, "r", 40, 10), store.session(9)
    store.silently(board, session)
    other = Board.open(store, "r")
    for _ in range(REMEMBERED + 10):
        other.release(_one(other.claim(session, "other"))[0])
    held = board.claim(session, "me")
    assert rows(held) == ["0-10"]
    assert_all_are_held(board, held)


def test_owners_do_not_get_each_others() -> None:
    store = Mute()
    board, session = register(store, "r", 40, 10), store.session(9)
    store.silently(board, session, "me")
    store.silently(board, session, "other")
    assert rows(board.claim(session, "me")) == ["0-10"]
    assert rows(board.claim(session, "other")) == ["10-20"]


def test_a_claim_that_was_never_written_is_made_once() -> None:
    store = Mute()
    board, session = register(store, "r", 20, 10), store.session(9)
    store.deaf = True
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            board.claim(session, "me")
    store.deaf = store.gone = False
    held = [*_one(board.claim(session, "me")), *_one(board.claim(session, "me"))]
    assert board.claim(session, "me") == []
    assert_all_are_held(board, held)


def test_a_session_that_ended_leaves_nothing_to_ask() -> None:
    store = Mute()
    board, session = register(store, "r", 20, 10), store.session(9)
    store.silently(board, session)
    session.close()
    with pytest.raises(SessionLost):
        board.claim(session, "me")
    assert rows(board.claim(store.session(9), "me", 2)) == ["10-20", "0-10"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, PenstockError])
def test_what_was_granted_before_an_error_is_kept(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    board, session = register(store, "r", SHARD_PARTITIONS * 2, 1), store.session(9)
    first = board.claim(session, "me", SHARD_PARTITIONS - 1)
    submit = board._combiner.submit
    answers = iter([submit])

    def fail(asked: object) -> object:
        for real in answers:
            return real(asked)  # type: ignore[arg-type]
        raise error("broken")

    with monkeypatch.context() as broken:
        broken.setattr(board._combiner, "submit", fail)
        with pytest.raises(error):
            board.claim(session, "me", 5)
    assert board.summary().claimed.rows == SHARD_PARTITIONS
    held = first + board.claim(session, "me", 1)
    assert_all_are_held(board, held)


def test_threads_of_one_owner_share_what_was_lost() -> None:
    class Often(MemoryStore):
        """Loses every other answer; a lost one is not even to be read back."""

        calls = 0
        silent = 0

        def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
            if self.silent:
                self.silent -= 1
                raise StoreUnavailable
            return super().get_many(keys)

        def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
            done = super().cas_many(writes)
            self.calls += 1
            if self.calls % 2:
                self.silent = 5
                raise StoreUnavailable
            return done

    store = Often()
    board, session = register(store, "r", 400, 1), store.session(60)
    held: list[Claim] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(4000):
                with suppress(StoreUnavailable):
                    claims = board.claim(session, "me")
                    if not claims:
                        return
                    held.extend(_one(claims))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(held) == 400
    assert_all_are_held(board, held)


def test_ranges_that_may_have_been_granted_are_not_forgotten() -> None:
    store = Mute()
    board, session = register(store, "r", SHARD_PARTITIONS * 20, 10), store.session(9)
    far = Range(SHARD_PARTITIONS * 10 + 5, SHARD_PARTITIONS * 10 + 15)
    store.mute = True
    with pytest.raises(StoreUnavailable):
        board.claim_ranges(session, "me", [far])
    store.mute = store.gone = False
    held = board.claim(session, "me")
    assert [claim.range for claim in held] == [far]
    assert_all_are_held(board, held)


def test_ranges_that_somebody_else_got_are_forgotten() -> None:
    store = Mute()
    board, session = register(store, "r", 40, 10), store.session(9)
    store.deaf = True
    with pytest.raises(StoreUnavailable):
        board.claim_ranges(session, "me", [Range(0, 10)])
    store.deaf = store.gone = False
    theirs = Board.open(store, "r").claim_ranges(session, "other", [Range(5, 8)])
    held = board.claim(session, "me")
    assert not held[0].range.overlaps(Range(5, 8))
    assert_all_are_held(board, theirs + held)


def test_ranges_that_cannot_be_given_back_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    board, session = register(store, "r", SHARD_PARTITIONS * 20, 10), store.session(9)
    far = Range(SHARD_PARTITIONS * 10, SHARD_PARTITIONS * 10 + 10)
    theirs = board.claim_ranges(session, "other", [far])

    def unavailable(claim: Claim) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as broken:
        broken.setattr(board, "release", unavailable)
        with pytest.raises(RangeOverlap):
            board.claim_ranges(session, "me", [Range(0, 10), far])
    held = board.claim(session, "me")
    assert rows(held) == ["0-10"]
    assert_all_are_held(board, held + theirs)


def test_an_owner_that_was_stopped_before_its_write_is_asked_about_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    store = MemoryStore(lambda: now[0])
    board, session = register(store, "r", 40, 10), store.session(9)
    (claim,) = board.claim(session, "me")
    clock = time.monotonic

    def stopped(shard: Shard) -> bytes:
        now[0] += 10
        return encode(shard)

    monkeypatch.setattr("penstock.control.claims.combiner.encode", stopped)
    monkeypatch.setattr("penstock.control.claims.combiner.time.monotonic", lambda: clock() + now[0])
    with pytest.raises(SessionLost):
        board.ack(claim, "d")
    assert board.summary().completed.rows == 0
