"""Processes with sessions, and processes that ask who is alive."""

from __future__ import annotations

from math import inf

from penstock.errors import SessionLost, StoreUnavailable
from penstock.store.base import Session
from penstock.store.objects import ObjectStore
from tests.simulation.objects.bucket import Heap, Machine, Wire
from tests.simulation.world import World

_TTL = 6.0
_BEAT = 1.5


class Lives:
    """All of them, and what everybody said of each session."""

    def __init__(self, world: World, heap: Heap) -> None:
        self._world = world
        self._heap = heap
        self._names: list[str] = []
        self._over: dict[str, float] = {}
        """When somebody was told for the first time that a session is over."""
        self._beats: dict[str, float] = {}
        """When the last heartbeat began that was made; long ago for a session that its owner ended."""
        self.ends = 0

    def start(self) -> list[Machine]:
        machines = []
        for number in range(self._world.random.choice((1, 2, 3))):
            machine = Machine(self._world, f"o{number}")
            calm = self._world.random.random() < 0.4
            self._world.spawn(machine, "main", lambda calm=calm: self._own(calm))  # type: ignore[misc]
            machines.append(machine)
        for number in range(2):
            machine = Machine(self._world, f"w{number}")
            self._world.spawn(machine, "main", self._observe)
            machines.append(machine)
        return machines

    def _open(self, calm: bool = False) -> ObjectStore:
        opened = ObjectStore("file:///simulated")
        wire = opened._versions._bucket = Wire(self._heap)
        wire.calm = calm
        return opened

    def _own(self, calm: bool) -> None:
        store = self._open(calm)
        while True:
            try:
                began = self._world.now
                session = store.session(_TTL)
            except StoreUnavailable:
                self._world.sleep(1.0)
                continue
            self._names = [*self._names[-7:], session.id]
            self._beats[session.id] = began
            self._keep(session)

    def _keep(self, session: Session) -> None:
        random = self._world.random
        for _ in range(random.choice((5, 40))):
            self._world.sleep(_BEAT)
            began = self._world.now
            try:
                session.keepalive()
            except StoreUnavailable:
                continue
            except SessionLost:
                # It may have given up by its own clock, and nobody else need know yet.
                self._was_in_time(session.id)
                return
            self._world.check(
                began <= self._over.get(session.id, inf), f"{session.id} was over, and is renewed"
            )
            self._beats[session.id] = began
        self._beats[session.id] = -inf
        try:
            session.close()
        except StoreUnavailable:
            return
        self._is_over(session.id, "its owner")

    def _observe(self) -> None:
        store = self._open()
        while True:
            self._world.sleep(self._world.random.choice((0.2, 1.0, 4.0)))
            names, began = list(self._names), self._world.now
            if self._world.random.random() < 0.05:
                store = self._open()
            try:
                alive = store.alive(names)
            except StoreUnavailable:
                continue
            for name in names:
                if name not in alive:
                    self._is_over(name, self._world.task.host.name)
                elif began > self._over.get(name, inf):
                    self._world.fail(f"{name} was over, and is alive again")

    def _is_over(self, name: str, who: str) -> None:
        if name in self._over:
            return
        self._world.say(who, f"is told that {name} is over")
        self.ends += 1
        self._over[name] = self._world.now
        self._was_in_time(name)

    def _was_in_time(self, name: str) -> None:
        """Nobody ends a session, for its owner or for others, unless its heartbeat failed for a ttl."""
        silent = self._world.now - self._beats[name]
        self._world.check(silent > 0.9 * _TTL, f"{name} is over {silent:.1f} s after a heartbeat")
