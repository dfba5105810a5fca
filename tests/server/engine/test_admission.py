"""Places for queries: limits, turns, and those that give up."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.server.engine.running.admission import Admission


def test_queries_run_while_there_are_places_and_wait_afterwards() -> None:
    admission = Admission(running=2, queued=5)
    assert [admission.enter("ann", q) for q in ("a", "b", "c")] == [True, True, False]
    assert (admission.running, admission.waiting) == (2, 1)
    assert admission.leave("a") == ["c"]
    assert (admission.running, admission.waiting) == (2, 0)


def test_users_take_turns_and_each_users_queries_keep_their_order() -> None:
    admission = Admission(running=1, queued=10)
    admission.enter("ann", "first")
    for query in ("a1", "a2", "a3"):
        admission.enter("ann", query)
    for query in ("b1", "b2"):
        admission.enter("bob", query)
    order, last = [], "first"
    for _ in range(5):
        [last] = admission.leave(last)
        order.append(last)
    assert order == ["a1", "b1", "a2", "b2", "a3"]


def test_when_nobody_may_wait_any_more_the_error_says_so() -> None:
    admission = Admission(running=1, queued=1)
    admission.enter("ann", "a")
    admission.enter("ann", "b")
    with pytest.raises(SqlError, match="too many queries") as caught:
        admission.enter("bob", "c")
    assert caught.value.sqlstate == "53300"
    assert caught.value.hint
    assert admission.waiting == 1


def test_one_that_gives_up_waiting_frees_no_place_but_leaves_the_queue() -> None:
    admission = Admission(running=1, queued=2)
    admission.enter("ann", "a")
    admission.enter("bob", "b")
    admission.enter("bob", "c")
    assert admission.leave("b") == []
    assert admission.leave("b") == []
    assert admission.leave("a") == ["c"]
    assert admission.leave("c") == []
    assert (admission.running, admission.waiting) == (0, 0)


def test_who_waits_for_a_place_and_who_has_one() -> None:
    admission = Admission(running=2, queued=5)
    admission.enter("ann", "a")
    admission.enter("bob", "b")
    assert admission.waiting_of_others("ann") == 0
    admission.enter("bob", "c")
    assert (admission.waiting_of_others("ann"), admission.waiting_of_others("bob")) == (1, 0)


def test_one_user_leaves_places_for_others() -> None:
    admission = Admission(running=20, queued=10)
    assert [admission.enter("ann", f"a{n}") for n in range(20)] == [True] * 18 + [False] * 2
    assert admission.enter("bob", "b0") and admission.enter("bob", "b1")
    assert not admission.enter("bob", "b2")
    for number in range(20, 27):
        admission.enter("ann", f"a{number}")
    with pytest.raises(SqlError, match="9 of them yours"):
        admission.enter("ann", "a27")
    assert admission.leave("b0") == ["b2"]
    assert admission.leave("b1") == []
    assert admission.leave("a0") == ["a18"]
    assert (admission.running, admission.waiting) == (19, 8)
