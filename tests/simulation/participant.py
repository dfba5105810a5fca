"""A participant whose parts count: enough to see whether a state was lost, repeated, or worked on twice.

The state of a part is ``"base>value"``: the committed value that its owner began with, and what it came to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.control.cluster.participant import EpochWork, Participant
from penstock.control.cluster.rules.assignment import part_owners
from penstock.control.cluster.rules.model import Barrier, BarrierKind, Decision, Snapshot

if TYPE_CHECKING:
    from tests.simulation.invariants import Referee
    from tests.simulation.weather import Weather
    from tests.simulation.world import Host, World

PARTS = ("p0", "p1", "p2")


class Grumble(Exception):
    """Raised by a participant in a bad mood."""


def base_of(state: str) -> int:
    """What its owner began with."""
    return int(state.partition(">")[0])


def value_of(state: str | None) -> int:
    """What a part had counted up to."""
    return int(state.partition(">")[2]) if state else 0


class Counter(Participant):
    """One instance's counters in one scope."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        referee: Referee,
        host: Host,
        member: str,
        scope: str,
        session: Callable[[], str],
        lives: Callable[[], bool],
    ) -> None:
        self._world = world
        self._weather = weather
        self._referee = referee
        self._host = host
        self._member = member
        self._scope = scope
        self._session = session
        self._lives = lives
        self.version = 0
        self._values: dict[str, int] = {}
        self._pending: dict[str, int] = {}
        self._barrier: Barrier | None = None
        self._at_work: tuple[str, int] | None = None
        """The session and the epoch for which it is asked at this moment."""

    def assigned(self, snapshot: Snapshot, committed: Decision | None) -> None:
        self._expect(self._lives(), "assigned after its session was given up")
        self._expect(self._barrier is None, "assigned between prepare and its outcome")
        self._grumble()
        states: Mapping[str, str] = committed.states if committed else {}
        owners = part_owners(snapshot, self._scope, PARTS)
        for part in self._values:
            if owners.get(part) != self._member:
                self._stop(part)
        self._values = {p: value_of(states.get(p)) for p in PARTS if owners.get(p) == self._member}
        self.version = snapshot.version
        self._say(f"is assigned version {snapshot.version}: {self._values}")
        for part in self._values:
            self._start(part)

    def prepare(self, barrier: Barrier) -> EpochWork:
        self._expect(self._lives(), f"asked for epoch {barrier.epoch} after its session was given up")
        self._expect(self._barrier is None, f"asked for epoch {barrier.epoch} before the last one ended")
        self._barrier, self._pending = barrier, {}
        self._at_work = (self._session(), barrier.epoch)
        try:
            return self._prepared(barrier)
        finally:
            self._at_work = None

    def _prepared(self, barrier: Barrier) -> EpochWork:
        for part in self._values:
            if barrier.kind is BarrierKind.DRAIN:
                self._stop(part)
            else:
                self._start(part)
        mood = self._weather.mood()
        if mood == "slow":
            self._world.sleep(self._world.random.uniform(0.2, 8.0))
        if mood == "raising":
            raise Grumble("not today")
        if mood == "refusing":
            return EpochWork(refusal="not today")
        return self._work()

    def committed(self, epoch: int) -> None:
        self._grumble()
        self._settle(epoch, committed=True)
        self._values |= self._pending

    def aborted(self, epoch: int) -> None:
        self._grumble()
        self._settle(epoch, committed=False)
        for part in self._values:
            self._start(part)

    def fenced(self) -> None:
        self._grumble()
        self._say("is fenced")
        if self._at_work is not None:
            session, epoch = self._at_work
            self._referee.fenced_at_work(session, self._scope, epoch)
        for part in self._values:
            self._stop(part)
        self._values, self._pending, self._barrier, self.version = {}, {}, None, 0

    def _work(self) -> EpochWork:
        random = self._world.random
        self._pending = {part: value + random.randrange(4) for part, value in self._values.items()}
        states = {part: f"{self._values[part]}>{value}" for part, value in self._pending.items()}
        # It may go back here: the cluster's must not.
        watermark = int(self._world.now * 10) + random.randrange(-40, 1) if random.random() < 0.8 else None
        return EpochWork(states, watermark=watermark)

    def _settle(self, epoch: int, committed: bool) -> None:
        barrier, self._barrier = self._barrier, None
        asked = barrier.epoch if barrier else None
        self._expect(asked == epoch, f"heard of epoch {epoch}, but was asked for {asked}")
        self._say(f"hears that epoch {epoch} is {'committed' if committed else 'aborted'}")
        self._referee.heard(self._host, self._scope, epoch, committed)

    def _grumble(self) -> None:
        """Fail once in a while. Whoever called must call again."""
        if self._weather.grumbles():
            self._say("grumbles")
            raise Grumble("not now")

    def _start(self, part: str) -> None:
        self._referee.started(self._host, self._session(), self._scope, part)

    def _stop(self, part: str) -> None:
        self._referee.stopped(self._host, self._scope, part)

    def _expect(self, holds: bool, what: str) -> None:
        self._world.check(holds, f"{self._host.name}, scope {self._scope}: {what}")

    def _say(self, what: str) -> None:
        self._world.say(self._host.name, f"{self._scope}: {what}")
