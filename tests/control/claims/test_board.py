from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from penstock.control.claims import SHARD_PARTITIONS, Board, CheckpointRef, Claim, PartitionState, register
from penstock.core.ranges import Range
from penstock.errors import (
    FencedError,
    RangeOverlap,
    RunError,
    RunMismatch,
    SessionLost,
    StaleToken,
    StoreUnavailable,
    UnknownPartition,
    UsageError,
)
from penstock.store.base import Document, Session, Store, Write
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return MemoryStore(clock)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "s.db") as opened:
        yield opened


def finish(board: Board, session: Session, owner: str, batch: int = 1) -> list[Claim]:
    """Claim and ack until nothing is left."""
    done: list[Claim] = []
    while claims := board.claim(session, owner, batch):
        assert not board.ack_many([(claim, f"{owner}-{claim.range}") for claim in claims])
        done += claims
    return done


def assert_exact(board: Board) -> None:
    """Every row is completed, once."""
    end = 0
    for view in board.partitions():
        assert (view.range.begin, view.state) == (end, PartitionState.COMPLETED)
        end = view.range.end
    assert end == board.geometry.total_rows
    assert board.finished()


# registering


def test_a_run_is_registered_once_and_found_again(store: Store) -> None:
    register(store, "r", 1000, 10, 7)
    again = Board.open(store, "r")
    assert (again.geometry.partitions, again.max_failures) == (100, 7)
    assert register(store, "r", 1000, 10, 3).max_failures == 3
    with pytest.raises(RunMismatch, match="1000 rows in partitions of 10, not 1000 in partitions of 20"):
        register(store, "r", 1000, 20)
    with pytest.raises(RunError, match="no run 'other'"):
        Board.open(store, "other")


@pytest.mark.parametrize("arguments", [("a/b", 1, 1), ("", 1, 1), ("r", -1, 1), ("r", 1, 0), ("r", 1, 1, 0)])
def test_nonsense_is_refused(store: Store, arguments: tuple[str, int, int]) -> None:
    with pytest.raises(UsageError):
        register(store, *arguments)


def test_an_empty_input_is_finished_at_once(store: Store) -> None:
    board = register(store, "r", 0, 10)
    assert board.claim(store.session(9), "me") == []
    assert board.finished()
    assert list(board.partitions()) == []
    assert board.summary().total.partitions == 0


# a claim's life


def test_from_claim_to_ack(store: Store) -> None:
    board, session = register(store, "r", 25, 10), store.session(9)
    claims = board.claim(session, "me", 9)
    assert [str(claim.range) for claim in claims] == ["0-10", "10-20", "20-25"]
    assert board.claim(session, "me") == []
    assert not board.finished()
    board.save_checkpoint(claims[0], CheckpointRef(1, claims[0].token, "d"))
    board.ack(claims[0], "digest")
    board.ack(claims[0], "digest")
    board.release(claims[1])
    assert board.fail(claims[2], "boom") is PartitionState.PENDING
    summary = board.summary()
    assert (summary.completed.rows, summary.pending.rows, summary.failures) == (10, 15, 1)
    finish(board, session, "me")
    assert_exact(board)
    assert next(board.partitions()).digest == "digest"


def test_a_checkpoint_is_handed_to_the_next_owner(store: Store, clock: Clock) -> None:
    board, first = register(store, "r", 30, 10), store.session(9)
    claim = board.claim(first, "first")[0]
    refs = (CheckpointRef(1, claim.token, "a"), CheckpointRef(2, claim.token, "b"))
    for ref in refs:
        board.save_checkpoint(claim, ref)
    clock.now += 10
    taken = Board.open(store, "r").claim(store.session(9), "second")[0]
    assert (taken.range, taken.checkpoints, taken.attempts) == (claim.range, refs, 1)
    board.drop_checkpoint(taken, 2)
    assert next(board.partitions()).checkpoints == refs[:1]


