"""Streams: sources, what is made of their rows, and where it goes.

::

    stream = Stream("clicks")
    clicks = stream.source("clicks", DirectorySource(…)).assign_timestamps(Clicks.at, lateness=60)
    counts = clicks.key_by(Clicks.page).tumbling(300).count(to=Counts, start=Counts.begin)
    stream.output("counts", counts, ParquetSink(…))

A stream is a definition and holds no rows. To define one needs no Spark session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from penstock.batch.pipeline import Pipeline
from penstock.errors import DefinitionError
from penstock.sinks.base import Mode, Sink
from penstock.sources.base import Source
from penstock.streams.api.definition import Definition, check_name
from penstock.streams.api.outputs import Output, output
from penstock.streams.api.pipelines import pipeline_sink
from penstock.streams.api.rows import Rows
from penstock.streams.api.shape import Named, Shape
from penstock.streams.api.sources import SourceSpec, Timestamps
from penstock.streams.operators.sites import Site, caller
from penstock.streams.operators.stateless import FromSource
from penstock.types.tables import TableMeta

__all__ = ["Output", "Rows", "SourceSpec", "Stream", "Timestamps"]


class Stream:
    """A stream under its name, written down source by source and output by output."""

    def __init__(self, name: str) -> None:
        site = Site("stream", caller())
        check_name(site, name)
        self._definition = Definition(name, site.location)

    def __repr__(self) -> str:
        return f"<stream {self.name}: {len(self.sources)} sources, {len(self.outputs)} outputs>"

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def sources(self) -> Mapping[str, SourceSpec]:
        return MappingProxyType(self._definition.sources)

    @property
    def outputs(self) -> Mapping[str, Output]:
        return MappingProxyType(self._definition.outputs)

    def source(self, name: str, source: Source) -> Rows:
        """The rows of a source, with the fields of its table that are not derived."""
        site = Site(f"source {name}", caller())
        if not _has_table(source):
            raise site.error(
                DefinitionError, f"is given {source!r}", hint="give a source that names its table"
            )
        spec = SourceSpec(name, source, location=site.location)
        self._definition.add_source(site, spec)
        shape = Shape(spec.table, spec.fields)
        return Rows(self._definition, FromSource(site, (), name, shape), shape)

    def output(
        self,
        name: str,
        rows: Rows,
        sink: Sink,
        *,
        mode: Mode | None = None,
        keys: Iterable[Named] | None = None,
    ) -> Output:
        """Send rows to a sink.

        ``mode`` is ``append`` for rows that are final and ``update`` for running aggregates, if nothing else
        is said. In mode ``update`` a row replaces the one with the same ``keys``; those of aggregates are
        known, for other rows they are given here, and it is up to the definition that a batch has at most one
        row for each.
        """
        site = Site(f"output {name}", caller())
        self._check_own(site, rows)
        made = output(site, name, rows.node, rows.shape, sink, mode, keys)
        self._definition.add_output(site, made)
        return made

    def pipeline(
        self, rows: Rows, pipeline: Pipeline, sinks: Mapping[str, Sink], name: str | None = None
    ) -> Output:
        """Run a whole pipeline on every batch of rows, and send each of its tables to a sink.

        A batch is a dataset, as a partition is in a run: what a pipeline aggregates, it aggregates by batch.
        ``sinks`` are by the name of the table. The output is named like the pipeline, or ``name``.
        """
        site = Site(f"pipeline {name or getattr(pipeline, 'name', '')}", caller())
        self._check_own(site, rows)
        sink = pipeline_sink(site, rows.shape, pipeline, sinks)
        made = output(site, name or pipeline.name, rows.node, rows.shape, sink, "append", None)
        self._definition.add_output(site, made)
        return made

    def check(self) -> None:
        """Raise `DefinitionError` if there is no output, or a source or its late rows go into none."""
        self._definition.check()

    def describe(self) -> dict[str, Any]:
        """The whole definition as JSON values, the same for the same code in every process."""
        self.check()
        return {
            "sources": {name: spec.describe() for name, spec in self.sources.items()},
            "outputs": {name: each.describe() for name, each in self.outputs.items()},
        }

    def _check_own(self, site: Site, rows: Any) -> None:
        if not isinstance(rows, Rows):
            raise site.error(
                DefinitionError, f"is given {rows!r}", hint="give rows; of keyed rows, an aggregate"
            )
        if rows.definition is not self._definition:
            raise site.error(
                DefinitionError,
                f"is given rows of stream {rows.definition.name!r}",
                hint=f"use rows of sources of {self.name!r}",
            )


def _has_table(source: Any) -> bool:
    return isinstance(source, Source) and isinstance(getattr(source, "table", None), TableMeta)
