"""From Spark's JSON of an analysed plan to a `PlanNode`.

Every operator that is not known, and every known one that does not look as expected, becomes one that may
look at everything: a plan is never read as more local than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.spark.plans.plan_json import LOGICAL, Tree, Unexpected, grow, ids
from penstock.spark.plans.plan_operators import MAKERS
from penstock.spark.plans.plan_tree import PlanNode

TABLE = "penstock.table"
FIELD = "penstock.field"
STANDS_FOR_ROWS = "penstock_stands_for_rows"
"""Name of the Python function whose `mapInArrow` stands for a table."""

_RDD = "org.apache.spark.sql.execution.LogicalRDD"
_CONSTANT = {
    f"{LOGICAL}LocalRelation",
    f"{LOGICAL}OneRowRelation",
    f"{LOGICAL}Range",
    "org.apache.spark.sql.catalyst.catalog.HiveTableRelation",
    "org.apache.spark.sql.execution.datasources.LogicalRelation",
    "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation",
}
# Their values depend on how Spark has laid out the rows of the whole table.
_PLACES = {
    "DistributedSequenceID",
    "InputFileBlockLength",
    "InputFileBlockStart",
    "InputFileName",
    "MonotonicallyIncreasingID",
    "SparkPartitionID",
}
_RANDOM = {"Rand", "Randn", "RandStr", "Shuffle", "Uniform", "Uuid"}
# Where nobody names a seed Spark draws one of 64 bits; those that people name are small.
_DRAWN = 1 << 40
# Of many rows they choose some, and nothing says which.
_CHOOSING = {"GlobalLimit", "LocalLimit", "Offset", "Sample", "Tail"}
_WHY = {
    "GlobalLimit": "limit looks at all rows",
    "LocalLimit": "limit looks at all rows",
    "Offset": "offset looks at all rows",
    "Tail": "tail looks at all rows",
    "Sample": "sample chooses among all rows",
    "LateralJoin": "a lateral join may look at all rows",
    "AsOfJoin": "an as-of join looks for the nearest of all rows",
    "AttachDistributedSequence": "numbering rows looks at all of them",
}
_NAMES = {
    "Aggregate": "groupBy",
    "Deduplicate": "dropDuplicates",
    "Distinct": "distinct",
    "Except": "except",
    "FlatMapCoGroupsInArrow": "cogroup",
    "FlatMapCoGroupsInPandas": "cogroup",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapGroupsInPandas": "applyInPandas",
    "Intersect": "intersect",
    "Join": "join",
    "Union": "union",
    "Window": "window",
}


class PlanDetails(Protocol):
    """What the JSON does not say about one operator of the plan."""

    def child(self, number: int) -> PlanDetails: ...

    def line(self) -> str:
        """Where the operator is written, or nothing."""

    def is_constant(self) -> bool:
        """Whether an RDD has nothing to do with the rows of a table."""

    def projections(self) -> list[list[Any]] | None:
        """What an Expand makes of a row, by rows and columns: the JSON of the plan leaves it out."""


class _NoDetails:
    """Nothing more is known, which is never wrong."""

    def child(self, number: int) -> PlanDetails:  # noqa: ARG002
        return self

    def line(self) -> str:
        return ""

    def is_constant(self) -> bool:
        return False

    def projections(self) -> list[list[Any]] | None:
        return None


NO_DETAILS = _NoDetails()


@dataclass(slots=True)
class PlanReader:
    """Reads one plan. Columns in ``known`` are those of RDDs that have nothing to do with tables."""

    known: frozenset[int]
    _ctes: dict[int, PlanNode] = field(default_factory=dict)

    def read(self, tree: Tree, details: PlanDetails) -> PlanNode:
        if tree.kind == f"{LOGICAL}WithCTE":
            return self._with_ctes(tree, details)
        if (leaf := self._leaf(tree, details)) is not None:
            return leaf
        children = tuple(self.read(c, details.child(n)) for n, c in enumerate(tree.children))
        name = _NAMES.get(tree.name, tree.name)
        node = PlanNode("everything", name, children, why=_WHY.get(tree.name, f"{name} may look at all rows"))
        if tree.kind == f"{LOGICAL}Expand":
            tree = replace(tree, fields={**tree.fields, "projections": details.projections()})
        make = MAKERS.get(tree.name) if tree.kind.startswith(LOGICAL) else None
        try:
            found = _Found.within(tree.fields)
            varies = found.varies or tree.name in _CHOOSING
            below = tuple(self.read(grow(p), NO_DETAILS) for p in found.plans)
            node = replace(node, subqueries=below, varies=varies)
            if found.why:
                node = replace(node, why=found.why)
            elif make is not None:
                node = make(node, tree)
        except (Unexpected, LookupError, TypeError, ValueError) as error:
            # Whatever is hidden in it may look at tables that are not below it.
            why = f"{name} could not be read: {error}"
            hidden = (PlanNode("everything", name, why=why),)
            node = PlanNode("everything", name, children, hidden, why=why, varies=True)
        return node if node.kind == "narrow" else replace(node, line=details.line())

    def _with_ctes(self, tree: Tree, details: PlanDetails) -> PlanNode:
        # Their ids are unique in a session, so that one inside another needs no scope of its own.
        for number in tree.fields["cteDefs"]:
            definition = tree.children[number]
            self._ctes[definition.fields["id"]] = self.read(
                definition.children[0], details.child(number).child(0)
            )
        number = tree.fields["plan"]
        return self.read(tree.children[number], details.child(number))

    def _leaf(self, tree: Tree, details: PlanDetails) -> PlanNode | None:
        if tree.kind == f"{LOGICAL}MapInArrow" and tree.fields["functionExpr"][0]["name"] == STANDS_FOR_ROWS:
            return _table(tree)
        if tree.children:
            return None
        if tree.kind == f"{LOGICAL}CTERelationRef":
            definition = self._ctes.get(tree.fields["cteId"])
            output = ids(tree.fields["output"])
            if definition is not None and len(output) == len(definition.output):
                same = dict(zip(output, definition.output, strict=True))
                return PlanNode("narrow", "with", (definition,), output=output, same=same)
        if tree.kind in _CONSTANT:
            return PlanNode("constant", tree.name, output=ids(tree.fields.get("output", [])))
        if tree.kind == _RDD:
            output = ids(tree.fields["output"])
            if (output and self.known.issuperset(output)) or details.is_constant():
                return PlanNode("constant", "RDD", output=output)
            return PlanNode("everything", "RDD", why="an RDD may have been made of any rows")
        return PlanNode("everything", tree.name, why=f"{tree.name} may look at all rows")


@dataclass(slots=True)
class _Found:
    """What the expressions of an operator contain that matters."""

    plans: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    why: str = ""
    varies: bool = False

    @classmethod
    def within(cls, value: object) -> _Found:
        found = cls()
        found._search(value)
        return found

    def _search(self, value: object) -> None:
        if isinstance(value, Mapping):
            if self._expression(value):
                return
            for key, inner in value.items():
                # Metadata in types is the users' own.
                if key not in ("dataType", "metadata"):
                    self._search(inner)
        elif isinstance(value, list):
            for at, inner in enumerate(value):
                if isinstance(inner, Mapping) and _short(inner) in _RANDOM and _is_seeded(value, at):
                    self.why = f"{_short(inner)} with a seed gives every part the same numbers"
                self._search(inner)

    def _expression(self, fields: Mapping[str, Any]) -> bool:
        """Note what matters about it. True if there is nothing more to look for."""
        name = _short(fields)
        self.varies |= name in _PLACES | _RANDOM or fields.get("udfDeterministic") is False
        if name in _PLACES:
            self.why = f"{name} depends on where Spark has put all rows"
        elif name.endswith("Subquery") or name in (
            "Exists",
            "ListQuery",
            "FunctionTableSubqueryArgumentExpression",
        ):
            if isinstance(plan := fields.get("plan"), list):
                self.plans.append(plan)
            elif name != "InSubquery":
                raise Unexpected(f"{name} has no plan")
        elif isinstance(fields.get("plan"), list):
            raise Unexpected(f"{name} has a plan")
        # What a subquery contains is searched when its plan is read.
        return "plan" in fields


def _short(fields: Mapping[str, Any]) -> str:
    return str(fields.get("class", "")).rpartition(".")[2]


def _is_seeded(flat: Sequence[Mapping[str, Any]], at: int) -> bool:
    """Whether somebody chose the seed of a random expression. It is a field, or the last leaf below it."""
    seed: Any = flat[at].get("randomSeed")
    if seed is None:
        left, last = 1, at
        while left:
            left += flat[last]["num-children"] - 1
            last += 1
        seed = flat[last - 1].get("value")
    try:
        return abs(int(seed)) < _DRAWN
    except (TypeError, ValueError):
        return True


def _table(tree: Tree) -> PlanNode:
    """The leaf that stands for a table. The attributes' own metadata is not in the JSON."""
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(tree.fields["functionExpr"][0]["dataType"])
    output = ids(tree.fields["output"])
    names = {f.metadata[TABLE] for f in schema}
    if len(names) != 1 or len(output) != len(schema):
        raise Unexpected("a table is not tagged as a whole")
    pairs = list(zip(output, schema, strict=True))
    return PlanNode(
        "table",
        "table",
        output=output,
        table=names.pop(),
        fields={i: f.metadata[FIELD] for i, f in pairs},
        types={i: f.dataType.simpleString() for i, f in pairs},
    )
