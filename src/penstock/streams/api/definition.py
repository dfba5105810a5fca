"""What a stream consists of while it is written down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.names import RULE, is_name
from penstock.errors import DefinitionError, DuplicateName
from penstock.streams.api.outputs import Output
from penstock.streams.api.sources import SourceSpec, Timestamps
from penstock.streams.operators.query import Operator
from penstock.streams.operators.sites import Site
from penstock.streams.operators.stateless import FromSource


@dataclass(slots=True, eq=False)
class Definition:
    """The sources and outputs of a stream by name. Rows know the one that they belong to."""

    name: str
    location: str
    sources: dict[str, SourceSpec] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)

    def add_source(self, site: Site, spec: SourceSpec) -> None:
        check_name(site, spec.name)
        if spec.name in self.sources:
            raise site.error(DuplicateName, f"has the name of the one at {self.sources[spec.name].location}")
        self.sources[spec.name] = spec

    def add_output(self, site: Site, output: Output) -> None:
        check_name(site, output.name)
        for other in self.outputs.values():
            if twice := other.places & output.places:
                raise site.error(
                    DuplicateName,
                    f"has the name {min(twice)}, as the one at {other.location}",
                    hint="give one of them another name",
                )
        for node in _sources_of(output.node):
            self._check_time(site, node)
        self.outputs[output.name] = output

    def assign(self, site: Site, source: str, timestamps: Timestamps) -> SourceSpec:
        """Give a source event time, once and before anything is made of its rows."""
        if self.sources[source].timestamps is not None:
            raise site.error(DefinitionError, f"comes a second time for source {source}")
        for output in self.outputs.values():
            if any(node.source == source for node in _sources_of(output.node)):
                raise site.error(
                    DefinitionError,
                    f"comes after output {output.name}, which has the rows of {source} without event time",
                    hint="assign timestamps right after source(…), and go on with the rows that it returns",
                )
        self.sources[source] = replace(self.sources[source], timestamps=timestamps)
        return self.sources[source]

    def check(self) -> None:
        """Raise what is only known at the end: a source, or late rows, that nobody takes."""
        where = f"{self.location}: stream {self.name!r}"
        if not self.outputs:
            raise DefinitionError(f"{where} has no output", hint="stream.output(NAME, rows, SINK)")
        used = {(n.source, n.late) for output in self.outputs.values() for n in _sources_of(output.node)}
        for spec in self.sources.values():
            if not {(spec.name, False), (spec.name, True)} & used:
                raise DefinitionError(
                    f"{spec.location}: source {spec.name} of stream {self.name!r} goes into no output",
                    hint="use its rows in an output, or remove it",
                )
            kept = spec.timestamps is not None and spec.timestamps.late == "keep"
            if kept and (spec.name, True) not in used:
                raise DefinitionError(
                    f"{spec.location}: source {spec.name} keeps its late rows, and they go into no output",
                    hint='give rows.late() an output, or say late="drop", which counts them',
                )

    def _check_time(self, site: Site, node: FromSource) -> None:
        if not node.late and node.shape.time is None and self.sources[node.source].timestamps is not None:
            raise site.error(
                DefinitionError,
                f"takes rows of source {node.source} as they were before assign_timestamps",
                hint="go on with the rows that assign_timestamps returned",
            )


def _sources_of(node: Operator) -> list[FromSource]:
    return [each for each in node.walk() if isinstance(each, FromSource)]


def check_name(site: Site, name: Any) -> None:
    if not isinstance(name, str) or not is_name(name):
        raise site.error(DefinitionError, f"has the name {name!r}", hint=RULE)
