"""Virtual time, and the scheduler that runs the threads of all simulated instances as greenlets.

One thing happens at a time, and nothing depends on the real clock: the same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet


class Violation(AssertionError):
    """An invariant does not hold."""


class Host(Protocol):
    """The process that a task belongs to."""

    name: str
    rate: float
    dead: bool
    paused: bool
    parked: list[Callable[[], None]]
    """What arrived while it was paused, to be done when it goes on."""


class Task:
    """A simulated thread."""

    def __init__(self, host: Host, name: str, run: Callable[[object], None], hub: greenlet) -> None:
        self.host = host
        self.name = name
        self.done = False
        self.joining: list[Ticket] = []
        self.greenlet = greenlet(run, hub)


class Ticket:
    """The right to wake a blocked task, once: whoever comes second comes too late."""

    __slots__ = ("open", "task")

    def __init__(self, task: Task) -> None:
        self.task = task
        self.open = True


class World:
    """The clock, the events to come, and the one source of chance."""

    def __init__(self, seed: int, record: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.happened = 0
        self.violation: Violation | None = None
        self.trace: list[str] | None = [] if record else None
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._hub = getcurrent()
        self._task: Task | None = None
        self._tasks: dict[Task, None] = {}

    # what anybody may call

    @property
    def task(self) -> Task:
        """The task that runs now."""
        if self._task is None:
            raise RuntimeError("no task runs")
        return self._task

    def after(self, delay: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do ``action`` ``delay`` seconds from now, outside of any task."""
        heappush(self._events, (self.now + delay, next(self._order), action, arguments))

    def say(self, who: str, what: str) -> None:
        """Add a line to the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(f"{self.now:9.3f}  {who:<8}  {what}")

    def check(self, holds: bool, what: str) -> None:
        """`fail` unless it holds."""
        if not holds:
            self.fail(what)

    def fail(self, what: str) -> None:
        """An invariant is broken; the run ends after this event. Callable where exceptions are swallowed."""
        self.say("INVARIANT", what)
        if self.violation is None:
            self.violation = Violation(f"seed {self.seed}, at {self.now:.3f} s: {what}")

    # what tasks call

    def spawn(self, host: Host, name: str, target: Callable[[], object]) -> Task:
        """Start a thread of ``host``."""
        task = Task(host, name, lambda _: self._live(task, target), self._hub)
        self._tasks[task] = None
        self.after(self.random.random() * 0.01, self.wake, Ticket(task))
        return task

    def ticket(self) -> Ticket:
        return Ticket(self.task)

    def block(self) -> Any:
        """Let others go on until the ticket is used; what it was used with."""
        answer, error = self._hub.switch()
        if error is not None:
            raise error
        return answer

    def sleep(self, seconds: float) -> None:
        self.after(seconds, self.wake, self.ticket())
        self.block()

    def wake(self, ticket: Ticket, answer: object = None, error: Exception | None = None) -> None:
        """Let the task of ``ticket`` go on, or as soon as its host does."""
        if ticket.open:
            ticket.open = False
            self._switch(ticket.task, answer, error)

    def join(self, task: Task, timeout: float | None = None) -> None:
        """Wait for the end of ``task``, but not longer than ``timeout``."""
        if not task.done:
            ticket = self.ticket()
            task.joining.append(ticket)
            if timeout is not None:
                self.after(timeout, self.wake, ticket)
            self.block()

    # the scheduler

    def run(self, until: float) -> None:
        """Let everything happen that happens before ``until``."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, action, arguments = heappop(events)
            self.happened += 1
            action(*arguments)
            if self.violation is not None:
                raise self.violation
        self.now = until

    def end(self, host: Host | None = None) -> None:
        """Drop the tasks of ``host``, or all of them, wherever they are."""
        for task in [task for task in self._tasks if host is None or task.host is host]:
            self._task = task
            task.greenlet.throw(GreenletExit)
            self._tasks.pop(task, None)
        self._task = None

    def _switch(self, task: Task, answer: object, error: Exception | None) -> None:
        host = task.host
        if host.dead or task.done:
            return
        if host.paused:
            host.parked.append(lambda: self._switch(task, answer, error))
            return
        self._task = task
        task.greenlet.switch((answer, error))
        self._task = None

    def _live(self, task: Task, target: Callable[[], object]) -> None:
        try:
            target()
        except GreenletExit:
            return
        except Exception as error:
            self.fail(f"{task.host.name}: the thread {task.name} died of {type(error).__name__}: {error}")
        finally:
            task.done = True
            self._tasks.pop(task, None)
        for ticket in task.joining:
            self.after(0.0, self.wake, ticket)
