"""Parts inside Spark's workers: they are opened, polled, and suspended until the next epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import BadState, PenstockError, SourceFailed, TransientError
from penstock.sources.base import Part, PartName, StatefulSource
from penstock.sources.hosting import Host, Key, close
from penstock.sources.state import decode, encode
from penstock.streams.ingest.jobs.poll_watch import PollWatch
from penstock.streams.model import PartState

if TYPE_CHECKING:
    from penstock.streams.api.stream import SourceSpec

HOST: Host[Part] = Host()
"""The parts that are suspended in this process."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A part that a task works on, and from where."""

    name: PartName
    state: str | None


class OpenParts:
    """The open parts of a task. What is not suspended when the block ends is closed."""

    def __init__(self, stream: str, sources: Mapping[str, SourceSpec]) -> None:
        self._stream = stream
        self._sources = sources
        self.parts: dict[PartName, Part] = {}
        self._finished: dict[PartName, PartState] = {}

    def __enter__(self) -> OpenParts:
        return self

    def __exit__(self, *_: object) -> None:
        for name, part in self.parts.items():
            close(part, self._key(name))
        self.parts.clear()

    def open(self, ticket: Ticket) -> None:
        """Open a part that is not open yet."""
        name, state = ticket.name, ticket.state
        if name in self.parts:
            return
        part = HOST.take(self._key(name), state)
        if part is None:
            value = None if state is None else decode(str(name), state)
            source = self._sources[name.source].source
            assert isinstance(source, StatefulSource)
            with _asking(name, "build_part"):
                part = source.build_part(name.part, value)
        if not isinstance(part, Part):
            raise SourceFailed(
                f"source {name.source}: build_part({name.part!r}) returned {part!r}, not a Part"
            )
        self.parts[name] = part

    def poll(self, name: PartName, limit: int) -> Any:
        with _asking(name, "poll"):
            brought = self.parts[name].poll(limit)
        if brought is not None and hasattr(brought, "__len__"):
            count = brought.num_rows if hasattr(brought, "num_rows") else len(brought)
            if count > limit:
                raise SourceFailed(
                    f"source {name.source}, part {name.part!r}: poll({limit}) returned {count} rows",
                    hint="at most `limit` rows may come at a time; keep the rest for the next poll",
                )
        return brought

    def is_finished(self, name: PartName) -> bool:
        with _asking(name, "is_finished"):
            return bool(self.parts[name].is_finished())

    def finish(self, name: PartName) -> None:
        """Take the last state of a part, and let go of it."""
        part = self.parts[name]
        self._finished[name] = self._state(name, "snapshot", part.snapshot)
        close(self.parts.pop(name), self._key(name))

    def snapshots(self, watch: PollWatch) -> dict[PartName, PartState]:
        """The states of all parts that were opened."""
        states = {}
        for name, part in self.parts.items():
            with watch.call(name):
                states[name] = self._state(name, "snapshot", part.snapshot)
        return states | self._finished

    def collected(self) -> dict[PartName, PartState]:
        return {name: self._state(name, "collect", part.collect) for name, part in self.parts.items()}

    def _state(self, name: PartName, method: str, ask: Any) -> PartState:
        finished = self.is_finished(name)
        with _asking(name, method):
            value = ask()
        return PartState(encode(str(name), value), finished)

    def suspend(self, states: Mapping[PartName, PartState], watch: PollWatch) -> None:
        """Set aside those that go on."""
        going_on = [name for name in self.parts if not states[name].finished]
        for name in going_on:
            with watch.call(name), _asking(name, "suspend"):
                self.parts[name].suspend()
        for name in going_on:
            if (state := states[name].state) is not None:
                HOST.keep(self._key(name), state, self.parts.pop(name))

    def _key(self, name: PartName) -> Key:
        return self._stream, name.source, name.part


@contextmanager
def _asking(name: PartName, method: str) -> Iterator[None]:
    """Errors of a source say which part and method they came from; what may pass stays transient."""
    try:
        yield
    except BadState:
        raise
    except Exception as error:
        passing = isinstance(error, TransientError | ConnectionError | TimeoutError)
        kind = TransientError if passing else SourceFailed
        what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        hint = error.hint if isinstance(error, PenstockError) else None
        raise kind(
            f"source {name.source}, part {name.part!r}: {method} failed: {what}",
            left="the epoch was not committed, and is tried again",
            hint=hint,
        ) from error
