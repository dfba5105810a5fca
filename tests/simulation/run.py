"""One seed from its beginning to its end."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from penstock.control.cluster import candidate, node
from penstock.control.cluster import leader as duties
from penstock.control.cluster.documents import epoch_records
from penstock.control.cluster.documents.keys import Keys
from penstock.core.codec import DocumentFormat
from penstock.errors import UsageError
from tests.simulation.instances import CONFIG, SCHEDULE, Fleet
from tests.simulation.invariants import Referee
from tests.simulation.participant import Grumble
from tests.simulation.store import Backend
from tests.simulation.threads import Threads
from tests.simulation.weather import Weather
from tests.simulation.world import Violation, World

_STORMY = (15.0, 40.0)
_RECOVERY = 40.0
_PAGED = 0.3
"""In how many worlds no decision fits into its record."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of a seed."""

    seed: int
    violation: Violation | None
    digest: str
    seconds: float
    events: int
    epochs: int
    terms: int
    recovery: float
    versions: int
    late: int
    ghosts: int
    trace: list[str]
    rows: int = 0
    """What a stream has brought."""
    ended: bool = False


def simulate(seed: int, record: bool = False, kind: type[Simulation] | None = None) -> Run:
    """Run one seed. What it found wrong is in the result."""
    simulation = (kind or Simulation)(seed, record)
    with _inside(simulation.world, simulation.expected), simulation.inside():
        try:
            violation = simulation.run()
        finally:
            simulation.world.end()
    return simulation.result(violation)


class Simulation:
    recovery = _RECOVERY
    farewells = 0.25
    expected: tuple[type[Exception], ...] = (Grumble, UsageError)
    """The errors that nodes may report."""

    def __init__(self, seed: int, record: bool) -> None:
        self.world = World(seed, record)
        self.weather = Weather(self.world)
        self.backend = Backend(self.world)
        self.fleet = self._fleet()
        self.referee = self._referee()
        self.fleet.referee = self.referee
        self._healed = 0.0

    def _fleet(self) -> Fleet:
        return Fleet(self.world, self.weather, self.backend)

    def _referee(self) -> Referee:
        keys, leaders = Keys(CONFIG.name), self.fleet.leaders
        return Referee(self.world, self.backend, keys, CONFIG.vnodes, leaders, self.weather.happened)

    def inside(self) -> AbstractContextManager[object]:
        """What else is replaced while it runs."""
        return nullcontext()

    def run(self) -> Violation | None:
        random = self.world.random
        storm = random.uniform(*_STORMY)
        for number in range(random.choice((1, 2, 3, 3, 4, 5))):
            begin = 0.0 if random.random() < 0.6 else random.uniform(0.0, storm)
            self.world.after(begin, self.fleet.start, f"m{number}")
        for _ in range(self.weather.incidents):
            self.world.after(random.uniform(1.0, storm), self.fleet.strike)
        self.world.after(random.uniform(2.0, 8.0), self.fleet.trouble)
        try:
            self.world.run(storm)
            self.fleet.heal()
            self._healed = storm
            self._recover(storm + self.recovery)
            self._check_bounds()
            if random.random() < self.farewells:
                self._farewell()
        except Violation as violation:
            return violation
        return None

    def _recover(self, limit: float) -> None:
        """Everything must be in order again, and epochs must go on, before the time is over."""
        self._before = {name: self.referee.control.scope(name).committed for name in SCHEDULE}
        while missing := self._unsettled() or self._missing():
            if self.world.now >= limit:
                self.world.fail(f"{self.recovery:g} s after everything healed: {missing}")
                assert self.world.violation is not None
                raise self.world.violation
            self.world.run(self.world.now + 0.5)

    def _check_bounds(self) -> None:
        """What is kept for people to look at is not more than that, and a little that came since."""
        keys, history = Keys(CONFIG.name), CONFIG.history
        kept = {name: keys.epochs(name) for name in self.referee.control.scopes}
        for name, prefix in {**kept, "assignments": keys.assignments}.items():
            found = len(self.backend.list(prefix, "", 1000))
            self.world.check(found <= 2 * history, f"{found} records of {name} are kept")
        for name in kept:
            epochs = {document.key for document in self.backend.list(keys.epochs(name), "", 1000)}
            pages = self.backend.list(keys.pages(name), "", 1000)
            found = len({page.key.split("/")[4] for page in pages})
            self.world.check(found <= len(epochs) + history, f"pages of {found} epochs of {name} are kept")
        if self.world.violation is not None:
            raise self.world.violation

    def _farewell(self) -> None:
        """Where nothing is wrong, a leader that leaves hands over, and the next one leads at once."""
        leader, _ = next(iter(self.fleet.leaders()))
        others = [each for each in self.fleet.instances if each is not leader and each.serving]
        if not others:
            return
        leader.leave()
        limit, handed_over = self.world.now + 12.0, 0.0
        while not leader.dead and self.world.now < limit:
            self.world.run(self.world.now + 0.1)
            if handed_over == 0.0 and self.referee.control.lease.owner is None:
                handed_over = self.world.now
            if handed_over and self.referee.control.lease.owner is None:
                self.world.check(self.world.now < handed_over + 2.0, "nobody takes a lease that was given up")
        self.world.check(leader.left is True, f"{leader} leaves, and does not hand over: {leader.left}")
        if self.world.violation is not None:
            raise self.world.violation

    def _unsettled(self) -> str | None:
        """What the cluster has not settled yet: who leads, and who has a seat."""
        control = self.referee.control
        leaders = list(self.fleet.leaders())
        if len(leaders) != 1 or leaders[0][1].token != control.lease.token:
            return f"leaders are {leaders}"
        if any(instance.leaving for instance in self.fleet.instances):
            return "somebody is still leaving"
        sessions = {i.node.session if i.node else None for i in self.fleet.instances if i.serving}
        if {seat.session for seat in control.assignment.seats} != sessions:
            return f"seats are {control.assignment.seats}, and alive are {sessions}"
        return None

    def _missing(self) -> str | None:
        """What participants have not come to yet."""
        control = self.referee.control
        for name, before in self._before.items():
            if control.scope(name).committed < before + 2:
                return f"scope {name} is at {control.scope(name).committed}, and was at {before}"
        for instance in self.fleet.instances:
            versions = {counter.version for counter in instance.counters.values()}
            if versions != {control.assignment.version}:
                return f"{instance} follows {versions}, not {control.assignment.version}"
        return None

    def result(self, violation: Violation | None) -> Run:
        world, control = self.world, self.referee.control
        trace = world.trace or []
        digest = hashlib.sha256()
        for line in trace:
            digest.update(line.encode())
        digest.update(f"{world.happened} {world.random.getstate()}".encode())
        epochs = sum(scope.committed for scope in control.scopes.values())
        return Run(
            seed=world.seed,
            violation=violation,
            digest=digest.hexdigest(),
            seconds=world.now,
            events=world.happened,
            epochs=epochs,
            recovery=world.now - self._healed,
            terms=control.lease.token,
            versions=control.assignment.version,
            late=self.referee.history.late,
            ghosts=self.referee.history.ghosts,
            trace=trace,
        )


