"""From the plan of an output to one Structured Streaming query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.spark.flow import Flow, Step
from penstock.streams.flow.sites import Site
from penstock.streams.sinks.base import Mode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Read(Protocol):
    """Gives the streaming DataFrame of a source's rows, those on time or those too late.

    With ``counted`` it has these fields alone, and a row stands for any number of equal ones: `COUNT` of
    `penstock.streams.schemas` is how many they are.
    """

    def __call__(self, source: str, late: bool, counted: Sequence[str] | None = None) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class Mark:
    """How Spark knows the column of the event time: by metadata, which a Python function cannot hand on."""

    field: str
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, frame: DataFrame, field: str) -> Mark:
        return cls(field, dict(frame.schema[field].metadata))

    def is_on(self, frame: DataFrame) -> bool:
        """Whether the column is still the one that was marked."""
        return self.metadata.items() <= frame.schema[self.field].metadata.items()

    def put_on(self, frame: DataFrame) -> DataFrame:
        return frame.withMetadata(self.field, dict(self.metadata))


@dataclass(frozen=True, slots=True)
class Current:
    """Rows at one place of a query. Arrow steps wait in the flow, so that those in a row share a task."""

    flow: Flow
    mark: Mark | None = None

    def frame(self, spark: SparkSession) -> DataFrame:
        frame = self.flow.frame(spark)
        return frame if self.mark is None or self.flow.in_jvm else self.mark.put_on(frame)

    def then(self, table: str, step: Step, schema: pa.Schema, time: str | None) -> Current:
        """Apply an Arrow step, after which the rows are of ``table`` and have event time or not."""
        made = replace(self.flow.then(step, schema), table=table)
        return Current(made, self.mark if time is not None else None)


@dataclass(frozen=True, slots=True, eq=False)
class Node(ABC):
    """An operator, and the operators whose rows it takes. It is itself alone: equal ones are two."""

    operator: ClassVar[str]

    site: Site
    inputs: tuple[Node, ...]

    @abstractmethod
    def compile(self, query: Query) -> Current:
        """The rows that it makes of its inputs. `DefinitionError` where Spark's analysis says so."""

    def kind(self) -> str:
        """What it is called in a plan."""
        return self.operator

    def describe(self) -> dict[str, Any]:
        """Its parameters as JSON values, and the fingerprints of its functions."""
        return {}

    def walk(self) -> Iterator[Node]:
        """All operators up to this one, each once, and each after those that it takes rows from."""
        found: dict[Node, None] = {}
        _gather(self, found)
        return iter(found)


def _gather(node: Node, found: dict[Node, None]) -> None:
    if node not in found:
        for each in node.inputs:
            _gather(each, found)
        found[node] = None


class Query:
    """The compilation of one output, of which ``root`` is the last operator.

    A node that is used twice is compiled once.
    """

    def __init__(self, spark: SparkSession, read: Read, mode: Mode, root: Node) -> None:
        self.spark = spark
        self.read = read
        self.mode = mode
        self.nodes = tuple(root.walk())
        self._made: dict[Node, Current] = {}

    def current(self, node: Node) -> Current:
        if node not in self._made:
            self._made[node] = node.compile(self)
        return self._made[node]

    def frame(self, node: Node) -> DataFrame:
        return self.current(node).frame(self.spark)


def describe(node: Node) -> dict[str, Any]:
    """The plan up to a node: operators by number and name, each with the numbers of those it takes."""
    nodes = list(node.walk())
    numbers = {each: f"{n:02}" for n, each in enumerate(nodes, start=1)}
    return {
        f"{numbers[each]} {each.kind()}": each.describe() | _taken([numbers[i] for i in each.inputs])
        for each in nodes
    }


def _taken(numbers: Sequence[str]) -> dict[str, Any]:
    return {"of": list(numbers)} if numbers else {}
