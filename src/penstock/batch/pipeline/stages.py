"""Binding transforms to what is there when they run, and deriving stages from their conflicts.

All functions here are pure: they see declarations, never data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from penstock.batch.pipeline.resources import Resource
from penstock.batch.pipeline.transforms import Division, Touched, Transform
from penstock.errors import DefinitionError, DuplicateName, TypeMismatch, UndeclaredRead, UnknownField
from penstock.types.tables import Field, Table, TableMeta

# The set of rows counts as one more field of a table: whoever touches the table reads it, and who
# drops rows writes it. So a filter never shares a stage with an aggregation of the same table.
_ROWS = "<rows>"

# The column by which an Arrow function says which rows are left.
ROW = "_row"

Fields = Mapping[str, frozenset[str]]
"""Names of fields by table."""
Touches = tuple[frozenset[object], frozenset[object]]
"""What a transform reads, and what it writes."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A transform with its declarations resolved against the tables that exist at its place."""

    transform: Transform
    reads: frozenset[Field]
    writes: frozenset[Field]
    reads_resources: frozenset[Resource]
    writes_resources: frozenset[Resource]
    creates: frozenset[str]
    complete: frozenset[str] = frozenset()
    """Tables of which it reads every field that is there."""

    @property
    def name(self) -> str:
        return self.transform.name

    @property
    def tables(self) -> frozenset[str]:
        """Tables that it is given: all that it touches and does not create."""
        named = {f.table for f in self.reads | self.writes} | self.transform.drops
        return frozenset(named) - self.creates

    @property
    def changes(self) -> frozenset[str]:
        """Tables that it returns."""
        return frozenset({f.table for f in self.writes} | self.transform.drops)

    def declared(self, table: str) -> frozenset[str]:
        """Names of the fields of a table that it may see."""
        return frozenset(f.name for f in self.reads | self.writes if f.table == table)

    def touched(self) -> Touches:
        """What it reads and what it writes, for finding conflicts."""
        rows_read = {(table, _ROWS) for table in self.tables}
        rows_written = {(table, _ROWS) for table in self.creates | self.transform.drops}
        reads = (
            {(f.table, f.name) for f in self.reads} | {("", r.name) for r in self.reads_resources} | rows_read
        )
        writes = (
            {(f.table, f.name) for f in self.writes}
            | {("", r.name) for r in self.writes_resources}
            | rows_written
        )
        return frozenset(reads), frozenset(writes)


