"""What goes wrong on the wires and inside the instances, and how often. Each seed has its own weather."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.simulation.world import Host, World

DEADLINE = 1.0
"""After how many seconds a request without an answer is given up."""

LONGEST_PAUSE = 18.0

_CONTROL = "/control/document"
_SLOW_LOOKS = {"slow control": 0.3, "numb": 0.15}
_TWINS = 0.2

_LEADING = "penstock-lead"
"""The thread that does a leader's duties."""

MOMENTS = ("taken", "rotated", "announced", "ended", "pruned")
"""The lease changes its owner, the assignment its version, an epoch begins or ends, a record is deleted."""


CLASSES = ("control", "epochs", "pages", "acks", "members", "keepalive", "get", "list")
"""What requests are about: a store may serve some and not others."""

TROUBLES = ("", "", "", "", "slow control", "slow control", "succession", "numb", "twins")
"""What a storm is best at, if anything: readers of the control that are slow, one leader after the other that
loses its lease and nothing else, sessions that are not renewed although everything else goes on, members that
fall asleep in front of an ack and are replaced meanwhile."""


def class_of(kind: str, key: str) -> str:
    """What a request is about."""
    if kind != "cas":
        return kind
    return key.split("/")[2] if key.count("/") > 2 else kind


class Victim(Host, Protocol):
    cut_until: float
    deaf_until: dict[str, float]
    """Until when requests of a class do not come through."""

    @property
    def leads(self) -> bool: ...

    def pause(self, seconds: float) -> None:
        """Stop all threads for a while, as SIGSTOP does."""

    def resume(self) -> None:
        """Let them go on."""

    def crash(self) -> None:
        """End without a word."""

    def replace(self) -> None:
        """Somebody takes it for dead, and starts another one under its id."""


@dataclass(frozen=True, slots=True)
class Fault:
    """When a request is executed and answered, in seconds from now, and what befalls its sender."""

    what: str
    executed: tuple[float, ...] = ()
    answered: float | None = None
    deadline: float = DEADLINE
    until: str = ""
    """Executed soon after the next such moment in the cluster's life, if that is earlier."""
    happening: Callable[[], None] | None = None
    asleep: bool = False
    """Sent only after its sender, who fell asleep in front of it, goes on."""


