"""What a sink is: where the rows of an output go, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.errors import StreamMismatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.storage import Storage
    from penstock.store import Store
    from penstock.types.tables import Table

Mode = Literal["append", "update", "complete"]
"""What a batch holds: rows that are final, rows that replace those of their key, or the whole table."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One step of an output. Numbers grow by one; a batch that is repeated has the same rows again."""

    number: int
    epoch: int
    """The newest epoch whose rows it takes in. Several batches may have the same one."""
    final: bool = False
    """Whether the stream has ended with it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which output a writer works for, and with which right."""

    stream: str
    id: str
    """Of the stream: one that was dropped and made anew under its name has another."""
    output: str
    token: int
    """The fencing token of the instance that runs the output; a later owner has a greater one."""
    table: type[Table]
    mode: Mode
    keys: tuple[str, ...]
    """The fields that identify a row, where the mode is ``update``."""
    store: Store
    storage: Storage
    spark: SparkSession

    @property
    def application(self) -> str:
        """What names this output among all that write to the same place."""
        return application(self.stream, self.id, self.output)


def application(stream: str, id: str, output: str) -> str:  # noqa: A002
    """What names an output of a stream, which has an id, among all that write to the same place."""
    return f"penstock/{stream}/{id}/{output}"


class Writer(ABC):
    """A sink at work for one output, in the driver of the instance that runs it. One thread calls it."""

    @abstractmethod
    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Put a batch where it belongs.

        An exactly-once writer makes the rows visible and remembers ``batch.number`` in one step; a batch
        that it remembers is not written again but passed over (see `pass_over`), and `StaleToken` is raised
        if a later owner has opened. An error fails the batch, which is repeated.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of connections."""


class Sink(ABC):
    """A description of where rows go. It holds addresses and options, and nothing that is open."""

    exactly_once: ClassVar[bool]
    """Whether every row is there once whatever is killed; otherwise at least once."""
    modes: ClassVar[frozenset[Mode]]
    """The modes that it can take."""

    @abstractmethod
    def open(self, target: Target) -> Writer:
        """Begin to write for ``target``; from then on, writers with lower tokens are refused.

        Errors that a person must mend (no such place, a wrong schema, no right) are raised here.
        """

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """What it is, for people and for noticing that it changed: kind and place, without secrets."""


def repeats(batch: Batch, last: int | None, place: str, epoch: int | None = None) -> bool:
    """Whether a batch is already at ``place``, where ``last`` is the newest one and goes up to ``epoch``.

    Raises `StreamMismatch` if one in between is missing, or if it cannot be the same batch: rows would be
    lost without a word.
    """
    if last is None or batch.number == last + 1:
        return False
    if batch.number <= last and epoch is not None and batch.epoch > epoch:
        raise StreamMismatch(
            f"{place} has batch {batch.number} but nothing of epoch {batch.epoch}, which now is in it",
            left="nothing was written",
            hint="the output's checkpoint was lost or is of another stream: give the output a new name",
        )
    if batch.number <= last:
        return True
    raise StreamMismatch(
        f"{place} has the batches up to {last}, and batch {batch.number} would leave a gap",
        left="nothing was written",
        hint="restore the sink and the stream's storage from the same backup, or give the output a new name",
    )


def pass_over(frame: DataFrame) -> None:
    """Compute the rows of a repeated batch without putting them anywhere.

    Spark takes the watermark and the state of the next batch from the rows that were computed in this one:
    without that, windows that the batch closes would never come out.
    """
    frame.write.format("noop").mode("overwrite").save()
