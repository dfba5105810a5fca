"""Instances that a test moves by hand, over a store whose every call it can hold up or cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from penstock.config import ClusterConfig
from penstock.control.cluster.candidate import Candidate
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.leader import Duties
from penstock.control.cluster.participant import EpochWork, Participant, Participation
from penstock.control.cluster.rules.assignment import part_owners
from penstock.control.cluster.rules.model import Barrier, Control, Decision, Member, Outcome, Scope, Snapshot
from penstock.errors import StoreUnavailable
from penstock.store.base import Changes, Document, Session, Store
from penstock.store.memory import MemoryStore

T = TypeVar("T")

KEYS = Keys("test")
CONFIG = ClusterConfig("test", vnodes=16, history=8)
SCOPE = "s"
SOURCE = "numbers"
PARTS = tuple(f"p{i}" for i in range(6))


def until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Wait for a condition; the value it became true with."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"did not happen within {seconds} s: {what}")


class Clock:
    """A clock that only the test moves."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class Line(Store):
    """One process's way to a store. A test may act before and after each call, and while it waits."""

    url = "line:"

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda call, key: None
        self.after: Callable[[str, str], None] = lambda call, key: None
        self.idle: Callable[[], None] = lambda: None

    def get(self, key: str) -> Document | None:
        return self._pass("get", key, lambda: self._store.get(key))

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        return self._pass("cas", key, lambda: self._store.cas(key, expected, value))

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        return self._pass("list", prefix, lambda: self._store.list(prefix, after, limit))

    def revision(self) -> int:
        return self._pass("revision", "", self._store.revision)

    def session(self, ttl: float) -> Session:
        return self._pass("session", "", lambda: self._store.session(ttl))

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        return self._pass("alive", "", lambda: self._store.alive(sessions))

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        """Lets the others act in place of waiting; if that brings nothing, the time is over at once."""
        return self._pass("watch", prefix, lambda: self._watch(prefix, since, timeout))

    def close(self) -> None:
        """The store is the test's."""

    def _watch(self, prefix: str, since: int, timeout: float) -> Changes:
        found = self._store.watch(prefix, since, 0)
        if not found.changes:
            self.idle()
            found = self._store.watch(prefix, since, 0)
        if not found.changes:
            self._clock.move(timeout)
        return found

    def _pass(self, call: str, key: str, ask: Callable[[], T]) -> T:
        self.calls.append((call, key))
        self.before(call, key)
        answer = ask()
        self.after(call, key)
        return answer


def cut(call: str, key: str) -> None:
    """For `Line.before`: no call comes through. For `Line.after`: no answer comes back."""
    raise StoreUnavailable(f"{call} {key} was cut")


class Counting(Participant):
    """Owns its share of `PARTS` and counts, for each part, the epochs that it has worked on.

    A count is the part's state. It refuses to own what was not committed, and logs all calls.
    """

    def __init__(self, member: str) -> None:
        self.member = member
        self.log: list[str] = []
        self.owned: dict[str, int] = {}
        self.watermark: int | None = None
        self.on_prepare: Callable[[Barrier], None] = lambda barrier: None
        self.on_patience: Callable[[], float] = lambda: 0.0
        self._ahead: dict[str, int] = {}

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        self.log.append(f"assigned {snapshot.version}")
        states: Mapping[str, str] = committed.states if committed else {}
        owners = part_owners(snapshot, SOURCE, PARTS)
        self.owned = {part: int(states.get(part, 0)) for part in PARTS if owners.get(part) == self.member}

    def patience(self) -> float:
        return self.on_patience()

    def prepare(self, barrier: Barrier) -> EpochWork:
        self.log.append(f"{barrier.kind} {barrier.epoch}")
        self.on_prepare(barrier)
        self._ahead = {part: count + 1 for part, count in self.owned.items()}
        states = {part: str(count) for part, count in self._ahead.items()}
        return EpochWork(
            states, f"{self.member}@{barrier.epoch}", (f"{self.member}/{barrier.epoch}",), self.watermark
        )

    def committed(self, epoch: int) -> None:
        self.log.append(f"committed {epoch}")
        self.owned = self._ahead

    def aborted(self, epoch: int) -> None:
        self.log.append(f"aborted {epoch}")

    def fenced(self) -> None:
        self.log.append("fenced")
        self.owned = {}