class Weather:
    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random = world.random
        self.calm = False
        self.outage_until = 0.0
        self.incidents = random.choice((0, 2, 4, 8))
        self._reads = random.choice((0.0, 0.001, 0.005, 0.02))
        self._writes = random.choice((0.0, 0.01, 0.04, 0.1))
        self._moods = random.choice((0.0, 0.02, 0.1, 0.3))
        self._latency = random.choice((0.002, 0.01, 0.05))
        self.trouble = random.choice(TROUBLES)
        self._held: dict[str, list[Callable[[], None]]] = {}

    def heal(self) -> None:
        self.calm = True
        self.outage_until = 0.0
        self._latency = 0.002
        for moment in MOMENTS:
            self.happened(moment)

    def happened(self, moment: str) -> None:
        """Let go of what waits for ``moment``."""
        for action in self._held.pop(moment, ()):
            self._world.after(self._random.random() * 0.5, action)

    def hold(self, moment: str, action: Callable[[], None]) -> None:
        """Do ``action`` soon after ``moment``, and after the longest pause at the latest."""
        self._held.setdefault(moment, []).append(action)
        self._world.after(LONGEST_PAUSE, action)

    def latency(self) -> float:
        return self._random.random() * self._latency

    def cuts(self, host: Victim) -> bool:
        """Whether ``host`` cannot reach the store now."""
        now = self._world.now
        return host.cut_until > now or self.outage_until > now

    def lateness(self) -> float:
        """By how much a watch reports late."""
        strikes = not self.calm and self._random.random() < self._reads
        return self._random.uniform(0.1, 5.0) if strikes else 0.0

    def mood(self) -> str:
        """How a participant answers a barrier."""
        if self.calm or self._random.random() >= self._moods:
            return "willing"
        return self._random.choice(("slow", "slow", "refusing", "raising"))

    def grumbles(self) -> bool:
        """Whether a participant fails where it has no right to."""
        return not self.calm and self._random.random() < self._moods / 4

    def strike(self, host: Victim, kind: str, key: str) -> Fault | None:
        """The fault that a request meets, if any. Those that decide something attract them."""
        if self.calm:
            return None
        random = self._random
        if self.cuts(host):
            # One in four gets through with its answer lost: cuts may be one-way.
            executed = () if random.random() < 0.75 else (0.0,)
            return Fault("cut off", executed, deadline=random.random() * DEADLINE)
        about = class_of(kind, key)
        if host.deaf_until.get(about, 0.0) > self._world.now:
            return Fault("does not come through", deadline=random.random() * DEADLINE)
        if about == "acks" and self.trouble == "twins" and random.random() < _TWINS:
            return self._replaced(host)
        if kind == "get" and key.endswith(_CONTROL) and self.trouble in _SLOW_LOOKS:
            return self._slow_look() if random.random() < _SLOW_LOOKS[self.trouble] else None
        decisive = kind == "cas" or (kind == "get" and self._world.task.name == _LEADING and host.leads)
        if random.random() >= (self._writes if decisive else self._reads):
            return None
        faults = _ACK_FAULTS if about == "acks" else _DECISIVE_FAULTS if decisive else _FAULTS
        return random.choice(faults)(self, host)

    # faults

    def _slow_look(self) -> Fault:
        """On its way for almost a whole lease; what it brings is new."""
        return Fault("slow look", (self._random.uniform(1.0, 4.8),), self.latency())

    def _lost(self, host: Victim) -> Fault:
        return Fault("lost")

    def _answer_lost(self, host: Victim) -> Fault:
        return Fault("answer lost", (0.0,), None, self._random.random() * DEADLINE)

    def _too_late(self, host: Victim) -> Fault:
        """Executed after its sender has given it up."""
        return Fault("given up, executed later", (DEADLINE + self._random.random() * 6.0,))

    def _slow_request(self, host: Victim) -> Fault:
        return Fault("slow request", (self._random.random() * 5.0,), self.latency())

    def _slow_answer(self, host: Victim) -> Fault:
        return Fault("slow answer", (0.0,), self._random.random() * 5.0)

    def _repeated(self, host: Victim) -> Fault:
        return Fault("executed twice", (0.0, self._random.random() * 12.0), self.latency())

    def _paused_before(self, host: Victim) -> Fault:
        seconds = self._random.uniform(0.5, LONGEST_PAUSE)
        return Fault("paused before it", happening=lambda: host.pause(seconds), asleep=True)

    def _paused_after(self, host: Victim) -> Fault:
        seconds = self._random.uniform(0.5, LONGEST_PAUSE)
        executed = self._random.choice((0.0, self._random.random() * seconds))
        return Fault("paused after it", (executed,), self.latency(), happening=lambda: host.pause(seconds))

    def _held_back(self, host: Victim) -> Fault:
        """Given up, and executed in the wrong moment."""
        return Fault("held back", (LONGEST_PAUSE,), until=self._random.choice(MOMENTS))

    def _paused_until(self, host: Victim) -> Fault:
        moment = self._random.choice(MOMENTS)

        def pause() -> None:
            host.pause(LONGEST_PAUSE)
            self.hold(moment, host.resume)

        return Fault(f"paused before it until {moment}", happening=pause, asleep=True)

    def _replaced(self, host: Victim) -> Fault:
        """It falls asleep, and goes on when another one has its place."""

        def pause() -> None:
            host.pause(LONGEST_PAUSE)
            host.replace()

        return Fault("paused and replaced", happening=pause, asleep=True)

    def _crashed(self, host: Victim) -> Fault:
        executed = self._random.choice(((), (0.0,), (self._random.random() * 3.0,)))
        return Fault("crashed", executed, happening=host.crash)

    def _crashed_long_ago(self, host: Victim) -> Fault:
        """What a dead leader sent arrives when there is another one."""
        return Fault("crashed, executed later", (LONGEST_PAUSE,), until="taken", happening=host.crash)


_Maker = Callable[[Weather, Victim], Fault]
_FAULTS: tuple[_Maker, ...] = (
    Weather._lost,
    Weather._answer_lost,
    Weather._too_late,
    Weather._slow_request,
    Weather._slow_answer,
    Weather._repeated,
    Weather._paused_before,
)
_DECISIVE_FAULTS: tuple[_Maker, ...] = (
    *_FAULTS,
    Weather._answer_lost,
    Weather._held_back,
    Weather._paused_before,
    Weather._paused_after,
    Weather._paused_until,
    Weather._paused_until,
    Weather._crashed,
    Weather._crashed_long_ago,
)
_ACK_FAULTS: tuple[_Maker, ...] = (*_DECISIVE_FAULTS, *(Weather._replaced,) * 8)