@contextmanager
def _inside(world: World, expected: tuple[type[Exception], ...]) -> Iterator[None]:
    """Replace what nodes take from outside: threads, secrets and the time of day."""
    numbers = count()
    secrets = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}")
    with ExitStack() as stack:
        stack.enter_context(patch.object(node, "threading", Threads(world)))
        stack.enter_context(patch.object(duties, "secrets", secrets))
        # Fewer empty steps, and a history that is pruned within a run.
        stack.enter_context(patch.multiple(node, _WATCH=1.2, _PAUSE=0.3, _PATIENCE=2.0))
        stack.enter_context(patch.multiple(duties, _TIDY_EVERY=2))
        if world.random.random() < _PAGED:
            stack.enter_context(patch.multiple(epoch_records, INLINE=0, PAGE=200))
        for module in (candidate, duties, node):
            stack.enter_context(patch.object(module, "wall_clock", lambda: ""))
        stack.enter_context(patch.object(DocumentFormat, "decode", _remembering(DocumentFormat.decode)))
        stack.enter_context(_listening(world, expected))
        yield


@contextmanager
def _listening(world: World, expected: tuple[type[Exception], ...]) -> Iterator[None]:
    """Hear of errors instead of printing them, and of nothing less."""
    logger, handler = logging.getLogger("penstock.control.cluster"), _Listener(world, expected)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[1]
        logger.setLevel(before[0])


def _remembering(decode: Callable[[Any, str, bytes], Any]) -> Callable[[Any, str, bytes], Any]:
    """Documents are values: one that was decoded need not be decoded again."""
    known: dict[tuple[type, bytes], Any] = {}

    def remembered(kind: DocumentFormat[Any], key: str, value: bytes) -> Any:
        found = known.get((kind.kind, value))
        if found is None:
            found = known[kind.kind, value] = decode(kind, key, value)
        return found

    return remembered


class _Listener(logging.Handler):
    """Nodes survive errors that they do not expect; the simulation does not."""

    def __init__(self, world: World, expected: tuple[type[Exception], ...]) -> None:
        super().__init__()
        self._world = world
        self._expected = expected

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else None
        if not isinstance(getattr(error, "__cause__", None) or error, self._expected):
            self._world.fail(f"{self._world.task.host.name}: {record.getMessage()}: {error!r}")
