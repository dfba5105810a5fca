"""How the tables of a transform may be cut, so that its results of all parts are its result of everything.

All functions here are pure: they see plans, never data. A table that is cut has each of its rows in one part;
any other table, and everything else that a transform reads, every part has as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.spark.plans.plan_tree import PlanNode, is_key_type

Slot = frozenset[tuple[str, str]]
"""One field, as (table, field), of each table that is cut. Rows that agree there may stay together."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Each row of the table is used by itself: any cut is right."""

    table: str


@dataclass(frozen=True, slots=True)
class Keyed:
    """A cut by any function of one or more slots, the same for all tables, is right."""

    slots: frozenset[Slot]


@dataclass(frozen=True, slots=True)
class Everything:
    """No cut is known to be right."""

    why: str
    line: str = ""


Need = Narrow | Keyed | Everything


def needs(nodes: Iterable[PlanNode], whole: Collection[str] = ()) -> Need:
    """How to cut all tables but those in ``whole`` for a transform that returns what these plans give."""
    try:
        states = [_Rules(frozenset(whole)).state(node) for node in nodes]
        if not states or not all(state.tables for state in states):
            raise _Refused("it has a result that uses no table that is cut")
        tables = frozenset[str]().union(*(state.tables for state in states))
        slots = _agreed(tables, states, ())
        if slots is None and len(tables) > 1:
            raise _Refused(f"rows of {_and(tables)} are put together without a key")
        if slots is not None and not slots:
            raise _Refused(f"its results would need different cuts of {_and(tables)}")
    except _Refused as refused:
        return Everything(refused.why, refused.line)
    except RecursionError:
        return Everything("its plan is too deep")
    return Narrow(*tables) if slots is None else Keyed(slots)


def carried(node: PlanNode, names: Sequence[str], whole: Collection[str] = ()) -> dict[str, Slot]:
    """Of a result, the columns that have the value of a field of each table that it was made of.

    ``names`` are those of its columns. Where no cut is right, none has.
    """
    try:
        state = _Rules(frozenset(whole)).state(node)
    except (_Refused, RecursionError):
        return {}
    if not state.tables:
        return {}
    columns = zip(names, node.output, strict=True)
    return {name: state.carries[i] for name, i in columns if i in state.carries}


def contradiction(need: Need, by: Sequence[Slot]) -> str | None:
    """Why a cut by these slots is not known to be right, as a sentence; None if it is."""
    if isinstance(need, Everything):
        return f"{need.why} ({need.line})" if need.line else need.why
    if not by:
        return "no field is named to cut by"
    for slot in by:
        if isinstance(need, Narrow):
            if not _covers(slot, frozenset({need.table})):
                return f"{_fields(slot)} is not one field of {need.table}, the only table that is cut"
        elif slot not in need.slots:
            allowed = " or ".join(sorted(_fields(s) for s in need.slots))
            return f"a cut by {_fields(slot)} takes rows apart that are used together: cut by {allowed}"
    return None


class _Refused(Exception):
    def __init__(self, why: str, line: str = "") -> None:
        super().__init__(why)
        self.why, self.line = why, line


@dataclass(frozen=True, slots=True)
class _State:
    """What is known about the rows that an operator returns. Without ``tables`` every part has the same.

    A column carries a slot if, in every row, its value is the one that decides where the rows were put that
    the row was made of. ``slots`` are those by which tables may be cut, or None as long as any cut is right.
    ``halves`` are pairs of columns, one of which is null where there was no match: the other carries.
    """

    tables: frozenset[str] = frozenset()
    carries: Mapping[int, Slot] = field(default_factory=dict)
    slots: frozenset[Slot] | None = None
    halves: Mapping[tuple[int, int], Slot] = field(default_factory=dict)

    def slot(self, column: int) -> Slot | None:
        """The slot that a column carries, if the tables may be cut by it."""
        slot = self.carries.get(column)
        if slot is None or not _covers(slot, self.tables):
            return None
        return slot if self.slots is None or slot in self.slots else None


@dataclass(frozen=True, slots=True)
class _Rules:
    whole: frozenset[str]

    def state(self, node: PlanNode) -> _State:
        for subquery in node.subqueries:
            if tables := subquery.tables - self.whole:
                raise _Refused(f"a subquery looks at all rows of {_and(tables)}", node.line)
            self.state(subquery)
        children = [self.state(child) for child in node.children]
        cut = any(child.tables for child in children)
        if node.kind == "constant" or (node.kind == "table" and node.table in self.whole):
            return _State()
        if node.kind == "table":
            slots = {
                i: frozenset({(node.table, name)})
                for i, name in node.fields.items()
                if is_key_type(node.types[i])
            }
            return _State(frozenset({node.table}), slots)
        if children and not cut:
            if node.varies:
                raise _Refused(f"{_called(node)} may give every part other rows", node.line)
            return _State()
        if node.kind == "narrow":
            return _narrow(node, children[0])
        if node.kind == "keyed":
            return _keyed(node, children[0])
        if node.kind == "join":
            left, right = children
            return _joined(node, left, right) if left.tables and right.tables else _beside(node, left, right)
        if node.kind == "union":
            return _union(node, children)
        raise _Refused(node.why or f"{node.name} may look at all rows", node.line)


