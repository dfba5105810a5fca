"""The rules for cutting tables, on plans that are written down."""

from __future__ import annotations

from dataclasses import replace

from penstock.batch.pipeline.partitioning import (
    Everything,
    Keyed,
    Narrow,
    Slot,
    carried,
    contradiction,
    needs,
)
from penstock.spark.plans.plan_tree import JoinKind, PlanNode


def table(name: str, *fields: str, start: int) -> PlanNode:
    ids = range(start, start + len(fields))
    return PlanNode(
        "table",
        "table",
        output=tuple(ids),
        table=name,
        fields=dict(zip(ids, fields, strict=True)),
        types=dict.fromkeys(ids, "int"),
    )


def keyed(child: PlanNode, *keys: int) -> PlanNode:
    return PlanNode(
        "keyed", "groupBy", (child,), output=child.output, same={i: i for i in child.output}, keys=keys
    )


def join(left: PlanNode, right: PlanNode, kind: JoinKind, *pairs: tuple[int, int]) -> PlanNode:
    output = (*left.output, *right.output)
    same = {i: i for i in output}
    return PlanNode("join", "join", (left, right), output=output, same=same, pairs=pairs, join=kind)


def union(*children: PlanNode) -> PlanNode:
    return PlanNode("union", "union", children, output=children[0].output)


def slot(*fields: str) -> Slot:
    return frozenset((f.partition(".")[0], f.partition(".")[2]) for f in fields)


A = table("a", "k", "x", start=10)
A2 = table("a", "k", "x", start=20)
B = table("b", "k", "x", start=30)
C = table("c", "k", "x", start=40)
CONSTANT = PlanNode("constant", "Range", output=(50, 51))


def test_a_table_by_itself_is_cut_in_any_way() -> None:
    assert needs([A]) == Narrow("a")
    assert needs([A], whole=["a"]) == Everything("it has a result that uses no table that is cut")
    assert isinstance(needs([]), Everything)
    assert isinstance(needs([CONSTANT]), Everything)


def test_groups_stay_together() -> None:
    assert needs([keyed(A, 10, 11)]) == Keyed(frozenset({slot("a.k"), slot("a.x")}))
    assert needs([keyed(keyed(A, 10, 11), 10)]) == Keyed(frozenset({slot("a.k")}))
    refused = needs([replace(keyed(keyed(A, 10), 11), line="f.py:3")])
    assert isinstance(refused, Everything)
    assert refused.line == "f.py:3"
    assert "groupBy at f.py:3" in refused.why and "a.x" in refused.why and "a.k" in refused.why


def test_a_type_without_equality_is_no_key() -> None:
    odd = replace(A, types={10: "string collate UNICODE", 11: "int"})
    assert isinstance(needs([keyed(odd, 10)]), Everything)
    assert needs([keyed(odd, 10, 11)]) == Keyed(frozenset({slot("a.x")}))


def test_a_key_that_pairs_with_two_columns() -> None:
    both = join(A, B, "inner", (10, 30), (10, 31))
    slots = frozenset({slot("a.k", "b.k"), slot("a.k", "b.x")})
    assert needs([both]) == Keyed(slots)
    assert needs([keyed(both, 10)]) == Keyed(frozenset({slot("a.k", "b.k")}))


def test_joins_of_joins() -> None:
    inner = join(A, B, "inner", (10, 30))
    assert needs([join(inner, C, "left_outer", (30, 40))]) == Keyed(frozenset({slot("a.k", "b.k", "c.k")}))
    assert isinstance(needs([join(inner, C, "left_outer", (11, 41))]), Everything)
    outer = join(A, B, "left_outer", (10, 30))
    assert isinstance(needs([join(outer, C, "inner", (30, 40))]), Everything)
    assert needs([join(outer, C, "inner", (10, 40))]) == Keyed(frozenset({slot("a.k", "b.k", "c.k")}))


def test_a_self_join_is_by_the_same_field() -> None:
    assert needs([join(A, A2, "inner", (10, 20))]) == Keyed(frozenset({slot("a.k")}))
    assert isinstance(needs([join(A, A2, "inner", (10, 21))]), Everything)
    # The right side is null where there is no match, wherever the left row is.
    left = join(A, A2, "left_outer", (10, 20))
    assert needs([keyed(left, 10)]) == Keyed(frozenset({slot("a.k")}))
    assert isinstance(needs([keyed(left, 20)]), Everything)


