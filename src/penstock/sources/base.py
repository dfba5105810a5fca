"""What a source is: a list of parts, each of which is polled for rows and has a state that can move.

::

    class Countdown(StatefulSource):
        table = Ticks

        def list_parts(self) -> list[str]:
            return ["a", "b"]

        def build_part(self, part: str, state: State) -> CountdownPart:
            return CountdownPart(state if state is not None else 10)

A source is a *description*: it is pickled and travels to Spark's executors, where its parts are built. It
holds paths, addresses and options, never an open file or connection; those belong to a part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

from penstock.sources.state import State

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.types.tables import Table

Rows: TypeAlias = "pa.RecordBatch | Sequence[Mapping[str, object]] | None"
"""What a poll brings: a record batch, rows as dictionaries by field, or None for nothing now."""


class Part(ABC):
    """One part of a source at work, between two of its states.

    Calls come from one thread, in this order::

        build_part ─► poll … poll ─► is_finished ─► snapshot ─┬─► suspend ─► poll … (a later epoch) …
                                                              └─► close

    and, when the part moves to another instance, `collect` and then `close`. An epoch may ask a part for
    nothing (no `poll`, then `snapshot`), when the queue is full. After `is_finished` has said True, only
    `snapshot`, `collect` and `close` follow.

    Rows count when their epoch is committed, together with the state of the same `snapshot`. If the epoch is
    given up or the process dies, the part is built again from the last committed state: from that state it
    must bring the same rows again, in the same order, however they are cut into polls. It need not bring
    them at the same pace.
    """

    @abstractmethod
    def poll(self, limit: int) -> Rows:
        """The next rows, at most ``limit`` of them (at least 1 is asked for); None if there are none now.

        It should return soon (well within a second) with what there is: an epoch waits for it. If it does not
        for many seconds, its process is ended, and the part is built and polled anew where no epoch waits for
        it, however long it takes; `build_part` likewise. An empty batch counts as None. It is called again in
        the same epoch until it returns None, is finished, or the epoch has all that it takes.

        An error fails the epoch of all parts; nothing is lost, and the epoch is tried again. Raise
        `penstock.TransientError` (or `ConnectionError`, `TimeoutError`) for what may pass by itself.
        """

    @abstractmethod
    def snapshot(self) -> State:
        """Where the part stands: after the last row that `poll` returned, and before the next one.

        Any value of the types of `penstock.sources.State`. It is called once at the end of every epoch in
        which the part took part, also when there were no rows, and must not change anything.
        """

    def is_finished(self) -> bool:
        """Whether no row will ever come any more. It stays true for good: it is remembered with the state.

        Asked after each poll. A part that is finished is not built again, whatever restarts or moves.
        """
        return False

    def collect(self) -> State:
        """The state for the instance that the part moves to, after which this part is only closed.

        Called instead of `snapshot` at the barrier before the owners change. Override it where the state that
        moves must hold more than that of `snapshot`. It may be called on a part that was just built from the
        last state: the one that was at work may be suspended in another Python worker, and is not asked. So
        it finds no lock or cursor to give back; that belongs into `suspend`. It is not called when an
        instance dies, nor on a part that takes long: that moves with its last snapshot.
        """
        return self.snapshot()

    def suspend(self) -> None:  # noqa: B027
        """The part is set aside after its `snapshot`: for a moment, until the next epoch, or for good.

        Give back what should not be held while nothing is read (a transaction, a row lock), and keep what is
        dear to make anew (a connection). Either `poll` comes next, in the same process, or `close`, or
        nothing at all: a part may be built from the snapshot elsewhere without this one hearing of it.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of everything. The last call, and not a promise: a process that dies makes none."""


class Source(ABC):
    """What all sources of a stream have: the table of their rows, and parts that appear one by one."""

    table: type[Table]
    """The table of the rows. A source brings all its fields that are not derived."""

    grows: bool = False
    """Whether parts may still appear when all that are listed have finished. If so, the stream never ends."""

    def describe(self) -> Mapping[str, object]:
        """What names and states of parts refer to, by name, as JSON values. It is shown: no secrets.

        A place (a folder, a server and its topics, a database and its table) and what else a state depends on
        to mean the same rows: a format, the fields of a key, a number of parts. Not what may change freely,
        such as a pace or a timeout. It is stored with the stream, which goes on with something else only if a
        person accepts that: the states of the old place would be applied to the new one.
        """
        return {}

    def reopens(self, before: Mapping[str, object]) -> bool:
        """Whether parts that finished when `describe` said ``before`` may have more rows by now.

        Asked when it says something else, which a person has accepted: a source that was given a later end.
        If so, they are built again from their last states, and go on until they finish anew. If not, they
        stay as they are, and the log says so.
        """
        del before
        return False

    @abstractmethod
    def list_parts(self) -> Iterable[str]:
        """The names of the parts that there are now. A name means the same part for ever.

        Called in the driver of one instance, at the start and then every few seconds (``stream.list_every``),
        in a thread of its own beside the epochs: it may take long, and is not called again before it has
        returned. An error is told (``penstock stream status``), and it is called again.
        New names are picked up while the stream runs. A name that is no longer listed goes on being read from
        its state until it finishes; one that has finished is remembered, and is not read again if it comes
        back.
        """


class StatefulSource(Source):
    """A source of one's own: subclasses say which rows there are, and how to list and to open parts."""

    @abstractmethod
    def build_part(self, part: str, state: State) -> Part:
        """Open a part where ``state`` says, or at its begin where that is None.

        Called in a Python worker of an executor. ``state`` is what `snapshot` or `collect` gave, after it was
        stored: a tuple comes back as a list.
        """


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """A part of a source of a stream."""

    source: str
    part: str

    def __str__(self) -> str:
        return f"{self.source}/{self.part}"

    @classmethod
    def parse(cls, text: str) -> Self:
        source, _, part = text.partition("/")
        return cls(source, part)
