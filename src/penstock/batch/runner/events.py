"""What a runner tells while it works: values that a terminal, a log and a program can all use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.core.ranges import PartitionName, Range
from penstock.errors import PenstockError

_log = logging.getLogger("penstock")

EventKind = Literal[
    "claimed",  # a partition is ours
    "resumed",  # it goes on from a checkpoint
    "set-aside",  # a checkpoint was not used, and why
    "stage",  # a stage is done
    "writing",  # all stages are planned: the rest is computed, and written as output
    "retry",  # a transient error, tried again
    "acked",  # its output is published
    "lost",  # somebody else has it now
    "failed",  # it failed, and will be tried again
    "poisoned",  # it failed too often
    "released",  # given back, to be resumed
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a partition."""

    kind: EventKind
    instance: str
    partition: Range
    token: int
    stage: int | None = None
    rows: int = 0
    seconds: float = 0.0
    message: str = ""
    phase: int = 0

    @property
    def name(self) -> PartitionName:
        """The partition among those of all phases."""
        return PartitionName(self.phase, self.partition)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "partition": str(self.partition)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Event:
        return cls(**{**value, "partition": Range.parse(value["partition"])})


Listener = Callable[[Event], None]


def logged(event: Event) -> None:
    """The listener of a runner that was given none: what a person should know goes to the log."""
    worth = event.kind in ("set-aside", "lost", "failed", "poisoned")
    text = f"{event.instance}: {event.name} {event.kind}"
    if event.message:
        text += f": {event.message}"
    _log.log(logging.WARNING if worth else logging.INFO, "%s", text)


def silent(event: Event) -> None:
    """The listener that nobody listens to."""


Ending = Literal["complete", "incomplete", "stopped", "interrupted", "halted"]


@dataclass(frozen=True, slots=True)
class Report:
    """What `Runner.run` did.

    ``ending``: *complete* (every partition is done), *incomplete* (the rest is poisoned), *stopped*
    (``max_batches`` were acked), *interrupted* (asked to stop) or *halted* (an error such as a full
    disk that waits for a person). After all but *complete*, the run can be resumed.
    """

    run: str
    instance: str
    ending: Ending
    acked: int = 0
    rows: int = 0
    resumed: int = 0
    lost: int = 0
    failed: int = 0
    poisoned: int = 0
    seconds: float = 0.0
    error: PenstockError | None = None
    events: tuple[Event, ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "instance": self.instance,
            "ending": self.ending,
            "acked": self.acked,
            "rows": self.rows,
            "resumed": self.resumed,
            "lost": self.lost,
            "failed": self.failed,
            "poisoned": self.poisoned,
            "seconds": round(self.seconds, 3),
            "error": {"code": self.error.code, "message": str(self.error)} if self.error else None,
        }
