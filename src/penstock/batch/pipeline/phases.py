"""Phases: how a pipeline's rows are cut while its stages run, and what moves from one cut to the next.

A transform means what its PySpark means over all rows. One that looks at each row by itself runs wherever
its table is; one that brings rows together by keys needs them cut by those keys, which an *exchange* does;
and one that looks at everything needs one claim that has all rows. Consecutive stages with the same cut are
a *phase*. All functions here are pure: they see declarations and what the plans of transforms need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.batch.pipeline.stages import Fields, Stage, live
from penstock.types.order import Order, order_text


@dataclass(frozen=True, slots=True)
class ByRows:
    """Row ranges of a registered input."""

    table: str

    def __str__(self) -> str:
        return f"rows of {self.table}"


@dataclass(frozen=True, slots=True)
class ByKeys:
    """Key ranges: for each table that is cut, the columns of the key, in the same order."""

    columns: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        keys = (f"{table}.{'+'.join(columns)}" for table, columns in sorted(self.columns.items()))
        return f"keys {' = '.join(keys)}"


@dataclass(frozen=True, slots=True)
class AsOne:
    """One claim that has all rows; ``why`` it must."""

    why: str = ""

    def __str__(self) -> str:
        return "everything"


@dataclass(frozen=True, slots=True)
class ByOrder:
    """Ranges of a table that is sorted: one is read, sorted and published by each claim."""

    table: str
    order: Order

    def __str__(self) -> str:
        return f"order of {self.table} by {order_text(self.order)}"


Partitioning = ByRows | ByKeys | AsOne | ByOrder


@dataclass(frozen=True, slots=True)
class Exchange:
    """A table that a phase leaves for later ones: by ``keys``, or without any for one that has everything.

    With an ``order``, it is left sorted, and the keys are the columns of that.
    """

    table: str
    keys: tuple[str, ...]
    fields: frozenset[str]
    """What is written: the keys, and what a later phase needs."""
    readers: tuple[int, ...]
    """The phases that read it."""
    order: Order = ()

    def __str__(self) -> str:
        return f"{self.table}({', '.join(sorted(self.fields))}) {self.how}"

    @property
    def how(self) -> str:
        if self.order:
            return f"sorted by {order_text(self.order)}"
        return f"by {', '.join(self.keys)}" if self.keys else "as a whole"

    @property
    def name(self) -> str:
        """What it is found by in the manifests of its phase."""
        return f"{self.table}:{self.how if self.order else ','.join(self.keys)}"


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive stages with one partitioning."""

    index: int
    partitioning: Partitioning
    stages: tuple[Stage, ...]
    """With the numbers that they have in the whole pipeline."""
    begin: int
    """How many stages there are before it."""
    entering: Mapping[str, int | None]
    """The phase that each of its tables comes from; None for a registered input."""
    whole: frozenset[str]
    """Inputs that each claim is given as a whole."""
    outputs: tuple[str, ...]
    """Output tables that are final here: its acks publish them."""
    leaving: tuple[Exchange, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    """Why the phase is cut as it is: a sentence for each transform that asked for it."""
    ordered: Mapping[str, Order] = field(default_factory=dict)
    """The outputs that it publishes as sorted files."""

    def __str__(self) -> str:
        """How its rows are cut, and what it leaves for later phases."""
        told = f"{self.partitioning}, stages {self.begin} to {self.end}"
        # Of a phase that is cut by an order, the cut tells it.
        ordered = {} if isinstance(self.partitioning, ByOrder) else self.ordered
        sorts = (f"sorts {table} by {order_text(order)}" for table, order in sorted(ordered.items()))
        return "; ".join([told, *sorts, *(f"leaves {each}" for each in self.leaving)])

    @property
    def end(self) -> int:
        return self.begin + len(self.stages)

    def exchange(self, table: str, reader: int) -> Exchange:
        """The exchange that it writes of a table for a later phase."""
        return next(e for e in self.leaving if e.table == table and reader in e.readers)

    def keys(self, table: str) -> tuple[str, ...]:
        """The key that a table enters by; empty where it is read as a whole."""
        if isinstance(self.partitioning, ByKeys):
            return self.partitioning.columns[table]
        return tuple(each.name for each in self.order)

    @property
    def order(self) -> Order:
        """What its table is sorted by, if that is how it is cut."""
        return self.partitioning.order if isinstance(self.partitioning, ByOrder) else ()


@dataclass(frozen=True, slots=True)
class Phases:
    """A pipeline as it runs over inputs of given sizes."""

    phases: tuple[Phase, ...]
    needed: tuple[Fields, ...]
    """For each phase, the fields by table that its outputs and later phases need of what it leaves."""

    def __iter__(self) -> Iterator[Phase]:
        return iter(self.phases)

    def __len__(self) -> int:
        return len(self.phases)

    def __getitem__(self, index: int) -> Phase:
        return self.phases[index]

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(stage for phase in self.phases for stage in phase.stages)

    def of(self, done: int) -> Phase:
        """The phase in which, after ``done`` stages, a checkpoint can be."""
        return next((p for p in self.phases if p.begin <= done < p.end), self.phases[-1])

    def live(self, phase: Phase, done: int) -> dict[str, frozenset[str]]:
        """Fields by table that a phase still needs once ``done`` stages of the pipeline have run."""
        needed = self.needed[phase.index]
        return live([s for s in phase.stages if s.index >= done], needed)

    def texts(self) -> tuple[str, ...]:
        """The cut of every phase, for fingerprints; nothing for one phase over row ranges."""
        if len(self.phases) == 1 and isinstance(self.phases[0].partitioning, ByRows):
            return ()
        return tuple(map(str, self.phases))
