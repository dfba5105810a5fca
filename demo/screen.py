"""What people see while it runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.ledger import Ledger
from penstock.batch.runner.events import Event
from penstock.workers.run_instances import RunChild


class Screen(ABC):
    """Watches the instances of a run. It is told every event, and looks at the ledger in between."""

    def __init__(self, console: Console, ledger: Ledger, partitions: int, stages: int) -> None:
        self.console = console
        self.ledger = ledger
        self.partitions = partitions
        self.stages = stages
        self.instances: list[RunChild] = []
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take down what `__enter__` has put up."""
        return

    def say(self, text: str, style: str = "") -> None:
        """A line that stays."""
        self.console.print(Text(f"{time.monotonic() - self.began:5.1f} s  {text}", style))

    def tell(self, event: Event) -> None:
        if event.kind == "resumed":
            self.say(f"{event.instance} takes over {event.name} and goes on with stage {event.stage}", "cyan")
        elif event.kind in ("lost", "failed", "poisoned", "set-aside"):
            self.say(f"{event.instance}: {event.name} {event.kind}: {event.message}", "yellow")

    @abstractmethod
    def look(self) -> None:
        """Show how things stand now."""


class Lines(Screen):
    """A line for each partition that is done."""

    def tell(self, event: Event) -> None:
        super().tell(event)
        if event.kind == "acked":
            count = "" if event.phase else f"  ({self.ledger.done} of {self.partitions})"
            what = "key range " if event.phase else ""
            self.say(f"{event.instance} finished {what}{event.name}{count}")

    def look(self) -> None:
        """Everything was said when it happened."""


class Picture(Screen):
    """Who does what at the moment, drawn anew several times a second."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._live = Live(console=self.console, refresh_per_second=8, get_renderable=self._draw)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def look(self) -> None:
        """The picture is drawn by a thread of its own."""

    def _draw(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for instance in self.instances:
            table.add_row(Text(instance.name, "bold"), *self._row(instance))
        total = Table.grid(padding=(0, 2))
        bar = ProgressBar(self.partitions, self.ledger.done, width=40)
        total.add_row("     ", bar, f"{self.ledger.done} of {self.partitions} partitions published")
        return Group(Text(""), table, total)

    def _row(self, instance: RunChild) -> tuple[RenderableType, ...]:
        done = Text(f"{self.ledger.done_by(instance.name):2} done", "green")
        if instance.code is not None and instance.code < 0:
            return Text("💀 killed", "bold red"), done, Text("its leases run out", "dim")
        if instance.code is not None:
            return Text("has left", "dim"), done, Text("")
        if not self.ledger.has_worked(instance.name):
            return Text("starts Spark", "yellow"), done, Text("")
        held = self.ledger.held(instance.name)
        work = "   ".join(f"{partition} stage {min(n, self.stages - 1)}" for partition, n in held.items())
        return Text(f"pid {instance.pid}", "dim"), done, Text(work or "waits for a lease to run out", "dim")


def screen(console: Console, ledger: Ledger, partitions: int, stages: int) -> Screen:
    """The right kind for where it is shown."""
    kind = Picture if console.is_terminal else Lines
    return kind(console, ledger, partitions, stages)
