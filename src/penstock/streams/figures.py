"""Figures about a stream, computed from the records of its epochs: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.cluster.assignment import part_owner
from penstock.cluster.model import Decision, Kind, Outcome, Snapshot
from penstock.sources.parts import PartName
from penstock.streams.model import Brought, PartState

Parts = Mapping[PartName, PartState]


def speed(decided: Sequence[Decision]) -> float | None:
    """Rows for each second over committed epochs; None while there are too few of them."""
    committed = [each for each in decided if each.outcome is Outcome.COMMIT]
    times = [_time(each.at) for each in committed]
    if len(committed) < 2 or times[0] is None or times[-1] is None or times[-1] <= times[0]:
        return None
    rows = sum(brought.rows for decision in committed[1:] for brought in brought_by(decision))
    return rows / (times[-1] - times[0]).total_seconds()


def pause(decided: Sequence[Decision], version: int) -> float | None:
    """Seconds between the last ordinary commit before an assignment and the first one under it."""
    ordinary = [d for d in decided if d.outcome is Outcome.COMMIT and d.kind is Kind.EPOCH]
    before = [_time(each.at) for each in ordinary if each.assignment < version]
    after = [_time(each.at) for each in ordinary if each.assignment >= version]
    if not before or not after or before[-1] is None or after[0] is None:
        return None
    return max(0.0, (after[0] - before[-1]).total_seconds())


def moved(before: Snapshot | None, after: Snapshot, parts: Parts) -> float | None:
    """The share of the parts that have another owner than before."""
    if before is None or not before.seats or not after.seats or not parts:
        return None
    changed = sum(
        part_owner(before.seats, name.source, name.part) != part_owner(after.seats, name.source, name.part)
        for name in parts
    )
    return changed / len(parts)


def brought_by(decision: Decision) -> list[Brought]:
    """What the instances brought in an epoch."""
    return [Brought.decode(text) for text in decision.files]


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