def test_a_zombie_finds_everything_refused(store: Store, clock: Clock) -> None:
    board, session = register(store, "r", 30, 10), store.session(9)
    claim = board.claim(session, "zombie")[0]
    for taken_over in (False, True):
        clock.now += 10
        if taken_over:
            board.claim(store.session(9), "other", 3)
        kind = StaleToken if taken_over else SessionLost
        for act in (
            lambda: board.ack(claim, "d"),
            lambda: board.save_checkpoint(claim, CheckpointRef(1, 1, "d")),
            lambda: board.release(claim),
            lambda: board.fail(claim, "boom"),
        ):
            with pytest.raises(kind):
                act()
        assert isinstance(board.renew([claim])[claim.range], kind)
        with pytest.raises(SessionLost):
            board.claim(session, "zombie")


def test_renew_tells_which_are_lost(store: Store) -> None:
    board, session = register(store, "r", 30, 10), store.session(9)
    kept, lost = board.claim(session, "me", 2)
    board.force_release(lost.range)
    assert list(board.renew([kept, lost])) == [lost.range]
    assert board.renew([]) == {}


def test_a_failing_partition_is_set_aside_and_retried_on_command(store: Store) -> None:
    board, session = register(store, "r", 10, 10, max_failures=2), store.session(9)
    assert board.fail(board.claim(session, "me")[0], "one") is PartitionState.PENDING
    assert board.fail(board.claim(session, "me")[0], "two") is PartitionState.POISONED
    assert board.claim(session, "me") == []
    assert board.finished()
    assert [e.error for e in next(board.partitions([PartitionState.POISONED])).errors] == ["one", "two"]
    board.retry(Range(0, 10))
    assert not board.finished()
    finish(Board.open(store, "r"), session, "me")
    assert_exact(board)


def test_explicit_ranges_are_all_or_nothing_across_shards(store: Store) -> None:
    board, session = register(store, "r", 3000, 10), store.session(9)
    far = Range(SHARD_PARTITIONS * 10 + 5, SHARD_PARTITIONS * 10 + 35)
    (held,) = board.claim_ranges(session, "me", [far])
    with pytest.raises(RangeOverlap):
        board.claim_ranges(session, "me", [Range(0, 7), Range(far.begin, far.begin + 1)])
    assert board.summary().claimed.rows == far.rows
    with pytest.raises(UsageError, match="no partition may"):
        board.claim_ranges(session, "me", [Range(0, 2000)])
    with pytest.raises(UsageError, match="outside"):
        board.claim_ranges(session, "me", [Range(2990, 3001)])
    board.ack(held, "d")
    finish(board, session, "me", 16)
    assert_exact(board)


def test_operators_errors_are_typed(store: Store) -> None:
    board = register(store, "r", 30, 10)
    with pytest.raises(UnknownPartition):
        board.retry(Range(0, 10))
    board.poison(Range(0, 10), "bad rows")
    with pytest.raises(UsageError, match="poisoned and cannot be released"):
        board.force_release(Range(0, 10))


# views


def test_views_stream_untouched_partitions_and_start_anywhere(store: Store) -> None:
    board, session = register(store, "r", 10**8, 10), store.session(9)
    board.claim_ranges(session, "me", [Range(5_000_003, 5_000_007)])
    views = board.partitions(begin=4_999_990)
    found = [(str(view.range), view.state) for view, _ in zip(views, range(4), strict=False)]
    assert found == [
        ("4999990-5000000", PartitionState.PENDING),
        ("5000000-5000003", PartitionState.PENDING),
        ("5000003-5000007", PartitionState.CLAIMED),
        ("5000007-5000010", PartitionState.PENDING),
    ]
    (only,) = board.partitions([PartitionState.CLAIMED])
    assert (only.owner, only.alive) == ("me", True)
    session.close()
    summary = board.summary()
    assert (summary.total.partitions, summary.total.rows) == (10**7 + 2, 10**8)
    assert (summary.claimed.rows, summary.expired.rows) == (4, 4)


