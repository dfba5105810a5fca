"""The rules, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.catalog import Create, Drop, Head, Statement, StatementKind
from penstock.control.catalog.model import HISTORY, ChangeStamp
from penstock.control.catalog.rules import CatalogChange, apply, conflict, in_order
from penstock.errors import DuplicateName, PenstockError, UsageError
from tests.control.catalog.support import after, create, is_valid, names, statement

BASE = after(create("a", kind=StatementKind.TABLE), create("b", "a"), create("c", "b"), create("z"))


def test_the_empty_catalog_has_version_0_and_each_change_adds_1() -> None:
    assert Head().version == 0
    assert after(create("a"), create("b"), Drop("a")).version == 3


def test_what_is_created_stands_at_the_end() -> None:
    assert names(BASE) == ["a", "b", "c", "z"]
    assert BASE.entries[1].needs == ("a",)
    assert BASE.entries[1].created == "2026-01-05T10:00:00Z ana@host"


REFUSED: list[tuple[CatalogChange, type[PenstockError], str, str]] = [
    (create("a"), DuplicateName, "there is a table a", "--replace"),
    (create("A", kind=StatementKind.TABLE, replace=True), DuplicateName, "only in capitals", "write a"),
    (create("a", replace=True), UsageError, "a is a table, and a view cannot", "catalog drop a"),
    (create("n", "nope"), UsageError, "view n needs nope, which is not", "add nope first"),
    (create("n", "Z"), UsageError, "needs Z, which is not", "did you mean z?"),
    (create("n", "n"), UsageError, "view n cannot need itself", ""),
    (create("c", "c", replace=True), UsageError, "view c cannot need itself", ""),
    (
        create("a", "c", kind=StatementKind.TABLE, replace=True),
        UsageError,
        "table a would need itself: a needs c needs b needs a",
        "leave out what needs a",
    ),
    (Drop("nope"), UsageError, "there is no nope in the catalog, which is at version 4", "catalog show"),
    (Drop("B"), UsageError, "there is no B", "did you mean b?"),
    (Drop("a"), UsageError, "table a cannot be dropped: it is needed by b, c", "--cascade"),
]


@pytest.mark.parametrize(("change", "error", "what", "hint"), REFUSED, ids=lambda row: str(row)[:40])
def test_what_is_refused(change: CatalogChange, error: type[PenstockError], what: str, hint: str) -> None:
    with pytest.raises(error) as raised:
        after(change, begin=BASE)
    assert what in raised.value.what
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    "make",
    [
        lambda: create("a b"),
        lambda: create(""),
        lambda: create("a."),
        lambda: create("a..b"),
        lambda: create("x" * 101),
        lambda: create(".".join(["x" * 100] * 3)),
        lambda: create("a", "b/c"),
        lambda: create("a", sql=" ; "),
        lambda: create("a", sql="SELECT 1; SELECT 2"),
        lambda: Create(Statement("a", "index", "SELECT 1")),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_statement(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


def test_a_statement_is_kept_tidy() -> None:
    made = Create(Statement("shop.orders", StatementKind.VIEW, " SELECT 1;\n", ("b", "a", "b"), "once\nupon"))
    assert made.statement == Statement("shop.orders", StatementKind.VIEW, "SELECT 1", ("b", "a"), "once upon")


def test_a_replaced_statement_keeps_its_place() -> None:
    head = after(create("b", "a", sql="SELECT 2", replace=True), begin=BASE)
    assert names(head) == ["a", "b", "c", "z"]
    assert head.entries[1].digest != BASE.entries[1].digest


def test_replace_creates_what_is_not_there() -> None:
    assert names(after(create("n", replace=True))) == ["n"]


def test_a_replaced_statement_moves_behind_what_it_now_needs_and_takes_along_what_needs_it() -> None:
    base = after(create("x"), create("w"), begin=BASE)
    head = after(create("b", "z", replace=True), begin=base)
    assert names(head) == ["a", "z", "b", "c", "x", "w"]
    head = after(create("b", "a", "w", replace=True), begin=base)
    assert names(head) == ["a", "z", "x", "w", "b", "c"]


def test_dropping_takes_out_one_or_all_that_need_it() -> None:
    assert names(after(Drop("z"), begin=BASE)) == ["a", "b", "c"]
    assert names(after(Drop("c"), Drop("b"), begin=BASE)) == ["a", "z"]
    assert names(after(Drop("a", cascade=True), begin=BASE)) == ["z"]
    assert names(after(Drop("z", cascade=True), begin=BASE)) == ["a", "b", "c"]


def test_a_dropped_name_is_free_for_any_kind() -> None:
    head = after(Drop("z"), create("z", kind=StatementKind.SINK), begin=BASE)
    assert head.entries[-1].kind is StatementKind.SINK


def test_history_tells_the_last_changes() -> None:
    head = after(create("b", "z", replace=True), Drop("a"), Drop("z", cascade=True), begin=BASE)
    assert [(logged.version, logged.what) for logged in head.history] == [
        (1, "create table a"),
        (2, "create view b"),
        (3, "create view c"),
        (4, "create view z"),
        (5, "replace view b"),
        (6, "drop table a"),
        (7, "drop view z and b, c"),
    ]
    assert {logged.by for logged in head.history} == {"ana@host"}
    many = after(*(create(f"n{i}") for i in range(HISTORY + 6)))
    assert [many.history[0].version, len(many.history)] == [7, HISTORY]


def test_history_stays_small_whatever_is_dropped() -> None:
    head = after(create("root"), *(create(f"{'n' * 90}{i}", "root") for i in range(30)))
    gone = apply(head, Drop("root", cascade=True), ChangeStamp("r", "x" * 1000, "now"))
    assert len(gone.history[-1].what) <= 120
    assert len(gone.history[-1].by) <= 120


def test_a_conflict_says_what_changed_since_by_whom_and_what_to_do() -> None:
    error = conflict(BASE, 2)
    assert "at version 4, not 2" in error.what
    assert "version 3: create view c, by ana@host, at 2026-01-05T10:00:00Z" in error.what
    assert "version 4: create view z" in error.what
    assert "version 2" not in error.what
    assert "--expect 4" in (error.hint or "")


def test_a_conflict_with_something_old_counts_what_it_does_not_tell() -> None:
    error = conflict(after(*(create(f"n{i}") for i in range(100))), 3)
    assert "87 more before these" in error.what
    assert "version 100: create view n99" in error.what
    assert len(error.what.splitlines()) < 15


def test_a_version_from_the_future_is_no_version_of_this_store() -> None:
    assert "4 is the newest" in conflict(BASE, 9).what


@st.composite
def shuffled(draw: st.DrawFn) -> list[Statement]:
    """Statements that need others in no circle, in any order."""
    made: list[Statement] = []
    for i in range(draw(st.integers(0, 8))):
        needs = draw(st.lists(st.sampled_from(made), unique=True)) if made else []
        made.append(statement(f"n{i}", *(thing.name for thing in needs)))
    return list(draw(st.permutations(made)))


@given(shuffled())
def test_order_is_valid_stable_and_changes_nothing_that_is_in_order(things: list[Statement]) -> None:
    ordered = in_order(things)
    assert is_valid(ordered)
    assert sorted(ordered, key=lambda s: s.name) == sorted(things, key=lambda s: s.name)
    assert in_order(ordered) == ordered
    free = [thing for thing in things if not thing.needs]
    assert [thing for thing in ordered if not thing.needs] == free