class Instance:
    """A member with everything that it runs, without threads. Its lease and session last until moved on."""

    def __init__(
        self,
        world: World,
        name: str,
        config: ClusterConfig,
        capacity: int = 1,
        clock: Clock | None = None,
    ) -> None:
        self.world = world
        clock = clock or world.clock
        self.line = Line(world.store, world.clock)
        self.line.idle = world.take_part
        self.session = world.store.session(config.member_ttl)
        self.member = Member(name, self.session.id, "1", capacity)
        self.room, self.records = Room(self.line, KEYS), Records(self.line, KEYS)
        self.roster = Roster(self.line, KEYS)
        self.candidate = Candidate(self.room, name, f"{name}#{self.session.id}", config, clock)
        self.participant = Counting(name)
        patience = {SCOPE: self.participant.patience}
        self.duties = Duties(
            self.room,
            self.records,
            self.roster,
            self.candidate,
            config,
            {},
            clock,
            world.pause,
            patience=patience,
        )
        own = Line(world.store, world.clock)
        self.part = Participation(
            Room(own, KEYS), Records(own, KEYS), SCOPE, self.member.seat, self.participant
        )
        self.roster.join(self.member)

    def leads(self) -> Instance:
        """Take or renew the lease."""
        self.candidate.step()
        assert self.candidate.held is not None, "did not get the lease"
        return self

    def epoch(self) -> Decision:
        """Drive one epoch as leader."""
        self.duties.step()
        decision = self.duties.epoch(SCOPE)
        assert decision is not None
        return decision

    def fall_silent(self) -> None:
        """Stay alive and answer no more; whoever leads keeps its lease while it waits."""
        self.world.instances.remove(self)

        def idle() -> None:
            self.session.keepalive()
            self.world.renew()

        for other in self.world.instances:
            other.line.idle = idle

    def die(self) -> None:
        """Gone for the store and for good."""
        self.session.close()
        self.world.instances.remove(self)


class World:
    """A store, a clock that only the test moves, and instances."""

    def __init__(self, *names: str, config: ClusterConfig = CONFIG) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.config = config
        self.instances: list[Instance] = []
        for name in names:
            self.join(name)

    def join(self, name: str, capacity: int = 1, clock: Clock | None = None) -> Instance:
        """A new instance; with a ``clock`` of its own it does not notice how time goes by for the others."""
        instance = Instance(self, name, self.config, capacity, clock)
        self.instances.append(instance)
        return instance

    def take_part(self) -> None:
        """Everybody who is there looks at the barriers."""
        for instance in self.instances:
            instance.part.step()

    def pause(self, seconds: float) -> None:
        """What a leader does between two tries."""
        self.clock.move(seconds)
        self.take_part()

    def pass_time(self, seconds: float) -> None:
        """Time goes by for leases, while everybody keeps the session alive."""
        for _ in range(round(seconds)):
            self.clock.move(1)
            for instance in self.instances:
                instance.session.keepalive()

    def renew(self) -> None:
        """Everybody keeps the session alive, the leader its lease, and looks at the barriers."""
        for instance in self.instances:
            instance.session.keepalive()
            if instance.candidate.held is not None:
                instance.candidate.step()
        self.take_part()

    def take_over(self, instance: Instance) -> Instance:
        """``instance`` finds the lease expired and takes it."""
        instance.candidate.step()
        self.pass_time(self.config.lease_ttl)
        return instance.leads()

    @property
    def control(self) -> Control:
        return Room(self.store, KEYS).read()

    @property
    def scope(self) -> Scope:
        return self.control.scope(SCOPE)

    @property
    def decisions(self) -> dict[int, Decision]:
        return {decision.epoch: decision for decision in Records(self.store, KEYS).decisions(SCOPE)}

    @property
    def assignments(self) -> list[Snapshot]:
        return list(Records(self.store, KEYS).assignments())

    @property
    def counts(self) -> dict[str, int]:
        """The state of each part at the last committed epoch."""
        decision = Records(self.store, KEYS).decision(SCOPE, self.scope.committed)
        return {part: int(state) for part, state in decision.states.items()} if decision else {}

    @property
    def owners(self) -> set[str]:
        """Those who own at least one virtual node."""
        assignment = self.control.assignment
        return {assignment.seats[index].member for index in assignment.owners}

    def assert_consistent(self) -> None:
        """Every part was worked on once in every epoch that was committed."""
        committed = [d for d in self.decisions.values() if d.outcome is Outcome.COMMIT]
        assert [d.previous for d in committed] == [0, *(d.epoch for d in committed[:-1])]
        assert self.counts == dict.fromkeys(PARTS, len(committed))


def refuse(barrier: Barrier) -> None:
    """For `Counting.on_prepare`."""
    raise OSError(f"cannot do {barrier.epoch}")


def follow(barrier: Barrier) -> None:
    """For `Counting.on_prepare`: nothing special."""


def bare(decision: Decision) -> Decision:
    """Without what differs from one try to the next."""
    return replace(decision, seconds=0.0, at="", request="")
