"""Simulated instances: real nodes on virtual threads, in processes that stop, die and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.config import ClusterConfig
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Member
from penstock.errors import StoreUnavailable
from tests.simulation.participant import Counter
from tests.simulation.store import Backend, Wire
from tests.simulation.weather import CLASSES, Weather
from tests.simulation.world import World

if TYPE_CHECKING:
    from penstock.control.cluster.rules.election import Leadership
    from tests.simulation.invariants import Referee

SCHEDULE = {"a": steady(1.0), "b": steady(2.5)}
CONFIG = ClusterConfig(
    vnodes=16, lease_ttl=5.0, renew_every=2.0, member_ttl=6.0, barrier_timeout=4.0, history=4
)

_INCIDENTS = ("pause", "cut", "deaf", "crash", "leave", "leave", "outage", "twin", "blackout")


class Instance:
    """One process: it has the same member id as the one that it replaces, and nothing else in common."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        backend: Backend,
        referee: Referee,
        member: Member,
        number: int,
        ended: Callable[[Instance], None],
        start: Callable[[str], None],
    ) -> None:
        self.name = f"{member.id}.{number}"
        self.member = member
        self.rate = world.random.uniform(0.97, 1.03)
        self.dead = False
        self.paused = False
        self.leaving = False
        self.left: bool | None = None
        """Whether it handed over what it had before it ended, if it was asked to leave."""
        self.parked: list[Callable[[], None]] = []
        self.cut_until = 0.0
        self.deaf_until: dict[str, float] = {}
        self._started = world.random.uniform(1.0, 1000.0)
        self._world = world
        self._referee = referee
        self._ended = ended
        self._start = start
        self._pauses = 0
        self._weather = weather
        self.counters: dict[str, Counter] = {}
        self.wire = Wire(backend, self, weather)
        self.node: Node | None = None
        world.spawn(self, "main", self._main)

    def __repr__(self) -> str:
        return self.name

    def clock(self) -> float:
        """This machine's monotonic clock: it began anywhere, and runs a little fast or slow."""
        return self._started + self._world.now * self.rate

    @property
    def leadership(self) -> Leadership | None:
        return self.node.leadership if self.node is not None and not self.dead else None

    @property
    def leads(self) -> bool:
        return self.leadership is not None

    @property
    def serving(self) -> bool:
        return not self.dead and not self.leaving and self.member.serves

    def pause(self, seconds: float) -> None:
        self._world.say(self.name, f"is paused for {seconds:.1f} s")
        self.paused = True
        self._pauses += 1
        self._world.after(seconds, self._resume, self._pauses)

    def resume(self) -> None:
        self._resume(self._pauses)

    def cut(self, seconds: float) -> None:
        self._world.say(self.name, f"is cut off for {seconds:.1f} s")
        self.cut_until = self._world.now + seconds

    def deafen(self, about: str, seconds: float) -> None:
        self._world.say(self.name, f"gets nothing through about {about} for {seconds:.1f} s")
        self.deaf_until[about] = self._world.now + seconds

    def crash(self) -> None:
        self._world.say(self.name, "crashes")
        self._end()

    def replace(self) -> None:
        self._world.after(self._world.random.uniform(0.5, 5.0), self._start, self.member.id)

    def leave(self) -> None:
        self.leaving = True
        self._world.spawn(self, "leave", self._leave)

    def _main(self) -> None:
        self._world.say(self.name, f"starts, clock rate {self.rate:.3f}")
        self.node = self._made()
        self.node.start()

    def _made(self) -> Node:
        """The node, with what takes part in it."""
        self.counters = {scope: self._counter(scope) for scope in SCHEDULE}
        return Node(self.wire, self.member, CONFIG, self.counters, SCHEDULE, self.clock)

    def _counter(self, scope: str) -> Counter:
        return Counter(
            self._world,
            self._weather,
            self._referee,
            self,
            self.member.id,
            scope,
            lambda: self._session(scope),
            lambda: self._lives(scope),
        )

    def _leave(self) -> None:
        self._world.say(self.name, "is asked to leave")
        try:
            self.left = self.node.leave(10.0) if self.node is not None else True
            self._world.say(self.name, f"has left: {self.left}")
        except StoreUnavailable:
            self._world.say(self.name, "could not say good-bye")
        self._end()

    def _end(self) -> None:
        if not self.dead:
            self.dead = True
            self._referee.gone(self)
            self._world.after(0.0, self._world.end, self)
            self._ended(self)

    def _resume(self, pause: int) -> None:
        if self.paused and not self.dead and pause == self._pauses:
            self._world.say(self.name, "goes on")
            self.paused = False
            parked, self.parked = self.parked, []
            self._world.random.shuffle(parked)
            for action in parked:
                self._world.after(self._world.random.random() * 0.02, action)

    def _lives(self, scope: str) -> bool:
        """Whether it has not given up itself the session under which the scope is served."""
        return self.node is not None and self.node._life is self.node._served.get(scope)

    def _session(self, scope: str) -> str:
        """The session under which the scope is served now."""
        assert self.node is not None
        return self.node._served[scope].session.id