@dataclass(frozen=True, slots=True)
class Stage:
    """Transforms that do not conflict and run together."""

    index: int
    transforms: tuple[Bound, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(t.name for t in self.transforms)


def bind(
    transforms: Sequence[Transform], tables: Sequence[type[Table]]
) -> tuple[list[Bound], dict[str, type[Table]]]:
    """Resolve every transform in order; the tables known at the end come along."""
    known: dict[str, type[Table]] = {t.__table_name__: t for t in tables}
    available: dict[str, set[str]] = {t.__table_name__: _given(t) for t in tables}
    bound = []
    for transform in transforms:
        bound.append(_bind_one(transform, known, available))
    return bound, known


def _bind_one(transform: Transform, known: dict[str, type[Table]], available: dict[str, set[str]]) -> Bound:
    creates: dict[str, type[Table]] = {
        t.__table_name__: cast("type[Table]", t)
        for t in transform.writes
        if isinstance(t, TableMeta) and t.__table_name__ not in known
    }
    reads = _fields(transform.reads, {name: set(fields) for name, fields in available.items()})
    for field in reads:
        if field.table not in known:
            raise transform.error(
                UnknownField,
                f"reads {field}, but there is no table {field.table} at this point",
                hint="make it an input of the pipeline, or list the transform that creates it first",
            )
        if field.name not in available[field.table]:
            raise transform.error(
                UnknownField,
                f"reads {field}, which nothing has written yet",
                hint=f"list the transform that writes {field} before this one"
                + (", or drop `= derived()` if the input has it" if field.derived else ""),
            )
    writes = _fields(transform.writes, {**available, **{name: _given(t) for name, t in creates.items()}})
    for field in writes:
        if field.table not in known and field.table not in creates:
            raise transform.error(
                UnknownField,
                f"writes {field}, but there is no table {field.table} at this point",
                hint=f"to create table {field.table}, list its class as a whole in writes",
            )
    for field in [*reads, *writes]:
        _check_declaration(transform, field, known.get(field.table) or creates[field.table])
    for table in transform.drops - known.keys():
        raise transform.error(UnknownField, f"drops rows of {table}, which does not exist at this point")
    known |= creates
    there = {table: set(fields) for table, fields in available.items()}
    for field in writes:
        available.setdefault(field.table, set()).add(field.name)
    bound = Bound(
        transform,
        frozenset(reads),
        frozenset(writes),
        frozenset(r for r in transform.reads if isinstance(r, Resource)),
        frozenset(r for r in transform.writes if isinstance(r, Resource)),
        frozenset(creates),
        frozenset(t for t, fields in there.items() if fields <= {f.name for f in reads if f.table == t}),
    )
    _check_shape(bound)
    _check_key(bound, known)
    return bound


def _check_declaration(transform: Transform, field: Field, table: type[Table]) -> None:
    """A field that came from another class of the same table name must be the same field there."""
    declared = table.__fields__.get(field.name)
    if declared is None:
        raise transform.error(
            UnknownField,
            f"touches {field}, which the {field.table} at {table.__location__} does not have",
            hint=f"two classes describe table {field.table}: use one of them",
        )
    if (declared.type, declared.nullable) != (field.type, field.nullable):
        raise transform.error(
            TypeMismatch,
            f"touches {field!r}, which is {declared!r} at {table.__location__}",
            hint=f"two classes describe table {field.table}: use one of them",
        )


def _check_key(bound: Bound, known: Mapping[str, type[Table]]) -> None:
    """A transform reads the key that its ``by`` names: who changes it has to come before or after."""
    transform = bound.transform
    if transform.by is None or isinstance(transform.by, Division):
        return
    reads = {(f.table, f.name) for f in bound.reads}
    for field in (f for fields in transform.by.values() for f in fields):
        if field.table not in bound.tables:
            raise transform.error(
                UnknownField,
                f"has {field} in by, but is not given {field.table}",
                hint="by= names fields of the tables that it reads or changes",
            )
        _check_declaration(transform, field, known[field.table])
        if (field.table, field.name) not in reads:
            raise transform.error(
                UndeclaredRead, f"has {field} in by, and does not declare to read it", hint="add it to reads"
            )


def _given(table: type[Table]) -> set[str]:
    return {f.name for f in table.__fields__.values() if not f.derived}


def _fields(touched: Iterable[Touched], whole: Mapping[str, Iterable[str]]) -> set[Field]:
    fields: set[Field] = set()
    for item in touched:
        if isinstance(item, Field):
            fields.add(item)
        elif isinstance(item, TableMeta):
            names = set(whole.get(item.__table_name__, item.__fields__))
            fields |= {f for f in item.__fields__.values() if f.name in names}
    return fields


def _check_shape(bound: Bound) -> None:
    transform = bound.transform
    resources = {r.name for r in bound.reads_resources}
    if both := sorted(bound.tables & resources):
        raise transform.error(
            DuplicateName, f"touches a table and a resource named {both[0]}", hint="rename the resource"
        )
    wanted = bound.tables | resources
    given = set(transform.parameters)
    if given != wanted:
        raise transform.error(
            DefinitionError,
            f"takes ({', '.join(transform.parameters)}) but touches ({', '.join(sorted(wanted))})",
            hint="name one parameter after each table and resource that it reads or changes",
        )
    if bound.writes_resources and (bound.tables or bound.changes):
        raise transform.error(
            DefinitionError,
            "writes a resource and touches tables",
            hint="resources are not checkpointed, so they are made from other resources only; "
            "load what depends on rows in a dataset factory",
        )
    if transform.form == "arrow" and (len(bound.tables) != 1 or len(bound.changes) != 1):
        raise transform.error(
            DefinitionError,
            f"touches {', '.join(sorted(bound.tables | bound.changes)) or 'no table'}",
            hint="an Arrow transform changes one table, or makes one of another; use @transform for joins",
        )
    if transform.form == "arrow" and transform.drops and ROW in bound.declared(*bound.tables):
        raise transform.error(
            DefinitionError,
            f"drops rows and touches a field {ROW}",
            hint=f"{ROW} numbers the rows of a batch",
        )
    if bound.creates and bound.changes - bound.creates:
        raise transform.error(
            DefinitionError, "creates a table and changes another", hint="split it into two transforms"
        )


def conflicts(earlier: Touches, later: Touches) -> bool:
    """Whether one writes what the other touches, so that their order matters."""
    (reads_i, writes_i), (reads_j, writes_j) = earlier, later
    return bool(writes_i & (reads_j | writes_j) or reads_i & writes_j)


def derive(bound: Sequence[Bound]) -> tuple[Stage, ...]:
    """Stages by longest path of conflicts."""
    level: list[int] = []
    touched = [b.touched() for b in bound]
    for j in range(len(bound)):
        before = [level[i] for i in range(j) if conflicts(touched[i], touched[j])]
        level.append(max(before) + 1 if before else 0)
    count = max(level, default=-1) + 1
    return tuple(
        Stage(n, tuple(b for b, at in zip(bound, level, strict=True) if at == n)) for n in range(count)
    )


def live(stages: Sequence[Stage], leaving: Fields) -> dict[str, frozenset[str]]:
    """Fields by table that these stages need to be given, so that after them there is what is ``leaving``."""
    needed: dict[str, set[str]] = {table: set(fields) for table, fields in leaving.items()}
    for stage in reversed(stages):
        for bound in stage.transforms:
            for field in bound.writes - bound.reads:
                needed.get(field.table, set()).discard(field.name)
        for bound in stage.transforms:
            for name in bound.creates:
                needed.pop(name, None)
            for name in bound.tables:
                needed.setdefault(name, set())
            for field in bound.reads:
                needed.setdefault(field.table, set()).add(field.name)
    return {table: frozenset(fields) for table, fields in needed.items()}