def test_wait_sees_what_happened_since_nothing_was_found(store: Store) -> None:
    board, session = register(store, "r", 10, 10), store.session(9)
    other = Board.open(store, "r")
    claim = board.claim(session, "me")[0]
    assert other.claim(session, "other") == []
    assert not other.wait(0.05)
    board.release(claim)
    assert other.wait(5)
    assert other.claim(session, "other")


# the directory


def test_retry_is_seen_by_a_board_that_knew_the_shard_as_done(store: Store) -> None:
    board, session = register(store, "r", 3000, 10, max_failures=1), store.session(9)
    broken = board.claim(session, "me")[0]
    board.fail(broken, "boom")
    finish(board, session, "me", 16)
    assert board.finished()
    assert list(board._directory.undone(0)) == []
    Board.open(store, "r").retry(broken.range)
    assert [claim.range for claim in board.claim(session, "me", 5)] == [broken.range]


class Interleaved(MemoryStore):
    """Runs something once, just before the next write to a key under ``prefix``."""

    def __init__(self) -> None:
        super().__init__()
        self.before: tuple[str, object] | None = None

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        if self.before and key.startswith(self.before[0]):
            _, act = self.before
            self.before = None
            assert callable(act)
            act()
        return super().cas(key, expected, value)


def test_a_retry_beats_a_racing_note_that_the_shard_is_done() -> None:
    store = Interleaved()
    board, session = register(store, "r", 20, 10, max_failures=1), store.session(9)
    broken, last = board.claim(session, "me", 2)
    board.fail(broken, "boom")
    store.before = ("runs/r/done/", lambda: Board.open(store, "r").retry(broken.range))
    board.ack(last, "d")
    assert [claim.range for claim in board.claim(session, "me")] == [broken.range]


def test_a_retry_that_died_half_way_is_mended() -> None:
    store = MemoryStore()
    board, session = register(store, "r", 10, 10, max_failures=1), store.session(9)
    board.fail(board.claim(session, "me")[0], "boom")
    broken = Board.open(store, "r")
    broken._directory.clear = lambda shard: None  # type: ignore[method-assign]
    broken.retry(Range(0, 10))
    board = Board.open(store, "r")
    assert board.claim(session, "me") == []
    assert not board.finished()
    assert board.claim(session, "me")


# faults and races


