"""Members come and go; the store judges who is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.model import Member
from penstock.errors import StoreUnavailable, UsageError
from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore
from tests.control.cluster.support import KEYS, Clock, Line, cut


class Office:
    """A roster on a store whose clock the test moves."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.roster = Roster(self.store, KEYS)

    def member(self, name: str, ttl: float = 6.0) -> Member:
        return Member(name, self.store.session(ttl).id, "1")

    def join(self, name: str, ttl: float = 6.0) -> Member:
        member = self.member(name, ttl)
        self.roster.join(member)
        return member


@pytest.fixture
def office() -> Office:
    return Office()


def test_members_are_listed_in_order_of_their_ids(office: Office) -> None:
    ben, ann = office.join("ben"), office.join("ann")
    assert office.roster.live() == office.roster.all() == [ann, ben]
    assert Roster(office.store, replace(KEYS, cluster="other")).all() == []


def test_everything_a_member_says_is_there(office: Office) -> None:
    member = replace(
        office.member("ann"),
        capacity=4,
        addresses={"peer": "127.0.0.1:7"},
        role="batch",
        serves=False,
        catalog=3,
        joined="noon",
    )
    office.roster.join(member)
    assert office.roster.live() == [member]


def test_to_join_again_is_harmless(office: Office) -> None:
    ann = office.join("ann")
    before = office.store.revision()
    office.roster.join(ann)
    assert office.store.revision() == before


def test_a_member_changes_its_own_entry(office: Office) -> None:
    ann = office.join("ann")
    office.roster.join(replace(ann, leaving=True))
    assert office.roster.live() == [replace(ann, leaving=True)]


def test_an_id_is_refused_while_its_owner_lives(office: Office) -> None:
    ann = office.join("ann")
    with pytest.raises(UsageError, match="'ann'") as caught:
        office.join("ann")
    assert caught.value.hint
    assert office.roster.all() == [ann]


def test_an_id_is_free_once_its_owner_is_gone(office: Office) -> None:
    office.join("ann")
    office.clock.move(6)
    again = office.join("ann")
    assert office.roster.live() == [again]


def test_of_two_who_want_the_same_id_one_gets_it(office: Office) -> None:
    line = Line(office.store, office.clock)
    second = office.member("ann")
    winners: list[Member] = []

    def overtake(call: str, key: str) -> None:
        if call == "cas" and not winners:
            winners.append(office.join("ann"))

    line.before = overtake
    with pytest.raises(UsageError, match="another instance"):
        Roster(line, KEYS).join(second)
    assert office.roster.all() == winners


def test_a_join_whose_answer_was_lost_is_repeated(office: Office) -> None:
    line = Line(office.store, office.clock)
    line.after = lambda call, key: cut(call, key) if call == "cas" else None
    ann = office.member("ann")
    with pytest.raises(StoreUnavailable):
        Roster(line, KEYS).join(ann)
    line.after = lambda call, key: None
    Roster(line, KEYS).join(ann)
    assert office.roster.live() == [ann]


def test_who_leaves_is_gone(office: Office) -> None:
    ann, ben = office.join("ann"), office.join("ben")
    office.roster.leave(ann)
    office.roster.leave(ann)
    assert office.roster.all() == [ben]


def test_leaving_touches_no_successor(office: Office) -> None:
    first = office.join("ann")
    office.clock.move(6)
    second = office.join("ann")
    office.roster.leave(first)
    assert office.roster.all() == [second]


def test_the_dead_are_not_live_and_are_swept(office: Office) -> None:
    office.join("ann", ttl=2)
    ben = office.join("ben")
    office.clock.move(1.999)
    assert len(office.roster.live()) == 2
    office.clock.move(0.001)
    assert office.roster.live() == [ben]
    assert len(office.roster.all()) == 2
    assert office.roster.sweep() == [ben]
    assert office.roster.all() == [ben]


def test_a_sweep_spares_who_took_the_id_of_a_dead_one(office: Office) -> None:
    office.join("ann")
    office.clock.move(6)
    line = Line(office.store, office.clock)
    back: list[Member] = []

    def come_back(call: str, key: str) -> None:
        if call == "alive" and not back:
            back.append(office.join("ann"))

    line.after = come_back
    assert Roster(line, KEYS).sweep() == []
    assert office.roster.live() == back


# watching


def test_a_watch_returns_at_once_when_members_differ(office: Office) -> None:
    ann = office.join("ann")
    assert office.roster.watch([], 60) == [ann]


def test_a_watch_ends_with_its_time(office: Office) -> None:
    ann = office.join("ann")
    assert office.roster.watch([ann], 0) == [ann]
    line = Line(office.store, office.clock)
    watching = Roster(line, KEYS)
    assert watching.watch([ann], 3, office.clock) == [ann]
    assert office.clock.now == pytest.approx(103)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    with SqliteStore(tmp_path / "store.db") as opened:
        yield opened


class Watcher(threading.Thread):
    """Watches in the background; ``seconds`` is how long it took until something was seen."""

    def __init__(self, store: Store, known: list[Member]) -> None:
        super().__init__(daemon=True)
        self.store, self.known = store, known
        self.found: list[Member] = []
        self.seen = 0.0
        self.start()

    def run(self) -> None:
        self.found = Roster(self.store, KEYS).watch(self.known, 60)
        self.seen = time.monotonic()


def test_a_join_is_seen_at_once(store: Store) -> None:
    watcher = Watcher(store, [])
    ann = Member("ann", store.session(60).id, "1")
    Roster(store, KEYS).join(ann)
    began = time.monotonic()
    watcher.join(60)
    assert watcher.found == [ann]
    assert watcher.seen - began < 1


def test_a_death_is_seen_within_a_second(store: Store) -> None:
    roster, sessions = Roster(store, KEYS), (store.session(0.5), store.session(60))
    ann, ben = Member("ann", sessions[0].id, "1"), Member("ben", sessions[1].id, "1")
    roster.join(ann)
    roster.join(ben)
    sessions[0].keepalive()
    expires = time.monotonic() + 0.5
    watcher = Watcher(store, [ann, ben])
    watcher.join(60)
    assert watcher.found == [ben]
    assert watcher.seen - expires < 1
