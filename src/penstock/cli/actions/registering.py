"""Making the files that ``--input`` names the inputs of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.actions.inputs import InputFiles
from penstock.cli.output import in_commands
from penstock.errors import CorruptFile, InputChanged, InputError, PenstockError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.inputs import Input
    from penstock.batch.pipeline import Pipeline
    from penstock.storage import Storage
    from penstock.store import Store
    from penstock.types.tables import Table

_MUCH_TEXT = 256 << 20


@dataclass(frozen=True, slots=True)
class InputUsers:
    """The runs that were started with an input as it is registered now."""

    unfinished: tuple[str, ...]
    finished: tuple[str, ...]


def users(store: Store, name: str, digest: str) -> InputUsers:
    from penstock.batch.runs import runs, views

    unfinished: list[str] = []
    finished: list[str] = []
    for run in runs.using(store, name, digest):
        try:
            done = views.of(store, run).state == "complete"
        except PenstockError:
            done = False
        (finished if done else unfinished).append(run.name)
    return InputUsers(tuple(unfinished), tuple(finished))


class Registrar:
    """Registers the inputs of a run under names of its own, so that runs do not disturb each other.

    An input that is not named may be registered already: for this run, or under the table's name.
    """

    def __init__(
        self,
        store: Store,
        storage: Storage,
        pipeline: Pipeline,
        sources: Mapping[str, InputFiles],
        run: str,
        *,
        begun: bool,
        provided: bool,
    ) -> None:
        self.store = store
        self.storage = storage
        self.pipeline = pipeline
        self.sources = sources
        self.run = run
        self.begun = begun
        """The run exists already."""
        self.provided = provided
        """A dataset factory may provide all inputs but the first."""

    def names(self) -> dict[str, str]:
        """The name of each input by table; an error if one is neither named nor registered."""
        from penstock.batch import inputs
        from penstock.batch.runs import runs

        known = inputs.names(self.store)
        found: dict[str, str] = {}
        missing = []
        for number, table in enumerate(t.__table_name__ for t in self.pipeline.inputs):
            own = runs.own_input(self.run, table)
            if table in self.sources or own in known:
                found[table] = own
            elif table in known:
                found[table] = table
            elif not (number and self.provided):
                missing.append(table)
        if missing:
            raise UsageError(
                f"pipeline {self.pipeline.name} needs input {', '.join(missing)}",
                hint="add " + " ".join(f"--input {name}=PATH" for name in missing),
            )
        return found

    def needs_spark(self) -> bool:
        """Whether there is so much text to count that it is worth waiting for Spark's help."""
        from penstock.batch.inputs import files

        for source in self.sources.values():
            found = files.find(source.path)
            if (source.format or files.guess_format(found)) in ("csv", "jsonl") and sum(
                f.bytes for f in found
            ) > _MUCH_TEXT:
                return True
        return False

    def register(self, spark: SparkSession | None, partition_rows: int | None, *, fixed: bool) -> list[Input]:
        """Register what was named. ``fixed``: rows per partition are as they were registered before.

        Without ``partition_rows``, they follow from the files.
        """
        from penstock.batch import inputs

        made = []
        names = self.names()
        for position, table in enumerate(self.pipeline.inputs):
            name = names.get(table.__table_name__)
            if name is None:
                continue
            if table.__table_name__ not in self.sources:
                made.append(inputs.load(self.store, self.storage, name))
                continue
            before = self._before(name)
            # A size that is named is meant for the first input; others keep theirs.
            rows = before.partition_rows if before and (fixed or position) else partition_rows
            made.append(self._register(spark, table, name, rows))
        return made

    def _register(self, spark: SparkSession | None, table: type[Table], name: str, rows: int | None) -> Input:
        from penstock.batch import inputs

        source = self.sources[table.__table_name__]
        try:
            return inputs.register(
                spark,
                self.store,
                self.storage,
                name,
                source.path,
                partition_rows=rows,
                format=source.format,
                options=source.options,
                table_schema=table.input_schema(),
                replace=not self.begun,
            )
        except (InputChanged, CorruptFile) as error:
            raise type(error)(
                f"run {self.run!r} was started with other data for {table.__table_name__}: {error.what}",
                left="the run and what it has published are as they were",
                hint="start a run of its own for this data with --run NAME; to go on with the old one, "
                f"`penstock runs resume {self.run}`",
            ) from error
        except PenstockError as error:
            raise in_commands(error, table.__table_name__) from error

    def _before(self, name: str) -> Input | None:
        from penstock.batch import inputs

        try:
            return inputs.load(self.store, self.storage, name)
        except (InputError, CorruptFile):
            return None
