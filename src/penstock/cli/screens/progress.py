"""How far a run is, while it runs: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from penstock.cli.output import amount, count
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.batch.runner.events import Event
    from penstock.batch.runs.runs import Run
    from penstock.core.ranges import PartitionName
    from penstock.store import Store

_LINE_EVERY = 10.0
_LOOK_EVERY = 1.0
_ENDS = {"acked", "lost", "failed", "poisoned", "released"}
_FAILING = 3
_TOLD = {"resumed", "set-aside", "lost", "failed", "poisoned"}


@dataclass(frozen=True, slots=True)
class Doing:
    """What is going on inside a partition, and since when on our clock."""

    partition: str
    what: str
    since: float

    def __str__(self) -> str:
        return f"{self.partition} {self.what} for {clock(time.monotonic() - self.since)}"


@dataclass(frozen=True, slots=True)
class RunStanding:
    """A run at one moment. ``rows`` were done since this command began, which took ``seconds``."""

    done: int
    total: int
    rows: int
    rows_left: int
    seconds: float
    retries: int
    poisoned: int
    instances: int
    doing: tuple[Doing, ...] = ()
    """The partitions that this command works on, the one that takes longest first."""
    failing: int = 0
    """Attempts that failed since a partition was completed last."""
    phase: tuple[int, int] = (1, 1)
    """The phase that it is in, counted from 1, and how many there are. Rows are counted in the first ones."""

    @property
    def speed(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds to the end at the speed so far; None while nothing shows that it will come."""
        known = self.rows and self.failing < _FAILING and self.phase[0] == self.phase[1]
        return self.rows_left / self.speed if known else None

    def __str__(self) -> str:
        total = count(self.total, "partition")
        at, phases = self.phase
        parts = [f"phase {at} of {phases}"] if phases > 1 else []
        parts += [f"{amount(self.done)}/{total}", count(self.rows, "row")]
        parts.append(f"{amount(self.speed)} rows/s")
        if self.eta is not None and self.rows_left:
            parts.append(f"ETA {clock(self.eta)}")
        if self.failing >= _FAILING:
            parts.append(f"the last {amount(self.failing)} attempts failed")
        parts.append(f"{self.retries} retries" if self.retries != 1 else "1 retry")
        if self.poisoned:
            parts.append(f"{self.poisoned} poisoned")
        if self.instances:
            parts.append(count(self.instances, "instance"))
        if self.doing:
            more = f" and {len(self.doing) - 1} more" if len(self.doing) > 1 else ""
            parts.append(f"at work: {self.doing[0]}{more}")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """``1:05``, ``2:00:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress(ABC):
    """A listener of runners that shows how far the run is. Other processes' work is counted too."""

    def __init__(self, store: Store, run: str, instances: int) -> None:
        self._store = store
        self._run = run
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._doing: dict[tuple[str, str], Doing] = {}
        self._partitions: dict[str, set[PartitionName]] = {}
        self._failing = 0
        self.instances = instances
        self._known: Run | None = None
        self._began = time.monotonic()
        self._before: int | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="penstock-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if not self._counts:
                self._began = time.monotonic()
            self._counts[event.kind] += 1
            self._follow(event)
            if event.kind in ("failed", "poisoned"):
                self._failing += 1
                self._partitions.setdefault("failed", set()).add(event.name)
            elif event.kind in ("resumed", "lost"):
                self._partitions.setdefault(event.kind, set()).add(event.name)
            elif event.kind == "acked":
                self._failing = 0
        if event.kind in _TOLD:
            self.say(_story(event))

    def _follow(self, event: Event) -> None:
        """Note what happens inside a partition: large ones take minutes, in which no row is done."""
        key = (event.instance, str(event.name))
        if event.kind in _ENDS:
            self._doing.pop(key, None)
            return
        what = {
            "claimed": "is being read",
            "resumed": f"is in stage {event.stage}",
            "stage": f"is in stage {(event.stage or 0) + 1}",
            "writing": "is being computed and written",
        }.get(event.kind)
        if what is not None:
            self._doing[key] = Doing(key[1], what, time.monotonic())

    def partitions(self) -> dict[str, int]:
        """How many partitions were resumed, lost or failed, each counted once."""
        with self._lock:
            return {kind: len(some) for kind, some in self._partitions.items()}

    def standing(self) -> RunStanding | None:
        """None until the run is known to the store."""
        from penstock.batch.runs import runs
        from penstock.control.claims import together

        try:
            self._known = self._known or runs.load(self._store, self._run)
            begun = runs.by_phase(self._store, self._known)
        except PenstockError:
            return None
        if not begun:
            return None
        summary, phases = together(begun), len(self._known.every_phase)
        with self._lock:
            done = summary.completed.rows
            self._before = done if self._before is None or not self._counts else self._before
            return RunStanding(
                done=summary.completed.partitions,
                total=summary.total.partitions,
                rows=done - self._before,
                rows_left=summary.pending.rows + summary.claimed.rows,
                seconds=time.monotonic() - self._began,
                retries=self._counts["retry"] + self._counts["failed"],
                poisoned=summary.poisoned.partitions,
                instances=self.instances,
                doing=tuple(sorted(self._doing.values(), key=lambda each: each.since)),
                failing=self._failing,
                phase=(len(begun), phases),
            )

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a message."""

    @abstractmethod
    def _loop(self) -> None:
        """Show the standing until closed."""


class ProgressLines(Progress):
    """One line every ten seconds, and one at the end."""

    def __init__(self, store: Store, run: str, instances: int, err: TextIO) -> None:
        super().__init__(store, run, instances)
        self._err = err

    def say(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    def _loop(self) -> None:
        while not self._closed.wait(_LINE_EVERY):
            self._line()
        self._line()

    def _line(self) -> None:
        if self._counts and (standing := self.standing()):
            self.say(f"{self._run}: {standing}")


class Quiet(ProgressLines):
    """Nothing but messages."""

    def _loop(self) -> None:
        self._closed.wait()


class Bar(Progress):
    """A live bar on a terminal."""

    def __init__(self, store: Store, run: str, instances: int, err: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        super().__init__(store, run, instances)
        self._bar = RichProgress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[standing]}"),
            console=Console(file=err),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task(run, total=None, standing="starting Spark")

    def say(self, text: str) -> None:
        from rich.text import Text

        self._bar.console.print(Text(text))

    def _loop(self) -> None:
        with self._bar:
            pause = _LOOK_EVERY
            while not self._closed.wait(pause):
                before = time.monotonic()
                self._look()
                # A large board takes long to count: looking must not become the main work.
                pause = max(_LOOK_EVERY, 20 * (time.monotonic() - before))

    def _look(self) -> None:
        if self._counts and (standing := self.standing()):
            values: dict[str, Any] = {"completed": standing.done + standing.poisoned, "total": standing.total}
            self._bar.update(self._task, standing=str(standing), **values)


def progress(store: Store, run: str, instances: int, err: TextIO, *, quiet: bool) -> Progress:
    """The right kind for where it is shown."""
    kind = Quiet if quiet else Bar if err.isatty() else ProgressLines
    return kind(store, run, instances, err)


def _story(event: Event) -> str:
    message = event.message.strip().splitlines()[0] if event.message.strip() else ""
    where = f"{event.instance}: partition {event.name}"
    if event.kind == "resumed":
        return f"{where} goes on after stage {(event.stage or 0) - 1}, from its checkpoint"
    if event.kind == "set-aside":
        return f"{where}: checkpoint after stage {event.stage} is not used: {message}"
    if event.kind == "failed":
        return f"{where} failed and will be tried again: {message}"
    return f"{where} {'is' if event.kind == 'poisoned' else 'was'} {event.kind}: {message}"
