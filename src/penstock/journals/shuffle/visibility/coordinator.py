"""The session: takes the progress of all slices, and says which documents the queues show next.

It is a pure function of what an epoch committed. Every member computes it, and comes to the same; the one
whose turn it is writes down what the next epoch goes on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.shuffle import checkpoints
from penstock.shuffle.checkpoints import Clocks, Pipeline, Ready
from penstock.shuffle.frontier import (
    LARGEST_OFFSET,
    Frontier,
    Mark,
    drain,
    gather,
    project_unresolved_hints,
    reduce,
    unresolved,
)
from penstock.shuffle.parsing import bad, integer, listed, text, versioned
from penstock.shuffle.runs import RunFile

_VERSION = 1
_CHUNK = 1 << 12

CohortOf = Callable[[str], str]
"""The name of the cohort of a source."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the slices of one member did in an epoch. Names in ``progress`` begin with that of a source.

    ``held`` are the files of transactions that are on their way, of all its journals and also of epochs
    before.
    """

    epoch: int
    progress: Frontier = field(default_factory=Frontier)
    files: tuple[RunFile, ...] = ()
    held: tuple[RunFile, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "progress": list(drain(self.progress, _CHUNK)),
            "files": [file.to_json() for file in self.files],
            **({"held": [file.to_json() for file in self.held]} if self.held else {}),
        }

    @classmethod
    def from_json(cls, found: Any) -> Self:
        keys = {"epoch", "progress", "files"}
        is_held = isinstance(found, dict) and "held" in found
        body = versioned(found, "a report", _VERSION, keys | {"held"} if is_held else keys)
        files, held = (
            tuple(RunFile.from_json(each) for each in listed(body.get(name, []), "run files"))
            for name in ("files", "held")
        )
        progress = gather(listed(body["progress"], "progress"))
        return cls(integer(body["epoch"], "an epoch", LARGEST_OFFSET), progress, files, held)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A run file with documents to show: all, or what ``ahead`` covers; but not what ``skip`` covers."""

    file: RunFile
    skip: Clocks = field(default_factory=dict)
    ahead: Clocks | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Where the shuffle of a stream stands.

    Reports of epochs up to ``taken`` are in it. ``waiting`` are run files with documents that are not visible
    yet; ``spent`` are those of which the last became visible with the epoch that this was written for.
    """

    taken: int = 0
    pipelines: Mapping[str, Pipeline] = field(default_factory=dict)
    waiting: tuple[RunFile, ...] = ()
    spent: tuple[str, ...] = ()

    @property
    def awaited(self) -> Frontier:
        """The marks with hints that were not reached yet."""
        found = Frontier()
        for pipeline in self.pipelines.values():
            for each in (pipeline.unresolved, pipeline.progressed):
                if each is not None:
                    found = reduce(found, project_unresolved_hints(each))
        return found

    @property
    def blocking(self) -> Frontier:
        """Those of them that checkpoints wait for now."""
        found = Frontier()
        for pipeline in self.pipelines.values():
            if pipeline.unresolved is not None:
                found = reduce(found, project_unresolved_hints(pipeline.unresolved))
        return found

    def stalled(self, now: float, after: float) -> list[tuple[str, int, int, float]]:
        """Journal, producer, clock and seconds of the hints that were not reached for ``after`` seconds."""
        return [each for p in self.pipelines.values() for each in checkpoints.stalled(p, now, after)]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "taken": self.taken,
            "pipelines": {name: pipeline.to_json() for name, pipeline in sorted(self.pipelines.items())},
            "waiting": [file.to_json() for file in self.waiting],
            "spent": list(self.spent),
        }

    @classmethod
    def from_json(cls, found: Any) -> Self:
        body = versioned(found, "a session", _VERSION, {"taken", "pipelines", "waiting", "spent"})
        if not isinstance(body["pipelines"], dict):
            raise bad("the pipelines of a session are no object")
        pipelines = {name: Pipeline.from_json(each) for name, each in body["pipelines"].items()}
        waiting = tuple(RunFile.from_json(each) for each in listed(body["waiting"], "run files"))
        taken = integer(body["taken"], "an epoch", LARGEST_OFFSET)
        spent = tuple(text(path, "a path") for path in listed(body["spent"], "paths"))
        return cls(taken, pipelines, waiting, spent)


def advance(
    session: Session, reports: Iterable[Report], epoch: int, now: float, cohort_of: CohortOf
) -> tuple[Session, tuple[Promotion, ...]]:
    """The session after the reports that ``epoch`` committed, and what the next epoch shows.

    Reports that were taken before do no harm.
    """
    fresh = [report for report in reports if report.epoch > session.taken]
    waiting = (*session.waiting, *(file for report in fresh for file in report.files))
    progress = _by_cohort((report.progress for report in fresh), cohort_of)
    names = sorted({*session.pipelines, *progress, *(cohort_of(file.source) for file in waiting)})
    pipelines, promotions = {}, list[Promotion]()
    for name in names:
        before = session.pipelines.get(name, Pipeline())
        pipelines[name], ready = checkpoints.advance(
            before, progress.get(name, Frontier()), max(epoch, 1), now
        )
        if ready is not None:
            promotions += _promoted(ready, [file for file in waiting if cohort_of(file.source) == name])
    spent = {each.file.record.path for each in promotions if each.ahead is None}
    left = tuple(file for file in waiting if file.record.path not in spent)
    return Session(epoch, pipelines, left, tuple(sorted(spent))), tuple(promotions)


def reached(awaited: Frontier, commits: Callable[[str, int], int], told: Frontier | None = None) -> Frontier:
    """Marks of producers that were hinted at and have reached the hint, where that was not told.

    Their journal may have been read long before the hint was. ``commits`` is the last commit of a producer
    in a journal, 0 where this member does not read it. It need not be asked for what is ``told`` anyway.
    """
    known = {} if told is None else told.journals
    found = {}
    for journal, producer, clock in unresolved(awaited):
        marks = (mark for mark in known.get(journal, ()) if mark.producer == producer)
        if next(marks, Mark(producer)).last_commit >= clock:
            continue
        commit = commits(journal, producer)
        if commit >= clock:
            found[journal, producer] = commit
    return Frontier.of((journal, Mark(producer, commit)) for (journal, producer), commit in found.items())


def _promoted(ready: Ready, files: Sequence[RunFile]) -> Iterator[Promotion]:
    for file in files:
        if file.epoch <= ready.upto:
            yield Promotion(file, ready.skip)
        elif file.epoch <= ready.epoch and ready.ahead:
            yield Promotion(file, ready.skip, ready.ahead)


def _by_cohort(progress: Iterable[Frontier], cohort_of: CohortOf) -> dict[str, Frontier]:
    found: dict[str, Frontier] = {}
    for each in progress:
        split: dict[str, dict[str, tuple[Mark, ...]]] = {}
        for journal, marks in each.journals.items():
            split.setdefault(cohort_of(journal.partition("/")[0]), {})[journal] = marks
        for name, journals in split.items():
            found[name] = reduce(found.get(name, Frontier()), Frontier(journals))
    return found
