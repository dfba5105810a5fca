"""What people and programs see of a run: text, JSON, ``sys`` and HTTP come from the same value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.batch.runs import runs
from penstock.batch.runs.runs import RUN, Run
from penstock.config import shown_url
from penstock.control.claims import Board, PartitionState, PartitionSummary
from penstock.core.json_values import plain
from penstock.store.base import Store


@dataclass(frozen=True, slots=True)
class RunView:
    """A run and how far it is; ``summary`` is None for one that was not begun."""

    run: Run
    summary: PartitionSummary | None
    owners: Mapping[str, int] | None = None
    """How many partitions each instance holds now; None where that was not asked for."""

    @property
    def state(self) -> str:
        """In a word or two."""
        summary = self.summary
        if summary is None:
            return "not begun"
        if summary.pending.partitions + summary.claimed.partitions == 0:
            return "incomplete" if summary.poisoned.partitions else "complete"
        return "running" if summary.claimed.partitions > summary.expired.partitions else "resumable"

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
        return told if self.owners is None else {**told, "owners": dict(self.owners)}


def every(store: Store) -> Iterator[RunView]:
    for run in runs.every(store):
        yield RunView(run, runs.summary(store, run))


def one(store: Store, name: str) -> RunView:
    run = runs.load(store, name)
    summary = runs.summary(store, run)
    owners: Counter[str] = Counter()
    if summary is not None:
        claimed = Board.open(store, run.key).partitions({PartitionState.CLAIMED})
        owners.update(view.owner for view in claimed)
    return RunView(run, summary, dict(sorted(owners.items())))
