"""What Spark's operators do with rows and columns, as far as it is known for certain.

Each function completes a node that may look at everything, or leaves it as it is. One that finds an operator
not as expected raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from penstock.spark.plans.plan_json import (
    EXPRESSION,
    Tree,
    Unexpected,
    attribute,
    attributes,
    column,
    grow,
    ids,
    trees,
)
from penstock.spark.plans.plan_tree import JoinKind, PlanNode

_JOINS: dict[str, JoinKind] = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left_outer",
    "RightOuter": "right_outer",
    "FullOuter": "full_outer",
    "LeftSemi": "left_semi",
    "LeftAnti": "left_anti",
}


def _listed(node: PlanNode, listed: Sequence[Tree]) -> PlanNode:
    """The node with the output that a list of expressions gives it."""
    same, coalesced = {}, {}
    for tree in listed:
        if (given := attribute(tree)) is not None:
            same[column(tree)] = given
        elif tree.is_expression("Alias") and (inner := tree.children[0]).is_expression("Coalesce"):
            both = [column(c) for c in inner.children if c.is_expression("AttributeReference")]
            if len(both) == len(inner.children) == 2:
                coalesced[column(tree)] = (both[0], both[1])
    return replace(node, output=tuple(column(t) for t in listed), same=same, coalesced=coalesced)


def _unchanged(node: PlanNode, output: Sequence[int]) -> PlanNode:
    return replace(node, output=tuple(output), same={i: i for i in output})


def _pass_on(node: PlanNode, _tree: Tree) -> PlanNode:
    return replace(_unchanged(node, node.children[0].output), kind="narrow")


def _sort(node: PlanNode, tree: Tree) -> PlanNode:
    if tree.fields["global"] is not False:
        return replace(node, why="a global sort looks at all rows")
    return _pass_on(node, tree)


def _project(node: PlanNode, tree: Tree) -> PlanNode:
    return replace(_listed(node, trees(tree.fields["projectList"])), kind="narrow")


def _map(node: PlanNode, tree: Tree) -> PlanNode:
    if tree.fields["isBarrier"] is not False:
        return replace(node, why="tasks of a barrier stage may tell each other of their rows")
    return replace(node, kind="narrow", output=ids(tree.fields["output"]))


def _generate(node: PlanNode, tree: Tree) -> PlanNode:
    generator = grow(tree.fields["generator"])
    if not generator.kind.startswith(EXPRESSION) or "UDTF" in generator.name:
        return replace(node, why="a table function may remember all rows")
    dropped = set(tree.fields["unrequiredChildIndex"])
    kept = [i for n, i in enumerate(node.children[0].output) if n not in dropped]
    made = ids(tree.fields["generatorOutput"])
    return replace(_unchanged(node, kept), kind="narrow", output=(*kept, *made))


def _expand(node: PlanNode, tree: Tree) -> PlanNode:
    rows = [[attribute(e) for e in trees(row)] for row in tree.fields["projections"]]
    output = ids(tree.fields["output"])
    given = dict(zip(output, zip(*rows, strict=True), strict=True))
    same = {out: i for out, (i, *others) in given.items() if i is not None and set(others) <= {i}}
    return replace(node, kind="narrow", output=output, same=same)


def _aggregate(node: PlanNode, tree: Tree) -> PlanNode:
    if not trees(tree.fields["groupingExpressions"]):
        return replace(node, why="an aggregation without groupBy looks at all rows")
    keys = attributes(tree.fields["groupingExpressions"])
    made = _listed(node, trees(tree.fields["aggregateExpressions"]))
    return replace(made, kind="keyed", keys=keys, coalesced={})


def _window(node: PlanNode, tree: Tree) -> PlanNode:
    if not trees(tree.fields["partitionSpec"]):
        return replace(node, why="a window without partitionBy looks at all rows")
    given = node.children[0].output
    output = (*given, *ids(tree.fields["windowExpressions"]))
    keys = attributes(tree.fields["partitionSpec"])
    return replace(_unchanged(node, given), kind="keyed", keys=keys, output=output)


def _deduplicate(node: PlanNode, tree: Tree) -> PlanNode:
    keys = attributes(tree.fields["keys"])
    return replace(_unchanged(node, node.children[0].output), kind="keyed", keys=keys)


def _distinct(node: PlanNode, _tree: Tree) -> PlanNode:
    output = node.children[0].output
    return replace(_unchanged(node, output), kind="keyed", keys=output)


def _groups(node: PlanNode, tree: Tree) -> PlanNode:
    keys = attributes(tree.fields["groupingAttributes"])
    return replace(node, kind="keyed", keys=keys, output=ids(tree.fields["output"]))


def _cogroups(node: PlanNode, tree: Tree) -> PlanNode:
    lengths = (tree.fields["leftGroupingLen"], tree.fields["rightGroupingLen"])
    # Both children start with a projection to the keys. Spark does not ask whether their types are the same.
    left, right = (
        trees(child.fields["projectList"])[:n] for child, n in zip(tree.children, lengths, strict=True)
    )
    pairs = [p for both in zip(left, right, strict=True) if (p := _pair(*both)) is not None]
    output = ids(tree.fields["output"])
    return replace(node, kind="join", join="full_outer", pairs=tuple(pairs), output=output)


def _pair(left: Tree, right: Tree) -> tuple[int, int] | None:
    both = (left, right)
    if not all(t.is_expression("AttributeReference") for t in both):
        return None
    return (column(left), column(right)) if left.fields["dataType"] == right.fields["dataType"] else None


def _join(node: PlanNode, tree: Tree) -> PlanNode:
    kind = str(tree.fields["joinType"].get("object", "")).rpartition(".")[2].removesuffix("$")
    join = _JOINS.get(kind)
    left, right = (child.output for child in node.children)
    if join is None:
        return node
    if set(left) & set(right):
        raise Unexpected("both sides have the same columns")
    pairs = []
    for part in _conjuncts(tree.fields.get("condition")):
        if part.is_expression("EqualTo") or part.is_expression("EqualNullSafe"):
            one, other = _pair(*part.children) or (None, None)
            if one in left and other in right:
                pairs.append((one, other))
            elif other in left and one in right:
                pairs.append((other, one))
    output = left if join in ("left_semi", "left_anti") else (*left, *right)
    return replace(_unchanged(node, output), kind="join", join=join, pairs=tuple(pairs))


def _conjuncts(condition: Any) -> Iterator[Tree]:
    left = [grow(condition)] if condition else []
    while left:
        tree = left.pop()
        if tree.is_expression("And"):
            left += reversed(tree.children)
        else:
            yield tree


def _compare(node: PlanNode, tree: Tree) -> PlanNode:
    """Intersect and except: equal rows of both sides are looked at together, and those of one side."""
    left, right = (child.output for child in node.children)
    joined = replace(
        _unchanged(node, left),
        kind="join",
        join="left_semi" if tree.name == "Intersect" else "left_anti",
        pairs=tuple(zip(left, right, strict=True)),
    )
    return replace(_unchanged(node, left), kind="keyed", keys=left, children=(joined,))


def _union(node: PlanNode, tree: Tree) -> PlanNode:
    outputs = [child.output for child in node.children]
    if tree.fields["byName"] is not False or len({len(o) for o in outputs}) != 1:
        raise Unexpected("its columns do not correspond by position")
    return replace(node, kind="union", output=outputs[0])


MAKERS: dict[str, Callable[[PlanNode, Tree], PlanNode]] = {
    "Aggregate": _aggregate,
    "Deduplicate": _deduplicate,
    "Distinct": _distinct,
    "Except": _compare,
    "Expand": _expand,
    "Filter": _pass_on,
    "FlatMapCoGroupsInArrow": _cogroups,
    "FlatMapCoGroupsInPandas": _cogroups,
    "FlatMapGroupsInArrow": _groups,
    "FlatMapGroupsInPandas": _groups,
    "Generate": _generate,
    "Intersect": _compare,
    "Join": _join,
    "MapInArrow": _map,
    "MapInPandas": _map,
    "Project": _project,
    "RebalancePartitions": _pass_on,
    "Repartition": _pass_on,
    "RepartitionByExpression": _pass_on,
    "ResolvedHint": _pass_on,
    "Sort": _sort,
    "SubqueryAlias": _pass_on,
    "Union": _union,
    "UnresolvedHint": _pass_on,
    "View": _pass_on,
    "Window": _window,
}
