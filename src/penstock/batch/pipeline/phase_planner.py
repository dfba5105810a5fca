"""From what transforms need to phases: each transform goes into the first phase in which it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType

from penstock.batch.pipeline.partitioning import Everything, Keyed, Narrow, Need
from penstock.batch.pipeline.phases import (
    AsOne,
    ByKeys,
    ByOrder,
    ByRows,
    Exchange,
    Partitioning,
    Phase,
    Phases,
)
from penstock.batch.pipeline.stages import Bound, conflicts, derive, live
from penstock.types.order import Order
from penstock.types.tables import Table

_FEW = 5
Carried = Mapping[str, Mapping[str, frozenset[tuple[str, str]]]]
"""Of each table that a transform returns, the fields that have the values of fields it was given."""

Decide = Callable[[Bound, frozenset[str]], tuple[Need, Carried]]
"""What a transform needs when some tables are given whole, and what the columns of its results carry."""


def derive_phases(
    bound: Sequence[Bound],
    inputs: Sequence[type[Table]],
    outputs: Sequence[type[Table]],
    decide: Decide,
    small: frozenset[str],
    *,
    orders: Mapping[str, Order] = MappingProxyType({}),
    as_one: bool = False,
) -> Phases:
    """Cut a pipeline into phases.

    ``small`` names the inputs that may be given whole to every claim, and ``orders`` the outputs that are
    sorted. With ``as_one`` everything fits one claim: what would be several phases is one that has all rows.
    """
    names = [t.__table_name__ for t in inputs]
    planner = _Planner(bound, names, decide, small)
    drafts = planner.plan(tuple(t.__table_name__ for t in outputs))
    drafts += planner.sort(orders)
    if as_one and len(drafts) > 1:
        why = "their inputs together are small (run.small_bytes)"
        return in_one_phase(bound, inputs, outputs, why, orders=orders)
    return _finish(drafts, planner.home, outputs, orders)


def in_one_phase(
    bound: Sequence[Bound],
    inputs: Sequence[type[Table]],
    outputs: Sequence[type[Table]],
    why: str = "",
    *,
    orders: Mapping[str, Order],
) -> Phases:
    """A pipeline whose stages all have everything."""
    only = _Draft(AsOne(why), (1, 0), list(bound), dict.fromkeys(t.__table_name__ for t in inputs))
    if why:
        only.needs["all transforms"] = why
    return _finish([only], {t.__table_name__: only for t in outputs}, outputs, orders)


@dataclass(slots=True, eq=False)
class _Draft:
    """A phase that is being put together. Phases over rows come first: they wait for nothing."""

    partitioning: Partitioning
    order: tuple[int, int]
    bound: list[Bound] = field(default_factory=list)
    entering: dict[str, _Draft | None] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    needs: dict[str, str] = field(default_factory=dict)


class _Planner:
    """Puts one transform after the other into the first phase where it is right."""

    def __init__(
        self, bound: Sequence[Bound], inputs: Sequence[str], decide: Decide, small: frozenset[str]
    ) -> None:
        self.bound = bound
        self.inputs = inputs
        self.decide = decide
        self.small = small
        self.drafts: list[_Draft] = []
        self.home: dict[str, _Draft | None] = dict.fromkeys(inputs)
        # The key columns of a table where it lives, if it is cut by keys and carries them all.
        self.placed: dict[str, tuple[str, ...]] = {}
        self.where: list[_Draft | None] = []
        # What makes resources of other resources belongs to no cut: the first phase has it.
        self.early: list[Bound] = []

    def plan(self, outputs: Sequence[str]) -> list[_Draft]:
        self._rows(self.inputs[0])
        touched = [b.touched() for b in self.bound]
        for j, b in enumerate(self.bound):
            found = [self.where[i] for i in range(j) if conflicts(touched[i], touched[j])]
            before = [draft for draft in found if draft is not None]
            if b.writes_resources and not before:
                self.early.append(b)
                self.where.append(None)
            else:
                self.where.append(self._place(b, before))
        for table in outputs:
            if self.home[table] is None:
                self._settle(table)
        used = {id(d) for draft in self.drafts for d in draft.entering.values() if d is not None}
        used |= {id(self.home[table]) for table in outputs}
        kept = sorted((d for d in self.drafts if d.bound or id(d) in used), key=_order)
        kept[0].bound[:0] = self.early
        return kept

    def sort(self, orders: Mapping[str, Order]) -> list[_Draft]:
        """The last phases: one for each output that is sorted and whose rows no claim has all of."""
        made: list[_Draft] = []
        for table, order in sorted(orders.items()):
            home = self.home[table]
            assert home is not None
            if not isinstance(home.partitioning, AsOne):
                last = _Draft(ByOrder(table, order), (2, len(made)), entering={table: home})
                self.home[table] = last
                made.append(last)
        return made

    def _place(self, b: Bound, before: Sequence[_Draft]) -> _Draft:
        if not b.tables:
            floor = max(before, key=_order, default=None)
            if floor is None or b.creates:
                floor = self._one(floor, f"{b.name} makes a table of resources alone", b)
            return self._put(b, floor, frozenset(), {})
        need, carried, whole = self._decided(b)
        cut = b.tables - whole
        homes = [d for table in cut if (d := self.home[table]) is not None]
        floor = max([*before, *homes], key=_order, default=None)
        if isinstance(need, Narrow):
            draft = self._narrow(b, next(iter(cut)), floor)
        elif isinstance(need, Keyed):
            draft = self._keyed(b, need, cut, floor)
        else:
            draft = self._one(floor, _reason(need), b)
        draft.whole |= whole
        return self._put(b, draft, cut, carried)

    def _decided(self, b: Bound) -> tuple[Need, Carried, frozenset[str]]:
        """What it needs if as many small inputs as possible are given whole."""
        may = sorted(t for t in b.tables if t in self.small and self.home[t] is None and t not in b.changes)
        # Of many, only a few choices are tried: there are twice as many for each table.
        numbers = range(len(may), -1, -1) if len(may) <= _FEW else (len(may), len(may) - 1, 0)
        tried: list[frozenset[str]] = [frozenset(some) for n in numbers for some in combinations(may, n)]
        tried = [whole for whole in tried if b.tables - whole] or [frozenset()]
        refused: Everything | None = None
        for whole in tried:
            need, carried = self.decide(b, whole)
            if isinstance(need, Everything):
                # With the most tables whole, what is left is what no size of an input would mend.
                refused = refused or need
                continue
            if not (unused := b.tables - whole - _cut_by(need)):
                return need, carried, whole
            # What it is given and makes no use of is given as it was registered.
            if all(t in self.home and self.home[t] is None and t not in b.changes for t in unused):
                return need, carried, whole | unused
            refused = refused or Everything(f"it is given {', '.join(sorted(unused))} and does not use it")
        assert refused is not None
        return refused, {}, frozenset()

    def _narrow(self, b: Bound, table: str, floor: _Draft | None) -> _Draft:
        home = self._settle(table)
        if floor is None or floor.order <= home.order:
            return home
        if table in floor.entering or self._takes(floor, table):
            return floor
        return self._one(floor, f"{b.name} follows transforms that are in a later phase", b)

    def _keyed(self, b: Bound, need: Keyed, cut: Iterable[str], floor: _Draft | None) -> _Draft:
        tables = sorted(cut)
        for draft in self._from(floor):
            if isinstance(draft.partitioning, AsOne) and all(self.home[t] is draft for t in tables):
                return draft
            if isinstance(draft.partitioning, ByKeys) and (wider := self._fits(draft, need, tables)):
                draft.partitioning = wider
                draft.needs[b.name] = _told(need)
                return draft
        slots = sorted(tuple(sorted(slot)) for slot in need.slots)
        columns = {table: tuple(dict(slot)[table] for slot in slots) for table in tables}
        draft = self._new(ByKeys(columns))
        draft.needs[b.name] = _told(need)
        return draft

    def _fits(self, draft: _Draft, need: Keyed, tables: Sequence[str]) -> ByKeys | None:
        """The phase's keys, with columns for further tables, if rows that belong together meet there."""
        assert isinstance(draft.partitioning, ByKeys)
        have: dict[str, tuple[str, ...]] = {}
        for table in tables:
            if self.home[table] is draft:
                if table not in self.placed:
                    return None
                have[table] = self.placed[table]
            elif table in draft.partitioning.columns:
                # It may have changed since it was to enter, but not in what those read that are there.
                have[table] = draft.partitioning.columns[table]
        # A table that is given whole to one transform of the phase cannot be cut for another.
        if not have or not draft.whole.isdisjoint(tables):
            return None
        found: dict[str, list[str]] = {table: [] for table in tables}
        for position in range(len(next(iter(have.values())))):
            matching = sorted(
                tuple(sorted(slot))
                for slot in need.slots
                if all(dict(slot)[table] == columns[position] for table, columns in have.items())
            )
            if not matching:
                return None
            for table in tables:
                found[table].append(dict(matching[0])[table])
        new = {t: tuple(columns) for t, columns in found.items() if self.home[t] is not draft}
        return ByKeys({**new, **draft.partitioning.columns})

    def _one(self, floor: _Draft | None, why: str, b: Bound) -> _Draft:
        for draft in self._from(floor):
            if isinstance(draft.partitioning, AsOne):
                draft.needs.setdefault(b.name, why)
                return draft
        draft = self._new(AsOne(why))
        draft.needs[b.name] = why
        return draft

    def _put(
        self,
        b: Bound,
        draft: _Draft,
        cut: Iterable[str],
        carried: Carried,
    ) -> _Draft:
        draft.bound.append(b)
        written = {(f.table, f.name) for f in b.writes}
        for table in sorted(cut):
            # Rows of an input are brought together by keys in the phase that reads its row ranges.
            home = self._settle(table) if isinstance(draft.partitioning, ByKeys) else self.home[table]
            if home is not draft:
                draft.entering[table] = home
            if table in b.changes:
                if home is not draft:
                    self.home[table] = draft
                    self._placed(table, _columns(draft).get(table))
                if any((table, column) in written for column in self.placed.get(table, ())):
                    del self.placed[table]
        for table in b.creates:
            self.home[table] = draft
            self._placed(table, self._carried(draft, carried.get(table, {})))
        return draft

    def _carried(self, draft: _Draft, carried: Mapping[str, frozenset[tuple[str, str]]]) -> tuple[str, ...]:
        """The columns of a new table that have the values of the phase's key; none if one is missing."""
        # Of a table that was changed in the phase, what is left of the key.
        columns = {t: c for t, c in _columns(draft).items() if self.home[t] is not draft}
        columns |= {t: c for t, c in self.placed.items() if self.home[t] is draft}
        found = []
        for position in range(len(next(iter(columns.values()), ()))):
            key = {(table, each[position]) for table, each in columns.items()}
            # Rows of a union have the value of one of several tables: each has to be cut by it.
            names = [name for name, values in sorted(carried.items()) if values and values <= key]
            if not names:
                return ()
            found.append(names[0])
        return tuple(found)

    def _placed(self, table: str, columns: tuple[str, ...] | None) -> None:
        self.placed.pop(table, None)
        if columns:
            self.placed[table] = columns

    def _settle(self, table: str) -> _Draft:
        """Where a table lives; an input that nobody has touched lives in the phase of its rows."""
        home = self.home[table]
        if home is None:
            home = self.home[table] = self._rows(table)
        return home

    def _takes(self, draft: _Draft, table: str) -> bool:
        return isinstance(draft.partitioning, AsOne) or (
            isinstance(draft.partitioning, ByKeys) and table in draft.partitioning.columns
        )

    def _rows(self, table: str) -> _Draft:
        for draft in self.drafts:
            if draft.partitioning == ByRows(table):
                return draft
        draft = _Draft(ByRows(table), (0, self.inputs.index(table)), entering={table: None})
        self.drafts.append(draft)
        return draft

    def _new(self, partitioning: Partitioning) -> _Draft:
        draft = _Draft(partitioning, (1, len(self.drafts)))
        self.drafts.append(draft)
        return draft

    def _from(self, floor: _Draft | None) -> list[_Draft]:
        """The phases in which something can be that comes after ``floor``."""
        later = (d for d in self.drafts if floor is None or d.order >= floor.order)
        return sorted(later, key=_order)


