"""One seed from its beginning to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from unittest.mock import patch

from penstock.core import clocks
from penstock.store.objects import chains, sessions, store, trail, versions
from tests.simulation.objects.bucket import Heap, Machine
from tests.simulation.objects.clients import Clients
from tests.simulation.objects.lives import Lives
from tests.simulation.world import Violation, World

_STORMY = (20.0, 70.0)
_RECOVERY = 45.0
_STEPS = (-7200.0, -90.0, -3.0, 3.0, 90.0, 7200.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of a seed."""

    seed: int
    violation: Violation | None
    digest: str
    seconds: float
    written: int
    refused: int
    unknown: int
    """How many writes were made, were refused, and stayed open."""
    seen: int
    ended: int
    """How often a document was read, and how many sessions came to an end."""
    trace: list[str]


def simulate(seed: int, record: bool = False) -> Run:
    """Run one seed. What it found wrong is in the result."""
    world = World(seed, record)
    heap = Heap(world)
    with _inside(world):
        clients, lives = Clients(world, heap), Lives(world, heap)
        try:
            violation = _storm(world, heap, clients, lives)
        finally:
            world.end()
    digest = hashlib.sha256("\n".join(world.trace or []).encode())
    digest.update(f"{world.happened} {world.random.getstate()}".encode())
    counts, trace = clients.counts(), world.trace or []
    return Run(seed, violation, digest.hexdigest(), world.now, *counts, lives.ends, trace)


def _storm(world: World, heap: Heap, clients: Clients, lives: Lives) -> Violation | None:
    random = world.random
    storm = random.uniform(*_STORMY)
    machines = clients.start() + lives.start()
    for _ in range(random.choice((0, 1, 2, 4))):
        world.after(random.uniform(0.0, storm), _set_clock, heap, random.choice(_STEPS))
    for _ in range(random.choice((0, 2, 6))):
        machine = random.choice(machines)
        world.after(random.uniform(0.0, storm), machine.pause, random.choice((1.0, 8.0, 30.0)))
    for machine in random.sample(machines, random.choice((0, 0, 1, 2))):
        world.after(random.uniform(0.0, storm), _kill, world, machine)
    try:
        world.run(storm)
        heap.stormy = False
        clients.calm()
        world.run(storm + _RECOVERY)
        clients.check(machines)
    except Violation as violation:
        return violation
    return world.violation


def _set_clock(heap: Heap, step: float) -> None:
    heap.world.say("bucket", f"has its clock set by {step:g} s")
    heap.step += step


def _kill(world: World, machine: Machine) -> None:
    world.say(machine.name, "is killed")
    machine.dead = True
    world.end(machine)


@contextmanager
def _inside(world: World) -> Iterator[None]:
    """Replace what handles take from outside, and let them remove and forget as much as they may."""
    numbers = count()
    secrets = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}")

    def now() -> float:
        host = world.task.host
        return host.clock() if isinstance(host, Machine) else world.now

    time = SimpleNamespace(sleep=world.sleep, monotonic=now)
    with ExitStack() as stack:
        stack.enter_context(patch.object(versions, "secrets", secrets))
        for user in (store, versions):
            stack.enter_context(patch.object(user, "time", time))
        stack.enter_context(patch.object(clocks, "now", now))
        stack.enter_context(patch.multiple(chains, KEEP=2, _PRUNE_EVERY=1))
        stack.enter_context(patch.object(trail, "_LENGTH", 3))
        stack.enter_context(patch.object(store, "_REMAINS_SECONDS", 6.0))
        stack.enter_context(patch.multiple(sessions, _SWEEP_EVERY=3, _STANDING=5.0, _BATCH=1))
        yield
