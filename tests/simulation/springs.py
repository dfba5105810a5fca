"""What simulated streams read: sources whose parts fill, finish, split and hide in virtual time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from penstock.streams.api.stream import SourceSpec, Timestamps
from tests.simulation.participant import Grumble
from tests.simulation.weather import Weather
from tests.simulation.world import World
from tests.streams.support import MemorySource

SECOND = 1_000_000
LATENESS = 2.0


@dataclass(frozen=True, slots=True)
class Vein:
    """A part: when it appears, when each row comes, with which event time, and when the last has come."""

    appears: float
    comes: tuple[float, ...]
    times: tuple[int, ...]
    closes: float
    shy: bool
    """It is listed no more once everybody knows it."""


class Spring(MemorySource):
    """A source. What it holds depends on the virtual time alone, and on what is known of it."""

    def __init__(self, world: World, weather: Weather, veins: dict[str, Vein], grows: bool = False) -> None:
        self._world = world
        self._weather = weather
        self.veins = veins
        self.grows = grows
        self.known: set[str] = set()
        """The parts that a committed epoch has listed."""

    def list_parts(self) -> Iterable[str]:
        self._world.sleep(self._world.random.random() * 0.1)
        if self._weather.grumbles():
            raise Grumble("the source cannot be listed")
        now = self._world.now
        return [n for n, v in self.veins.items() if v.appears <= now and not (v.shy and n in self.known)]

    def read(self, part: str, begin: int, limit: int) -> tuple[Sequence[int], bool]:
        vein, now = self.veins[part], self._world.now
        end = min(bisect_right(vein.comes, now), begin + limit)
        return vein.times[begin:end], max(begin, end) == len(vein.times) and vein.closes <= now


def springs(world: World, weather: Weather, storm: float) -> dict[str, SourceSpec]:
    """The sources of a stream, by the chance of this world."""
    random = world.random
    grows = random.random() < 0.15
    timed = Spring(world, weather, _veins(random, storm, random.randint(1, 5), scattered=False))
    stamps = Timestamps("at", LATENESS, "keep", idle_after=random.choice((None, 0.0, 2.0)))
    sources = {"s": SourceSpec("s", timed, stamps)}
    if grows or random.random() < 0.5:
        veins = _veins(random, storm, random.choice((0, 1, 3)), scattered=grows)
        sources["t"] = SourceSpec("t", Spring(world, weather, veins, grows))
    return sources


def _veins(random: Random, storm: float, count: int, scattered: bool) -> dict[str, Vein]:
    """Parts that are there from the beginning (or appear at any time), and those that they leave behind.

    Without ``scattered``, a part appears only at the moment in which another one closes: whoever has read
    that one to its end can see it.
    """
    veins: dict[str, Vein] = {}
    begins = [random.uniform(0.0, storm) if scattered else 0.0 for _ in range(count)]
    waiting = [(f"p{n}", begin) for n, begin in enumerate(begins)]
    while waiting:
        name, begin = waiting.pop(0)
        vein = veins[name] = _vein(random, begin, storm)
        if len(name) < 4 and random.random() < 0.4:
            waiting += [(f"{name}{child}", vein.closes) for child in "ab"[: random.randint(1, 2)]]
    # What nobody must miss most: the last one to close leaves another one behind.
    for number in range(random.choice((0, 1, 3)) if veins else 0):
        veins[f"q{number}"] = _vein(random, max(vein.closes for vein in veins.values()), 2.0)
    return veins


def _vein(random: Random, begin: float, storm: float) -> Vein:
    closes = begin + random.uniform(0.0, storm)
    comes = tuple(sorted(random.uniform(begin, closes) for _ in range(random.choice((0, 1, 4, 12)))))
    times = tuple(round((at - random.choice((0.0, 1.0, 6.0))) * SECOND) for at in comes)
    return Vein(begin, comes, times, closes, random.random() < 0.3)