def test_a_full_join_carries_its_key_in_what_is_coalesced() -> None:
    full = join(A, B, "full_outer", (10, 30))
    assert isinstance(needs([keyed(full, 10)]), Everything)
    renamed = PlanNode("narrow", "Project", (full,), output=(60, 61), same={60: 10, 61: 30})
    for pair in ((60, 61), (61, 60)):
        using = PlanNode("narrow", "Project", (renamed,), output=(62,), coalesced={62: pair})
        assert needs([keyed(using, 62)]) == Keyed(frozenset({slot("a.k", "b.k")}))
    other = PlanNode("narrow", "Project", (full,), output=(62,), coalesced={62: (10, 31)})
    assert isinstance(needs([keyed(other, 62)]), Everything)


def test_unions() -> None:
    assert needs([union(A, A2)]) == Narrow("a")
    assert isinstance(needs([union(A, B)]), Everything)
    assert needs([keyed(union(A, B), 10)]) == Keyed(frozenset({slot("a.k", "b.k")}))
    assert isinstance(needs([union(A, CONSTANT)]), Everything)
    assert isinstance(needs([union(A, B)], whole=["b"]), Everything)
    assert needs([union(keyed(A, 10), keyed(B, 30, 31))]) == Keyed(frozenset({slot("a.k", "b.k")}))
    assert isinstance(needs([union(keyed(A, 10), keyed(B, 31))]), Everything)
    assert isinstance(needs([union(keyed(A, 10), keyed(A2, 21))]), Everything)
    swapped = PlanNode("narrow", "Project", (A2,), output=(70, 71), same={70: 21, 71: 20})
    assert isinstance(needs([keyed(union(A, swapped), 10)]), Everything)


def test_a_union_of_groups_whose_key_is_gone() -> None:
    gone = [
        PlanNode("narrow", "Project", (keyed(t, t.output[0]),), output=(n,)) for n, t in ((80, A), (81, A2))
    ]
    assert needs([union(*gone)]) == Keyed(frozenset({slot("a.k")}))


def test_everything_below_may_be_whole() -> None:
    total = PlanNode("everything", "groupBy", (B,), output=(30, 31), why="it looks at all rows")
    assert needs([total]) == Everything("it looks at all rows")
    assert needs([join(A, total, "inner", (10, 30))], whole=["b"]) == Narrow("a")
    # Each part would choose its own.
    limit = replace(total, name="limit", varies=True, line="a.py:7")
    chosen = needs([join(A, limit, "inner", (10, 30))], whole=["b"])
    assert chosen == Everything("limit at a.py:7 may give every part other rows", "a.py:7")
    assert isinstance(needs([PlanNode("everything", "RDD")]), Everything)
    asks = PlanNode("narrow", "Filter", (A,), (B,), output=A.output, same={10: 10, 11: 11})
    assert needs([asks]) == Everything("a subquery looks at all rows of b")
    assert needs([asks], whole=["b"]) == Narrow("a")
    assert isinstance(needs([replace(asks, subqueries=(PlanNode("everything", "RDD"),))]), Everything)


def test_what_is_made_of_whole_tables_carries_nothing() -> None:
    limit = PlanNode("everything", "limit", (B,), why="limit looks at all rows")
    assert carried(limit, ("k", "x"), whole=["b"]) == {}
    assert carried(A, ("k", "x"), whole=["b"]) == {"k": slot("a.k"), "x": slot("a.x")}


def test_several_results_agree() -> None:
    assert needs([A, keyed(A2, 20)]) == Keyed(frozenset({slot("a.k")}))
    assert needs([A, A2]) == Narrow("a")
    assert isinstance(needs([keyed(A, 10), keyed(A2, 21)]), Everything)
    assert needs([keyed(A, 10, 11), join(A2, B, "inner", (20, 30))]) == Keyed(frozenset({slot("a.k", "b.k")}))
    assert isinstance(needs([A, B]), Everything)
    assert isinstance(needs([A, CONSTANT]), Everything)


def test_a_declared_cut_is_compared() -> None:
    need = Keyed(frozenset({slot("a.k", "b.k"), slot("a.x", "b.x")}))
    assert contradiction(need, [slot("a.k", "b.k")]) is None
    assert contradiction(need, [slot("a.k", "b.k"), slot("a.x", "b.x")]) is None
    said = contradiction(need, [slot("a.k", "b.x")])
    assert said is not None and "a.k = b.x" in said and "a.k = b.k or a.x = b.x" in said
    assert contradiction(need, []) is not None
    assert contradiction(Narrow("a"), [slot("a.anything")]) is None
    assert contradiction(Narrow("a"), [slot("b.k")]) is not None
    assert contradiction(Everything("limit looks at all rows", "f.py:3"), [slot("a.k")]) == (
        "limit looks at all rows (f.py:3)"
    )


def test_a_plan_that_is_too_deep_is_not_cut() -> None:
    node = A
    for _ in range(5000):
        node = PlanNode("narrow", "Project", (node,), output=A.output, same={10: 10, 11: 11})
    assert needs([node]) == Everything("its plan is too deep")
