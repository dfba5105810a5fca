"""Who runs an output: one at a time, with a token that grows, as long as its session lives."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.errors import StaleToken, UsageError
from penstock.store.base import Session
from penstock.store.memory import MemoryStore
from penstock.streams.layout import Layout
from penstock.streams.outputs.claims import OutputClaim, OutputClaims

LAYOUT = Layout("clicks", "0001")


class Before(MemoryStore):
    """A store in which something happens right before a write."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] | None = None

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().cas(key, expected, value)


@pytest.fixture
def store() -> Before:
    return Before()


@pytest.fixture
def claims(store: Before) -> OutputClaims:
    return OutputClaims(store, LAYOUT)


@pytest.fixture
def ann(store: Before) -> Session:
    return store.session(30.0)


@pytest.fixture
def ben(store: Before) -> Session:
    return store.session(30.0)


def taken(claims: OutputClaims, member: str, session: Session, output: str = "counts") -> OutputClaim:
    claim = claims.take(output, member, session.id)
    assert claim is not None
    return claim


def test_an_output_that_nobody_runs_can_be_taken(claims: OutputClaims, ann: Session) -> None:
    assert claims.read("counts") == OutputClaim()
    assert taken(claims, "ann", ann) == OutputClaim("ann", ann.id, 1) == claims.read("counts")


def test_an_output_of_somebody_alive_cannot_be_taken(
    claims: OutputClaims, ann: Session, ben: Session
) -> None:
    first = taken(claims, "ann", ann)
    assert claims.take("counts", "ben", ben.id) is None
    assert claims.read("counts") == first


def test_taking_again_changes_nothing(claims: OutputClaims, ann: Session) -> None:
    first = taken(claims, "ann", ann)
    claims.update("counts", first.token, batch=3, epoch=9)
    assert taken(claims, "ann", ann) == OutputClaim("ann", ann.id, 1, batch=3, epoch=9)


def test_the_output_of_the_dead_is_taken_over_where_it_stood(
    claims: OutputClaims, ann: Session, ben: Session
) -> None:
    first = taken(claims, "ann", ann)
    claims.update("counts", first.token, batch=3, epoch=9, problem="the disk is full")
    ann.close()
    assert taken(claims, "ben", ben) == OutputClaim("ben", ben.id, 2, batch=3, epoch=9, problem="")


def test_a_member_that_comes_back_under_another_session_has_another_token(
    claims: OutputClaims, store: Before, ann: Session
) -> None:
    taken(claims, "ann", ann)
    again = store.session(30.0)
    assert claims.take("counts", "ann", again.id) is None
    ann.close()
    assert taken(claims, "ann", again).token == 2


def test_one_of_two_takers_wins(claims: OutputClaims, store: Before, ann: Session, ben: Session) -> None:
    store.before = lambda: taken(claims, "ben", ben)
    assert claims.take("counts", "ann", ann.id) is None
    assert claims.read("counts") == OutputClaim("ben", ben.id, 1)


def test_one_of_many_takers_wins(claims: OutputClaims, store: Before) -> None:
    sessions = [store.session(30.0) for _ in range(8)]
    together, found = threading.Barrier(len(sessions)), list[OutputClaim | None]()

    def take(session: Session) -> None:
        together.wait(10.0)
        found.append(claims.take("counts", session.id, session.id))

    threads = [threading.Thread(target=take, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert len(found) == len(sessions)
    assert [claim for claim in found if claim is not None] == [claims.read("counts")]


def test_an_owner_that_was_replaced_can_change_nothing(
    claims: OutputClaims, ann: Session, ben: Session
) -> None:
    first = taken(claims, "ann", ann)
    ann.close()
    second = taken(claims, "ben", ben)
    with pytest.raises(StaleToken, match="run by ben with token 2, and no longer with 1"):
        claims.update("counts", first.token, batch=4)
    with pytest.raises(StaleToken):
        claims.release("counts", first.token)
    assert claims.read("counts") == second


def test_an_owner_that_is_replaced_in_the_middle_of_a_write_changes_nothing(
    claims: OutputClaims, store: Before, ann: Session, ben: Session
) -> None:
    first = taken(claims, "ann", ann)

    def replaced() -> None:
        ann.close()
        taken(claims, "ben", ben)

    store.before = replaced
    with pytest.raises(StaleToken):
        claims.update("counts", first.token, batch=4)
    assert claims.read("counts") == OutputClaim("ben", ben.id, 2)


def test_changes_of_one_owner_from_two_threads_are_both_kept(
    claims: OutputClaims, store: Before, ann: Session
) -> None:
    token = taken(claims, "ann", ann).token
    store.before = lambda: claims.update("counts", token, problem="slow")
    claims.update("counts", token, batch=4, epoch=12)
    assert claims.read("counts") == OutputClaim("ann", ann.id, 1, 4, 12, problem="slow")


def test_a_change_that_was_made_before_writes_nothing(
    claims: OutputClaims, store: Before, ann: Session
) -> None:
    token = taken(claims, "ann", ann).token
    claims.update("counts", token, batch=4)
    before = store.revision()
    assert claims.update("counts", token, batch=4).batch == 4
    assert store.revision() == before


def test_what_is_safe_never_goes_back(claims: OutputClaims, store: Before, ann: Session) -> None:
    token = taken(claims, "ann", ann).token
    assert claims.update("counts", token, safe=-1).safe == -1
    # Two more batches pass while another thread says what it knew before them.
    store.before = lambda: claims.update("counts", token, batch=5, safe=4)
    assert claims.update("counts", token, safe=3).safe == 4
    assert claims.update("counts", token, safe=5, problem="slow").safe == 5
    assert claims.update("counts", token, safe=None, problem="").safe == 5
    assert claims.read("counts") == OutputClaim("ann", ann.id, 1, 5, safe=5)


@pytest.mark.parametrize(
    ("batch", "safe", "synced"),
    [(-1, None, None), (5, None, None), (5, 3, 4), (5, 4, 4), (5, 5, 5), (5, 6, 5)],
)
def test_what_the_next_owner_may_rely_on(batch: int, safe: int | None, synced: int | None) -> None:
    # 3 and 6 are what an earlier version may have written.
    assert OutputClaim(batch=batch, safe=safe).synced == synced


def test_an_output_that_was_let_go_can_be_taken_at_once(
    claims: OutputClaims, ann: Session, ben: Session
) -> None:
    token = taken(claims, "ann", ann).token
    claims.update("counts", token, batch=4)
    claims.release("counts", token)
    assert taken(claims, "ben", ben) == OutputClaim("ben", ben.id, 2, 4)


def test_all_claims_are_told_by_output(claims: OutputClaims, store: Before, ann: Session) -> None:
    taken(claims, "ann", ann, "counts")
    taken(claims, "ann", ann, "totals")
    store.cas(f"{LAYOUT.output_key('counts')}/sink", 0, b"of the sink")
    OutputClaims(store, Layout("clicks", "0002")).take("others", "ann", ann.id)
    assert {name: claim.token for name, claim in claims.all().items()} == {"counts": 1, "totals": 1}


def test_a_claim_of_another_format_is_refused(claims: OutputClaims, store: Before) -> None:
    store.cas(LAYOUT.output_key("counts"), 0, b'{"format": 99}')
    with pytest.raises(UsageError, match="format 99"):
        claims.read("counts")
