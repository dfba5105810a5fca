"""An analysed plan as values: what each operator does with the rows and columns of the tables below it.

Nothing here knows Spark. `analysed` reads such trees, and the rules for cutting tables into partitions
(`penstock.batch.pipeline.partitioning`) are written against them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["table", "constant", "narrow", "keyed", "join", "union", "everything"]
JoinKind = Literal["", "inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"]

# Types whose equal values are the same value. Floats have two zeros and many NaNs: whoever cuts by them has
# to treat these as one, as Spark does. Collated strings that are equal may differ, and so may variants.
_KEY = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|(?:var)?char\(\d+\)|binary"
    r"|date|timestamp|timestamp_ntz|time\(\d+\)"
)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """An operator of a plan. Columns are the ids that Spark gives them.

    - ``table``: the rows of ``table``. ``fields`` and ``types`` say which field a column is.
    - ``constant``: rows that have nothing to do with any table.
    - ``narrow``: makes rows out of each row by itself.
    - ``keyed``: looks at those rows together that agree in the columns ``keys`` of its child, and in more.
    - ``join``: of two children, by ``pairs`` of a left and a right column that must be equal, and by more.
    - ``union``: the rows of all children; columns correspond by their position in ``output``.
    - ``everything``: may look at all rows, because of ``why``.
    """

    kind: Kind
    name: str
    """What users call the operator."""
    children: tuple[PlanNode, ...] = ()
    subqueries: tuple[PlanNode, ...] = ()
    """Plans inside its expressions. Each row may depend on all of their rows."""
    output: tuple[int, ...] = ()
    same: Mapping[int, int] = field(default_factory=dict)
    """By a column of the output, the column of a child that has exactly its value in the same row."""
    coalesced: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By a column of the output, two columns of the child: its value is the first that is not null."""
    keys: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    join: JoinKind = ""
    table: str = ""
    fields: Mapping[int, str] = field(default_factory=dict)
    types: Mapping[int, str] = field(default_factory=dict)
    """The types of ``fields``, as Spark's ``simpleString`` writes them."""
    why: str = ""
    varies: bool = False
    """Whether it may return something else for the same rows the next time."""
    line: str = ""
    """Where it is written, as ``file.py:12``, as far as Spark knows."""

    def walk(self) -> Iterator[PlanNode]:
        """The node itself and all below it, those of subqueries too."""
        yield self
        for child in (*self.children, *self.subqueries):
            yield from child.walk()

    @property
    def tables(self) -> frozenset[str]:
        """The tables whose rows it may see."""
        return frozenset(node.table for node in self.walk() if node.kind == "table")


def is_key_type(simple: str) -> bool:
    """Whether a table can be cut by a field of the type: rows with equal values have to stay together."""
    return _KEY.fullmatch(simple) is not None
