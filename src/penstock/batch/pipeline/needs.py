"""What each transform of a pipeline needs: what its plan shows, and what its ``by`` says."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.batch.pipeline.check import OTHERS, CheckedPipeline, CheckedTransform
from penstock.batch.pipeline.partitioning import (
    Everything,
    Keyed,
    Narrow,
    Need,
    Slot,
    carried,
    contradiction,
    needs,
)
from penstock.batch.pipeline.phase_planner import Carried, derive_phases
from penstock.batch.pipeline.phases import Phases
from penstock.batch.pipeline.pipeline import Pipeline
from penstock.batch.pipeline.stages import Bound
from penstock.batch.pipeline.transforms import Division, Keys
from penstock.errors import DefinitionError

_WAYS = (
    "say how its rows are cut: by=[TABLE.field, …] for rows that belong together, by=penstock.everything "
    "for all rows at once, by=penstock.partition for each partition by itself"
)


def cut_pipeline(
    pipeline: Pipeline, checked: CheckedPipeline, sizes: Mapping[str, int], *, small: int, as_one: int
) -> Phases:
    """The phases of a pipeline over inputs of these ``sizes`` in bytes.

    An input of at most ``small`` bytes may be given whole to every claim; of one whose size is not known,
    the first is taken for large. If all inputs together have at most ``as_one`` bytes, one claim has
    everything. Raises a `DefinitionError` for a transform of which nobody knows what it needs, or whose
    ``by`` contradicts its plan.
    """
    names = [t.__table_name__ for t in pipeline.inputs]
    whole = {n for n in names if sizes.get(n, 0 if n != names[0] else small + 1) <= small}
    together = sum(sizes.values()) if sizes.keys() >= set(names) else as_one + 1

    def decide(bound: Bound, given: frozenset[str]) -> tuple[Need, Carried]:
        return need_of(bound, checked.transforms[bound.name], given)

    return derive_phases(
        pipeline.bound,
        pipeline.inputs,
        pipeline.outputs,
        decide,
        frozenset(whole),
        orders=pipeline.order_by,
        as_one=together <= as_one,
    )


def need_of(bound: Bound, checked: CheckedTransform, whole: frozenset[str]) -> tuple[Need, Carried]:
    """What a transform needs if the tables ``whole`` are given whole, and what its results carry."""
    transform = bound.transform
    cut = bound.tables - whole
    if transform.form == "arrow":
        return Narrow(*cut), {}
    if transform.by is Division.EVERYTHING:
        return Everything("by=penstock.everything"), {}
    if transform.by is Division.PARTITION:
        return _partial(bound, cut), {}
    if checked.plans is None:
        why = checked.reason or checked.unread
        if transform.by is None:
            raise transform.error(DefinitionError, f"cannot be planned beforehand: {why}", hint=_WAYS)
        if named := sorted(whole & transform.by.keys()):
            return Everything(f"by= says how {', '.join(named)} is cut"), {}
        return _declared(transform.by, cut), {}
    found = needs([plan.node for plan in checked.plans.values()], whole)
    if isinstance(found, Keyed):
        usable = frozenset(slot for slot in found.slots if OTHERS not in {name for _, name in slot})
        found = (
            Keyed(usable) if usable else Everything("it brings rows together by fields it does not declare")
        )
    results = {
        table: {
            name: slot
            for name, slot in carried(plan.node, plan.columns, whole).items()
            if name not in plan.widened
        }
        for table, plan in checked.plans.items()
    }
    if transform.by is None:
        return found, results
    declared = _declared(transform.by, cut)
    if isinstance(declared, Everything):
        return declared, {}
    assert isinstance(declared, Keyed)
    if isinstance(found, Everything) and whole:
        return found, {}  # it may be right where all tables are cut
    if problem := contradiction(found, sorted(declared.slots, key=sorted)):
        shown = ", ".join(sorted(str(f) for some in transform.by.values() for f in some))
        raise transform.error(
            DefinitionError,
            f"has by={shown}, but {problem}",
            hint="leave by= out to let the plan decide, or change it",
        )
    return declared, results


def _declared(by: Keys | Division, cut: frozenset[str]) -> Need:
    """The key that a declaration names, for the tables that are cut."""
    assert not isinstance(by, Division)
    if missing := sorted(cut - by.keys()):
        return Everything(f"by= names no field of {', '.join(missing)}")
    count = len(next(iter(by.values())))
    slots: set[Slot] = {frozenset((table, by[table][n].name) for table in cut) for n in range(count)}
    return Keyed(frozenset(slots))


def _partial(bound: Bound, cut: frozenset[str]) -> Need:
    if len(cut) != 1:
        raise bound.transform.error(
            DefinitionError,
            f"has by=penstock.partition and is given {', '.join(sorted(cut))}, which are not cut alike",
            hint="a partition is of one table; others must be small enough to be given whole",
        )
    return Narrow(*cut)