def _narrow(node: PlanNode, child: _State) -> _State:
    carries = {out: child.carries[i] for out, i in node.same.items() if i in child.carries}
    carries |= {out: child.halves[both] for out, both in node.coalesced.items() if both in child.halves}
    names: dict[int, list[int]] = {}
    for out, i in node.same.items():
        names.setdefault(i, []).append(out)
    halves = {
        (left, right): slot
        for (one, other), slot in child.halves.items()
        for left in names.get(one, ())
        for right in names.get(other, ())
    }
    return _State(child.tables, carries, child.slots, halves)


def _keyed(node: PlanNode, child: _State) -> _State:
    slots = frozenset(slot for key in node.keys if (slot := child.slot(key)) is not None)
    if not slots:
        keys = {child.carries[key] for key in node.keys if key in child.carries}
        if child.slots and (late := [slot for slot in keys if _covers(slot, child.tables)]):
            before = " or ".join(sorted(_fields(slot) for slot in child.slots))
            after = " or ".join(sorted(_fields(slot) for slot in late))
            raise _Refused(
                f"{_called(node)} looks at rows together that agree in {after}, and before it rows that "
                f"agree in {before}",
                node.line,
            )
        raise _Refused(
            f"{_called(node)} looks at rows together that no unchanged field of {_and(child.tables)} "
            "keeps together",
            node.line,
        )
    carries = {out: child.carries[i] for out, i in node.same.items() if i in child.carries}
    return _State(child.tables, carries, slots)


def _joined(node: PlanNode, left: _State, right: _State) -> _State:
    """Of two sides that are both cut."""
    tables = left.tables | right.tables
    found: dict[tuple[int, int], Slot] = {}
    for one, other in node.pairs:
        first, second = left.slot(one), right.slot(other)
        if first is not None and second is not None and _covers(first | second, tables):
            found[one, other] = first | second
    if not found:
        raise _Refused(
            f"{_called(node)} of {_and(left.tables)} with {_and(right.tables)} is by no field of both",
            node.line,
        )
    carries: dict[int, Slot] = {}
    # A column that pairs with several carries the slot of the first.
    if node.join in ("inner", "left_outer", "left_semi", "left_anti"):
        carries |= {**left.carries, **{one: slot for (one, _), slot in reversed(found.items())}}
    if node.join in ("inner", "right_outer"):
        carries |= {**right.carries, **{other: slot for (_, other), slot in reversed(found.items())}}
    halves = {pair: slot for (one, other), slot in found.items() for pair in ((one, other), (other, one))}
    kept = {out: carries[i] for out, i in node.same.items() if i in carries}
    return _State(
        tables, kept, frozenset(found.values()), halves if node.join == "full_outer" and node.same else {}
    )


def _beside(node: PlanNode, left: _State, right: _State) -> _State:
    """Of a side that is cut with one that every part has as a whole."""
    cut = left if left.tables else right
    fine = ("left_outer", "left_semi", "left_anti") if left.tables else ("right_outer",)
    if node.join not in ("inner", *fine):
        raise _Refused(
            f"{_called(node)} returns rows that every part has, once for each part of {_and(cut.tables)}",
            node.line,
        )
    carries = {out: cut.carries[i] for out, i in node.same.items() if i in cut.carries}
    return _State(cut.tables, carries, cut.slots)


def _union(node: PlanNode, children: Sequence[_State]) -> _State:
    tables = frozenset[str]().union(*(child.tables for child in children))
    if not all(child.tables for child in children):
        raise _Refused(
            f"{_called(node)} returns rows that every part has, once for each part of {_and(tables)}",
            node.line,
        )
    carries = {}
    for columns in zip(node.output, *(below.output for below in node.children), strict=True):
        slots = [child.carries.get(i) for child, i in zip(children, columns[1:], strict=True)]
        fits = all(s is not None and _covers(s, c.tables) for s, c in zip(slots, children, strict=True))
        slot = Slot().union(*(s for s in slots if s is not None))
        if fits and _covers(slot, tables):
            carries[columns[0]] = slot
    agreed = _agreed(tables, children, carries.values())
    if agreed is not None and not agreed:
        raise _Refused(
            f"what {_called(node)} puts together needs different cuts of {_and(tables)}", node.line
        )
    return _State(tables, carries, agreed)


def _agreed(
    tables: frozenset[str], states: Iterable[_State], more: Collection[Slot]
) -> frozenset[Slot] | None:
    """The slots of all tables by which every state may be cut: among its own and ``more``."""
    bound = [(state.tables, state.slots) for state in states if state.slots is not None]
    if not bound:
        return None
    choice = {slot for _, slots in bound for slot in slots}.union(more)
    return frozenset(
        slot
        for slot in choice
        if _covers(slot, tables)
        and all(frozenset(p for p in slot if p[0] in own) in slots for own, slots in bound)
    )


def _covers(slot: Slot, tables: frozenset[str]) -> bool:
    """Whether the slot has exactly one field of each of the tables."""
    return len(slot) == len(tables) and {table for table, _ in slot} == tables


def _called(node: PlanNode) -> str:
    return f"{node.name} at {node.line}" if node.line else node.name


def _fields(slot: Slot) -> str:
    return " = ".join(sorted(f"{table}.{name}" for table, name in slot))


def _and(tables: Iterable[str]) -> str:
    return " and ".join(sorted(tables))