class Flaky(MemoryStore):
    """Fails now and then: before a write, or after it, which the caller cannot tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.down = 0

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        self.calls += 1
        if self.down:
            self.down -= 1
            raise StoreUnavailable
        if self.calls % 3 == 0:
            raise StoreUnavailable
        done = super().cas_many(writes)
        if self.calls % 3 == 1:
            raise StoreUnavailable
        return done


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.control.claims.combiner.time.sleep", lambda seconds: None)


@pytest.mark.usefixtures("impatient")
def test_unknown_outcomes_neither_lose_nor_double(store: Store) -> None:
    store = Flaky()
    board, session = register(store, "r", 3000, 10), store.session(9)
    claims: list[Claim] = []
    while got := board.claim(session, "me", 3):
        claims += got
        for claim in got[:-1]:
            board.ack(claim, "d")
        board.release(got[-1])
        if len(claims) > 600:
            break
    tokens = Counter((claim.range, claim.token) for claim in claims)
    assert max(tokens.values()) == 1
    finish(board, session, "me", 16)
    assert_exact(board)
    assert board.summary().failures == 0


@pytest.mark.usefixtures("impatient")
def test_a_claim_whose_answer_never_came_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Flaky()
    board, session = register(store, "r", 10, 10), store.session(9)
    store.calls = 1

    def lose_answer(writes: Sequence[Write]) -> Sequence[int | None]:
        MemoryStore.cas_many(store, writes)
        raise StoreUnavailable

    # Each try applies it or finds that it was applied; none of them can say so.
    with monkeypatch.context() as broken:
        broken.setattr(store, "cas_many", lose_answer)
        broken.setattr(store, "get_many", _unavailable_after_first(store))
        with pytest.raises(StoreUnavailable):
            board.claim(session, "me")
    assert board.summary().claimed.rows == 10
    assert [str(claim.range) for claim in board.claim(session, "me")] == ["0-10"]


def _unavailable_after_first(store: Store) -> Callable[[Sequence[str]], Sequence[Document | None]]:
    reads = iter([store.get_many])

    def get_many(keys: Sequence[str]) -> Sequence[Document | None]:
        for read in reads:
            return read(keys)
        raise StoreUnavailable

    return get_many


def test_threads_share_commits_and_lose_nothing(sqlite: SqliteStore) -> None:
    board, session = register(sqlite, "r", 4000, 10), sqlite.session(60)
    done: list[Claim] = []

    def work(name: str) -> None:
        done.extend(finish(board, session, name, 4))

    threads = [threading.Thread(target=work, args=(f"w{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(Counter(claim.range for claim in done).values()) == 1
    assert len(done) == 400
    assert_exact(board)


def test_acks_of_many_threads_share_a_commit(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    board, session = register(sqlite, "r", 320, 10), sqlite.session(60)
    claims = board.claim(session, "me", 32)
    commits = []
    write = sqlite.cas_many

    def slow(writes: Sequence[Write]) -> Sequence[int | None]:
        commits.append(len(writes))
        time.sleep(0.05)
        return write(writes)

    monkeypatch.setattr(sqlite, "cas_many", slow)
    threads = [threading.Thread(target=board.ack, args=(claim, "d")) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commits) < 10
    assert_exact(board)


WORKER = """
import sys
from penstock.control.claims import Board
from penstock.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
board, session, owner = Board.open(store, "r"), store.session(60), sys.argv[2]
while claims := board.claim(session, owner, 3):
    for claim in claims:
        board.ack(claim, owner)
        print(claim.range, flush=True)
"""


def test_processes_share_a_run_and_one_may_be_killed(sqlite: SqliteStore) -> None:
    board = register(sqlite, "r", 6000, 10)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(sqlite.path), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("w0", "w1", "victim")
    ]
    victim = workers[2]
    assert victim.stdout is not None
    acked = [victim.stdout.readline().strip() for _ in range(20)]
    victim.kill()
    outputs = [worker.communicate(timeout=60)[0].split() for worker in workers]
    acked += [line for output in outputs for line in output]
    assert max(Counter(acked).values()) == 1
    states = {str(view.range): view.state for view in board.partitions()}
    assert all(states[rows] is PartitionState.COMPLETED for rows in acked)
    left = list(board.partitions([PartitionState.PENDING, PartitionState.CLAIMED]))
    assert all(view.owner == "victim" for view in left)
    for view in left:
        board.force_release(view.range)
    finish(board, sqlite.session(60), "me", 16)
    assert_exact(board)


def test_a_million_partitions_cost_no_more(sqlite: SqliteStore) -> None:
    session = sqlite.session(60)
    board = register(sqlite, "large", 10**6 * 100, 100)
    began = time.perf_counter()
    claims = board.claim(session, "me", 300)
    board.ack_many([(claim, "d") for claim in claims])
    assert len(claims) == 300
    assert len(board.claim(session, "me", 300)) == 300
    assert time.perf_counter() - began < 60
    assert len(sqlite.list("runs/large/")) < 8
    assert board.summary().total.partitions == 10**6


def test_an_owner_in_a_dead_session_cannot_even_be_refused_twice(store: Store, clock: Clock) -> None:
    board, session = register(store, "r", 30, 10), store.session(9)
    claims = board.claim(session, "me", 3)
    clock.now += 10
    lost = board.ack_many([(claim, "d") for claim in claims])
    assert len(lost) == 3
    assert all(isinstance(error, FencedError) for error in lost.values())
    assert board.summary().completed.rows == 0