_Left = tuple[str, tuple[str, ...], Order]
"""A table that is left, its keys and its order."""


def _finish(
    drafts: list[_Draft],
    home: Mapping[str, _Draft | None],
    outputs: Sequence[type[Table]],
    orders: Mapping[str, Order],
) -> Phases:
    """Numbers for phases and stages, and from the last phase to the first what each has to leave."""
    number = {id(draft): n for n, draft in enumerate(drafts)}
    final: list[list[type[Table]]] = [[] for _ in drafts]
    for table in outputs:
        living = home[table.__table_name__]
        assert living is not None
        final[number[id(living)]].append(table)
    begin = 0
    phases = []
    for n, draft in enumerate(drafts):
        stages = tuple(replace(s, index=begin + s.index) for s in derive(draft.bound))
        entering = {t: None if d is None else number[id(d)] for t, d in sorted(draft.entering.items())}
        names = tuple(t.__table_name__ for t in final[n])
        ordered = {name: orders[name] for name in names if name in orders}
        phases.append(
            Phase(
                n,
                draft.partitioning,
                stages,
                begin,
                entering,
                frozenset(draft.whole),
                names,
                (),
                draft.needs,
                ordered,
            )
        )
        begin += len(stages)
    needed: list[dict[str, set[str]]] = [
        {t.__table_name__: set(t.__fields__) for t in tables} for tables in final
    ]
    leaving: list[dict[_Left, tuple[set[str], list[int]]]] = [{} for _ in drafts]
    for phase in reversed(phases):
        wanted = live(phase.stages, _frozen(needed[phase.index]))
        for name, origin in phase.entering.items():
            if origin is None:
                continue
            keys = phase.keys(name)
            fields, readers = leaving[origin].setdefault((name, keys, phase.order), (set(), []))
            fields |= wanted.get(name, frozenset()) | set(keys)
            readers.append(phase.index)
            needed[origin].setdefault(name, set()).update(fields)
    done = tuple(
        replace(
            phase,
            leaving=tuple(
                Exchange(table, keys, frozenset(fields), tuple(sorted(readers)), order)
                for (table, keys, order), (fields, readers) in sorted(leaving[phase.index].items())
            ),
        )
        for phase in phases
    )
    return Phases(done, tuple(_frozen(each) for each in needed))


def _frozen(fields: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {table: frozenset(names) for table, names in fields.items()}


def _columns(draft: _Draft) -> Mapping[str, tuple[str, ...]]:
    return draft.partitioning.columns if isinstance(draft.partitioning, ByKeys) else {}


def _cut_by(need: Narrow | Keyed) -> frozenset[str]:
    """The tables whose rows a need is about."""
    if isinstance(need, Narrow):
        return frozenset({need.table})
    return frozenset(table for slot in need.slots for table, _ in slot)


def _told(need: Keyed) -> str:
    keys = sorted(" = ".join(f"{t}.{f}" for t, f in sorted(slot)) for slot in need.slots)
    return f"brings rows together by {', '.join(keys)}"


def _reason(need: Everything) -> str:
    return need.why if need.line in need.why else f"{need.why} ({need.line})"


def _order(draft: _Draft) -> tuple[int, int]:
    return draft.order
