"""What stands in for `threading` inside a simulated node: threads are tasks, waiting takes virtual time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tests.simulation.world import Task, Ticket, World


class Threads:
    """The part of the module `threading` that nodes use."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Lock(self) -> nullcontext[None]:  # noqa: N802
        """Nothing switches tasks while a node holds a lock."""
        return nullcontext()

    def Event(self) -> SimulatedEvent:  # noqa: N802
        return SimulatedEvent(self._world)

    def Thread(  # noqa: N802
        self, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "", daemon: bool = False
    ) -> SimulatedThread:
        return SimulatedThread(self._world, name, lambda: target(*args))


class SimulatedEvent:
    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiting: list[Ticket] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for ticket in self._waiting:
            self._world.after(0.0, self._world.wake, ticket)
        self._waiting.clear()

    def wait(self, timeout: float) -> bool:
        """Waits by the clock of the instance that waits."""
        if not self._set:
            ticket = self._world.ticket()
            self._waiting = [waiting for waiting in self._waiting if waiting.open]
            self._waiting.append(ticket)
            self._world.after(timeout / ticket.task.host.rate, self._world.wake, ticket)
            self._world.block()
        return self._set


class SimulatedThread:
    def __init__(self, world: World, name: str, run: Callable[[], object]) -> None:
        self._world = world
        self._name = name
        self._run = run
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.spawn(self._world.task.host, self._name, self._run)

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None:
            self._world.join(self._task, timeout)
