"""From the plan of an output to one Structured Streaming query, and the Spark settings that it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.sinks.base import Mode
from penstock.spark.flow import Flow, Step
from penstock.streams.operators.sites import Site

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    # The default keeps all state in the memory of the JVM.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what changed, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Each state partition costs files and a commit in every batch. The number stays with the checkpoint for
    # good, so that it does not follow the cores of the machine that happens to start the query.
    "spark.sql.shuffle.partitions": "4",
    # Of several sources the slowest one decides what is late: otherwise rows that are on time would be lost.
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # Begins and ends of windows, and times that functions see, are in UTC.
    "spark.sql.session.timeZone": "UTC",
}
_WITHOUT_ROWS = "spark.sql.streaming.noDataMicroBatches.enabled"
_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_PLAIN_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class ReadSource(Protocol):
    """Gives the streaming DataFrame of a source's rows: those on time, those too ``late``, or (None) all.

    Those on time have rows among them that tell watermarks, if the source has event time: see `WATERMARK` of
    `penstock.streams.log.schemas`. With ``counted`` it has these fields alone, and a row stands for any
    number of equal ones: `COUNT` there is how many they are.
    """

    def __call__(self, source: str, late: bool | None, counted: Sequence[str] | None = None) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class EventTimeMark:
    """How Spark knows the column of the event time: by metadata, which a Python function cannot hand on."""

    field: str
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, frame: DataFrame, field: str) -> EventTimeMark:
        return cls(field, dict(frame.schema[field].metadata))

    def is_on(self, frame: DataFrame) -> bool:
        """Whether the column is still the one that was marked."""
        return self.metadata.items() <= frame.schema[self.field].metadata.items()

    def put_on(self, frame: DataFrame) -> DataFrame:
        return frame.withMetadata(self.field, dict(self.metadata))


@dataclass(frozen=True, slots=True)
class CompiledRows:
    """Rows at one place of a query. Arrow steps wait in the flow, so that those in a row share a task."""

    flow: Flow
    mark: EventTimeMark | None = None

    def frame(self, spark: SparkSession) -> DataFrame:
        frame = self.flow.frame(spark)
        return frame if self.mark is None or self.flow.in_jvm else self.mark.put_on(frame)

    def then(self, table: str, step: Step, schema: pa.Schema, time: str | None) -> CompiledRows:
        """Apply an Arrow step, after which the rows are of ``table`` and have event time or not."""
        made = replace(self.flow.then(step, schema), table=table)
        return CompiledRows(made, self.mark if time is not None else None)


@dataclass(frozen=True, slots=True, eq=False)
class Operator(ABC):
    """An operator, and the operators whose rows it takes. It is itself alone: equal ones are two."""

    operator: ClassVar[str]

    site: Site
    inputs: tuple[Operator, ...]

    @abstractmethod
    def compile(self, query: QueryCompiler) -> CompiledRows:
        """The rows that it makes of its inputs. `DefinitionError` where Spark's analysis says so."""

    @property
    def waits(self) -> bool:
        """Whether it needs to know which rows come too late: it keeps state until the watermark passes."""
        return False

    def kind(self) -> str:
        """What it is called in a plan."""
        return self.operator

    def describe(self) -> dict[str, Any]:
        """Its parameters as JSON values, and the fingerprints of its functions."""
        return {}

    def walk(self) -> Iterator[Operator]:
        """All operators up to this one, each once, and each after those that it takes rows from."""
        found: dict[Operator, None] = {}
        _gather(self, found)
        return iter(found)


def _gather(node: Operator, found: dict[Operator, None]) -> None:
    if node not in found:
        for each in node.inputs:
            _gather(each, found)
        found[node] = None


class QueryCompiler:
    """The compilation of one output, of which ``root`` is the last operator.

    A node that is used twice is compiled once.
    """

    def __init__(self, spark: SparkSession, read: ReadSource, mode: Mode, root: Operator) -> None:
        self.spark = spark
        self.read = read
        self.mode = mode
        self.nodes = tuple(root.walk())
        self._made: dict[Operator, CompiledRows] = {}

    def waits(self, node: Operator) -> bool:
        """Whether rows of ``node`` get to an operator for which some come too late."""
        return any(each.waits and node in each.walk() for each in self.nodes)

    def current(self, node: Operator) -> CompiledRows:
        if node not in self._made:
            self._made[node] = node.compile(self)
        return self._made[node]

    def frame(self, node: Operator) -> DataFrame:
        return self.current(node).frame(self.spark)


def describe(node: Operator) -> dict[str, Any]:
    """The plan up to a node: operators by number and name, each with the numbers of those it takes."""
    nodes = list(node.walk())
    numbers = {each: f"{n:02}" for n, each in enumerate(nodes, start=1)}
    return {
        f"{numbers[each]} {each.kind()}": each.describe() | _taken([numbers[i] for i in each.inputs])
        for each in nodes
    }


def _taken(numbers: Sequence[str]) -> dict[str, Any]:
    return {"of": list(numbers)} if numbers else {}


def spark_settings(*, expires: bool = False, local_disk: bool = False) -> dict[str, str]:
    """What a session must be set to before the query of an output is started in it.

    ``expires``: state of the output expires by the clock (`stateful_map` with a ttl). ``local_disk``: the
    checkpoint stands on a disk of this machine, where plain renames are safe and almost twice as fast.
    """
    # Windows close in a batch without rows, after the last one with rows. Where state expires by the clock,
    # Spark would run such batches without end.
    settings = _SETTINGS | {_WITHOUT_ROWS: "false" if expires else "true"}
    return settings | {_FILES: _PLAIN_FILES} if local_disk else settings