class Fleet:
    """All instances, by member id, and who comes and goes."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        backend: Backend,
        make: Callable[..., Instance] = Instance,
    ) -> None:
        self._world = world
        self._weather = weather
        self._backend = backend
        self._make = make
        self._number = 0
        self.referee: Referee
        self.healed = False
        self.current: dict[str, Instance] = {}
        """The newest instance of each member id."""
        self.instances: list[Instance] = []
        """All that have not ended."""

    def start(self, member: str) -> None:
        """Start a process under the id, if none runs there."""
        old = self.current.get(member)
        if old is not None and not old.dead and not old.paused:
            return
        self._number += 1
        serves = member in ("m0", "m9") or self._world.random.random() < 0.9
        entry = Member(member, "", "1", capacity=self._world.random.randint(1, 2), serves=serves)
        common = (self._world, self._weather, self._backend, self.referee)
        new = self._make(*common, entry, self._number, self._gone, self.start)
        self.current[member] = new
        self.instances.append(new)

    def leaders(self) -> Iterator[tuple[Instance, Leadership]]:
        for instance in self.instances:
            held = instance.leadership
            if held is not None:
                yield instance, held

    def strike(self) -> None:
        """Something happens to an instance, most often to the leader."""
        if self.healed:
            return
        random = self._world.random
        leaders = [instance for instance, _ in self.leaders()]
        victims = leaders if leaders and random.random() < 0.5 else self.instances
        if not victims:
            return
        victim = random.choice(victims)
        what = random.choice(_INCIDENTS)
        if what == "outage":
            self._weather.outage_until = self._world.now + random.uniform(0.5, 10.0)
            self._world.say("store", f"does not answer until {self._weather.outage_until:.1f}")
        elif what == "blackout":
            for instance in list(self.instances):
                instance.crash()
        elif what == "cut":
            victim.cut(random.uniform(0.5, 12.0))
        elif what == "deaf":
            victim.deafen(random.choice(CLASSES), random.uniform(1.0, 10.0))
        elif what == "crash":
            victim.crash()
        elif what == "leave" and not victim.leaving:
            victim.leave()
        else:
            victim.pause(random.uniform(0.5, 18.0))
            if what == "twin":
                victim.replace()

    def trouble(self) -> None:
        """What a storm is best at, again and again."""
        if self.healed:
            return
        random, chosen = self._world.random, self._weather.trouble
        if chosen == "succession":
            # It keeps its session and all that it remembers, and may lead again.
            for leader in [instance for instance, _ in self.leaders()]:
                leader.deafen("control", random.uniform(4.0, 6.0))
        elif chosen == "numb" and self.instances:
            random.choice(self.instances).deafen("keepalive", random.uniform(5.0, 9.0))
        self._world.after(random.uniform(3.0, 9.0), self.trouble)

    def heal(self) -> None:
        """Nothing goes wrong any more, and somebody is there."""
        self._world.say("world", "heals")
        self.healed = True
        self._weather.heal()
        for instance in list(self.instances):
            instance.cut_until = 0.0
            instance.deaf_until.clear()
            if self.current[instance.member.id] is instance:
                instance.resume()
            else:
                instance.crash()
        if not any(instance.serving for instance in self.instances):
            self.start("m9")

    def _gone(self, instance: Instance) -> None:
        self.instances.remove(instance)
        if not self.healed and self._world.random.random() < 0.75:
            self._world.after(self._world.random.uniform(0.5, 15.0), self.start, instance.member.id)
