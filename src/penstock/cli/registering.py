"""Making the files that ``--input`` names the inputs of a pipeline."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import CorruptFile, InputChanged, InputError, PenstockError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.inputs import Input
    from penstock.pipeline import Pipeline
    from penstock.storage import Storage
    from penstock.store import Store
    from penstock.tables import Table

_MUCH_TEXT = 256 << 20


def parse(given: Sequence[str], pipeline: Pipeline) -> dict[str, str]:
    """``NAME=PATH`` of each ``--input``, checked against what the pipeline wants."""
    wanted = [t.__table_name__ for t in pipeline.inputs]
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (equals and name and path):
            raise UsageError(
                f"--input {text} is not NAME=PATH", hint=f"write --input {wanted[0]}={path or text}"
            )
        if name not in wanted:
            near = difflib.get_close_matches(name, wanted, n=1)
            raise UsageError(
                f"pipeline {pipeline.name} has no input {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else ""),
                hint="it wants " + " ".join(f"--input {w}=PATH" for w in wanted),
            )
        if name in found:
            raise UsageError(
                f"--input {name} is given twice",
                hint=f"name a folder or a pattern: --input {name}='DIR/*.parquet'",
            )
        found[name] = path
    return found


@dataclass(frozen=True, slots=True)
class Users:
    """The runs that were started with an input as it is registered now."""

    unfinished: tuple[str, ...]
    finished: tuple[str, ...]


def users(store: Store, name: str, digest: str) -> Users:
    from penstock.claims import Board
    from penstock.runner import runs

    unfinished: list[str] = []
    finished: list[str] = []
    for run in runs.every(store):
        if run.inputs.get(name) != digest:
            continue
        try:
            summary = Board.open(store, run.name).summary()
            done = summary.completed.partitions == summary.total.partitions
        except PenstockError:
            done = False
        (finished if done else unfinished).append(run.name)
    return Users(tuple(unfinished), tuple(finished))


class Registrar:
    """Registers the inputs of one pipeline."""

    def __init__(
        self, store: Store, storage: Storage, pipeline: Pipeline, paths: Mapping[str, str], *, replace: bool
    ) -> None:
        self.store = store
        self.storage = storage
        self.pipeline = pipeline
        self.paths = paths
        self.replace = replace

    def check_given(self) -> None:
        """Every input is named, or registered already."""
        from penstock import inputs

        known = inputs.names(self.store)
        missing = [t.__table_name__ for t in self.pipeline.inputs]
        missing = [name for name in missing if name not in self.paths and name not in known]
        if missing:
            raise UsageError(
                f"pipeline {self.pipeline.name} needs input {', '.join(missing)}",
                hint="add " + " ".join(f"--input {name}=PATH" for name in missing),
            )

    def needs_spark(self) -> bool:
        """Whether there is so much text to count that it is worth waiting for Spark's help."""
        from penstock.inputs import files

        for path in self.paths.values():
            found = files.find(path)
            if files.guess_format(found) in ("csv", "jsonl") and sum(f.bytes for f in found) > _MUCH_TEXT:
                return True
        return False

    def register(self, spark: SparkSession | None, partition_rows: int, *, fixed: bool) -> list[Input]:
        """Register what was named. ``fixed``: rows per partition are as they were registered before."""
        from penstock import inputs

        made = []
        for position, table in enumerate(self.pipeline.inputs):
            name = table.__table_name__
            if name not in self.paths:
                made.append(inputs.load(self.store, self.storage, name))
                continue
            before = self._before(name)
            # Only the first input is cut into partitions.
            rows = before.partition_rows if before and (fixed or position) else partition_rows
            made.append(self._register(spark, table, rows))
        return made

    def _register(self, spark: SparkSession | None, table: type[Table], rows: int) -> Input:
        from penstock import inputs

        name = table.__table_name__

        def register(*, replace: bool) -> Input:
            return inputs.register(
                spark,
                self.store,
                self.storage,
                name,
                self.paths[name],
                partition_rows=rows,
                table_schema=table.input_schema(),
                replace=replace,
            )

        try:
            return register(replace=False)
        except (InputChanged, CorruptFile) as error:
            if self.replace:
                self._refuse_used(name)
                return register(replace=True)
            raise type(error)(
                error.what,
                left=error.left,
                hint=f"leave --input {name} out to go on with what is registered; or --replace-input to "
                "register this in its place; or keep both: --store URL --storage DIR of its own",
            ) from error

    def _before(self, name: str) -> Input | None:
        from penstock import inputs

        try:
            return inputs.load(self.store, self.storage, name)
        except (InputError, CorruptFile):
            return None

    def _refuse_used(self, name: str) -> None:
        registered = self._before(name)
        using = users(self.store, name, registered.digest).unfinished if registered else ()
        if using:
            raise UsageError(
                f"input {name} cannot be replaced: unfinished runs use it: {', '.join(using)}",
                left="the registered input is as it was",
                hint=f"finish it with `penstock runs resume {using[0]}`, or remove it with "
                f"`penstock runs gc {using[0]} --drop`",
            )
