"""The coordinator: takes the progress of all slices, and says which documents the queues show next.

It is a pure function of what an epoch committed. Every member computes it, and comes to the same; the one
whose turn it is writes down what the next epoch goes on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.journals.shuffle.queues.run_files import RunFile
from penstock.journals.shuffle.sequencing.parsing import LARGEST_OFFSET, bad, integer, listed, text, versioned
from penstock.journals.shuffle.visibility import cuts as cutting
from penstock.journals.shuffle.visibility.cuts import Clocks, Cuts, ReadyCut
from penstock.journals.shuffle.visibility.frontier import (
    Frontier,
    Mark,
    drain,
    gather,
    joint_key,
    joint_to_json,
    project_unresolved_hints,
    reduce,
    unresolved,
    with_joint,
)
from penstock.journals.shuffle.visibility.joint import Joint

_VERSION = 1
_CHUNK = 1 << 12

CohortOf = Callable[[str], str]
"""The name of the cohort of a source."""


@dataclass(frozen=True, slots=True)
class SliceReport:
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
            **joint_to_json(self.progress),
        }

    @classmethod
    def from_json(cls, found: Any) -> Self:
        keys = {"epoch", "progress", "files"}
        keys |= {"held"} if isinstance(found, dict) and "held" in found else set()
        body = versioned(found, "a report", _VERSION, keys | joint_key(found))
        files, held = (
            tuple(RunFile.from_json(each) for each in listed(body.get(name, []), "run files"))
            for name in ("files", "held")
        )
        progress = with_joint(gather(listed(body["progress"], "progress")), body)
        return cls(integer(body["epoch"], "an epoch", LARGEST_OFFSET), progress, files, held)


@dataclass(frozen=True, slots=True)
class Promotion:
    """A run file with documents to show: all, or what ``ahead`` covers; but not what ``skip`` covers."""

    file: RunFile
    skip: Clocks = field(default_factory=dict)
    ahead: Clocks | None = None


@dataclass(frozen=True, slots=True)
class ShuffleState:
    """Where the shuffle of a stream stands.

    Reports of epochs up to ``taken`` are in it. ``waiting`` are run files with documents that are not visible
    yet; ``spent`` are those of which the last became visible with the epoch that this was written for.
    """

    taken: int = 0
    cuts: Mapping[str, Cuts] = field(default_factory=dict)
    waiting: tuple[RunFile, ...] = ()
    spent: tuple[str, ...] = ()

    @property
    def awaited(self) -> Frontier:
        """The marks with hints that were not reached yet."""
        found = Frontier()
        for some in self.cuts.values():
            for each in (some.unresolved, some.progressed):
                if each is not None:
                    found = reduce(found, project_unresolved_hints(each))
        return found

    @property
    def blocking(self) -> Frontier:
        """Those of them that cuts wait for now."""
        found = Frontier()
        for each in self.cuts.values():
            if each.unresolved is not None:
                found = reduce(found, project_unresolved_hints(each.unresolved))
        return found

    def stalled(self, now: float, after: float) -> list[tuple[str, int, int, float]]:
        """Journal, producer, clock and seconds of the hints that were not reached for ``after`` seconds."""
        return [each for p in self.cuts.values() for each in cutting.stalled(p, now, after)]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "taken": self.taken,
            "pipelines": {name: cuts.to_json() for name, cuts in sorted(self.cuts.items())},
            "waiting": [file.to_json() for file in self.waiting],
            "spent": list(self.spent),
        }

    @classmethod
    def from_json(cls, found: Any) -> Self:
        # In files, cuts are called pipelines.
        keys = {"taken", "pipelines", "waiting", "spent"}
        body = versioned(found, "the state of a shuffle", _VERSION, keys)
        if not isinstance(body["pipelines"], dict):
            raise bad("the cuts of a shuffle are no object")
        cuts = {name: Cuts.from_json(each) for name, each in body["pipelines"].items()}
        waiting = tuple(RunFile.from_json(each) for each in listed(body["waiting"], "run files"))
        taken = integer(body["taken"], "an epoch", LARGEST_OFFSET)
        spent = tuple(text(path, "a path") for path in listed(body["spent"], "paths"))
        return cls(taken, cuts, waiting, spent)


def advance(
    state: ShuffleState, reports: Iterable[SliceReport], epoch: int, now: float, cohort_of: CohortOf
) -> tuple[ShuffleState, tuple[Promotion, ...]]:
    """The state of the shuffle after the reports that ``epoch`` committed, and what the next epoch shows.

    Reports that were taken before do no harm.
    """
    fresh = [report for report in reports if report.epoch > state.taken]
    waiting = (*state.waiting, *(file for report in fresh for file in report.files))
    progress = _by_cohort((report.progress for report in fresh), cohort_of)
    names = sorted({*state.cuts, *progress, *(cohort_of(file.source) for file in waiting)})
    cuts, promotions = {}, list[Promotion]()
    for name in names:
        before = state.cuts.get(name, Cuts())
        cuts[name], ready = cutting.advance(before, progress.get(name, Frontier()), max(epoch, 1), now)
        if ready is not None:
            promotions += _promoted(ready, [file for file in waiting if cohort_of(file.source) == name])
    spent = {each.file.record.path for each in promotions if each.ahead is None}
    left = tuple(file for file in waiting if file.record.path not in spent)
    return ShuffleState(epoch, cuts, left, tuple(sorted(spent))), tuple(promotions)


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


def _promoted(ready: ReadyCut, files: Sequence[RunFile]) -> Iterator[Promotion]:
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
        joint: dict[str, list[Joint]] = {}
        for transaction in each.joint:
            for name in split:
                acks = (acks for acks in transaction if cohort_of(acks.journal.partition("/")[0]) == name)
                joint.setdefault(name, []).append(tuple(acks))
        for name, journals in split.items():
            progress_ = Frontier(journals, tuple(joint.get(name, ())))
            found[name] = reduce(found.get(name, Frontier()), progress_)
    return found
