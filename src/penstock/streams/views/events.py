"""What an instance of a stream tells while it works, as values for a terminal, a log and a program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

_log = logging.getLogger("penstock")

EventKind = Literal[
    "joined",  # the instance takes part
    "epoch",  # an epoch is committed: number, rows, late, bytes, seconds
    "rescaled",  # parts have other owners: version, members, moved (a share), pause (seconds)
    "output",  # this instance runs an output from now on: output, batch, epoch
    "batch",  # the sink of an output took a batch: output, batch, epoch, seconds
    "problem",  # something did not work and is tried again: code
]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Something that happened: ``values`` say it for programs, ``text`` for people."""

    kind: EventKind
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "text": self.text, "values": dict(self.values)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["kind"], value["text"], value["values"])


Listener = Callable[[StreamEvent], None]


def logged(event: StreamEvent) -> None:
    """The listener of an instance that was given none: what a person should know goes to the log."""
    _log.log(logging.WARNING if event.kind == "problem" else logging.INFO, "%s", event.text)


def joined(stream: str, member: str) -> StreamEvent:
    return StreamEvent("joined", f"joined stream {stream} as {member}", {"stream": stream, "member": member})


def epoch_committed(number: int, *, rows: int, late: int, size: int, seconds: float) -> StreamEvent:
    """Told by the instance that leads, so that each epoch is told once."""
    text = f"epoch {number}: {rows:,} rows in {seconds * 1000:,.0f} ms"
    values = {"epoch": number, "rows": rows, "late": late, "bytes": size, "seconds": seconds}
    return StreamEvent("epoch", text + (f", {late:,} late" if late else ""), values)


def rescaled(version: int, members: tuple[str, ...], *, moved: float, pause: float) -> StreamEvent:
    """``moved`` is the share that has another owner, ``pause`` the seconds without a commit of rows."""
    text = f"now on {', '.join(members)}: {moved:.0%} moved, paused for {pause:.2f} s"
    values = {"version": version, "members": list(members), "moved": moved, "pause": pause}
    return StreamEvent("rescaled", text, values)


def output_started(output: str, *, batch: int, epoch: int) -> StreamEvent:
    """``batch`` and ``epoch`` are the last ones that its sink took before; -1 and 0 for none."""
    text = f"runs output {output}" + (f", after batch {batch} and epoch {epoch}" if batch >= 0 else "")
    return StreamEvent("output", text, {"output": output, "batch": batch, "epoch": epoch})


def batch_taken(output: str, *, batch: int, epoch: int, seconds: float) -> StreamEvent:
    text = f"output {output} took batch {batch}, up to epoch {epoch}, in {seconds * 1000:,.0f} ms"
    values = {"output": output, "batch": batch, "epoch": epoch, "seconds": seconds}
    return StreamEvent("batch", text, values)


def problem(text: str, code: str = "error") -> StreamEvent:
    return StreamEvent("problem", text, {"code": code})
