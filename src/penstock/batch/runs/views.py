"""What people and programs see of a run: text, JSON, ``sys`` and HTTP come from the same value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.batch.runs import exchanges, runs
from penstock.batch.runs.runs import RUN, Run
from penstock.config import shown_url
from penstock.control.claims import PartitionState, PartitionSummary
from penstock.core.json_values import plain
from penstock.store.base import Store


@dataclass(frozen=True, slots=True)
class RunView:
    """A run and how far it is; ``summary`` is None for one that was not begun."""

    run: Run
    summary: PartitionSummary | None
    owners: Mapping[str, int] | None = None
    """How many partitions each instance holds now; None where that was not asked for."""
    phases: tuple[PartitionSummary, ...] = ()
    """How far each of its phases is that was begun."""
    left_out: tuple[str, ...] = ()
    """Partitions whose rows are in no later phase, because the run was told to go on without them."""

    @property
    def state(self) -> str:
        """In a word or two."""
        summary = self.summary
        if summary is None:
            return "not begun"
        if summary.pending.partitions + summary.claimed.partitions == 0:
            if summary.poisoned.partitions or self.left_out:
                return "incomplete"
            return "complete" if len(self.phases) == len(self.run.every_phase) else "resumable"
        return "running" if summary.claimed.partitions > summary.expired.partitions else "resumable"

    @property
    def rows(self) -> int:
        """The rows of all inputs that are cut into row ranges; of the first, if one claim has everything."""
        return sum(each.rows or 0 for each in self.run.every_phase if each.by_rows) or self.run.total_rows

    @property
    def rows_completed(self) -> int:
        """How many of them lie in completed partitions."""
        if any(each.by_rows for each in self.run.every_phase):
            return self.summary.completed.rows if self.summary else 0
        return self.rows if self.state == "complete" else 0

    @property
    def output(self) -> str:
        """Where the output is, without secrets."""
        return shown_url(self.run.output)

    @property
    def storage(self) -> str:
        """Where its files are, without secrets."""
        return shown_url(self.run.storage)

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = plain(RUN.members(self.run))
        told |= {"output": self.output, "storage": self.storage}
        told |= {"state": self.state, "partitions": plain(self.summary)}
        if self.run.phases:
            begun = [plain(each) for each in self.phases]
            absent = [None] * (len(told["phases"]) - len(begun))
            pairs = zip(told["phases"], [*begun, *absent], strict=True)
            told["phases"] = [{**phase, "partitions": each} for phase, each in pairs]
            told["left_out"] = list(self.left_out)
        return told if self.owners is None else {**told, "owners": dict(self.owners)}


def of(store: Store, run: Run) -> RunView:
    phases = tuple(runs.by_phase(store, run))
    return RunView(
        run, runs.summary(store, run), phases=phases, left_out=tuple(exchanges.left_out(store, run))
    )


def every(store: Store) -> Iterator[RunView]:
    for run in runs.every(store):
        yield of(store, run)


def one(store: Store, name: str) -> RunView:
    view = of(store, runs.load(store, name))
    owners: Counter[str] = Counter()
    for board in runs.boards(store, view.run):
        owners.update(held.owner for held in board.partitions({PartitionState.CLAIMED}))
    return replace(view, owners=dict(sorted(owners.items())))
