from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import BadState
from penstock.journals.shuffle.visibility.cuts import Cuts, ReadyCut, advance, stalled
from penstock.journals.shuffle.visibility.frontier import Frontier, Mark
from penstock.journals.shuffle.visibility.joint import Acks

P, Q = 1, 2


def frontier(**journals: Mark | tuple[Mark, ...]) -> Frontier:
    return Frontier(
        {name: (marks,) if isinstance(marks, Mark) else marks for name, marks in journals.items()}
    )


def at(
    cuts: Cuts, epoch: int, progress: Frontier, *, reached: dict[tuple[str, int], int] | None = None
) -> tuple[Cuts, ReadyCut | None]:
    known = reached or {}
    return advance(cuts, progress, epoch, 100.0 + epoch, reached=lambda name, who: known.get((name, who), 0))


def test_without_hints_progress_is_ready_at_once() -> None:
    progress = frontier(a=Mark(P, 5, 0, -90))
    cuts, ready = at(Cuts(), 3, progress)
    assert ready == ReadyCut(progress, 0, 3, 3)
    assert cuts == Cuts(consumed=3, upto=3, epoch=3, since=103.0)


def test_without_progress_nothing_is_ready() -> None:
    cuts, ready = at(Cuts(), 3, Frontier())
    assert (cuts, ready) == (Cuts(epoch=3), None)


def test_hints_that_were_reached_in_the_same_epoch_count() -> None:
    _, ready = at(Cuts(), 1, frontier(a=Mark(P, 5, 6), b=Mark(P, 6, 5)))
    assert ready is None
    _, ready = at(Cuts(), 1, frontier(a=Mark(P, 6, 6), b=Mark(P, 6, 5)))
    assert ready is not None and ready.upto == 1


def test_a_hint_that_was_reached_long_ago_counts() -> None:
    progress = frontier(a=Mark(P, 5), b=Mark(P, 0, 6))
    _, ready = at(Cuts(), 1, progress, reached={("b", P): 5})
    assert ready is None
    _, ready = at(Cuts(), 1, progress, reached={("b", P): 8})
    assert ready is not None


def test_what_resolves_a_hint_is_seen_ahead_and_the_rest_follows_without_it() -> None:
    """Producer P is read beyond the hint in one go, and Q brings a hint that is not reached then."""
    one, ready = at(Cuts(), 1, frontier(a=Mark(P, 5), b=Mark(P, 0, 6)))
    assert ready is None
    two, ready = at(one, 2, frontier(b=(Mark(P, 9, 0, -70), Mark(Q, 4)), c=Mark(Q, 0, 4)))
    assert ready == ReadyCut(frontier(a=Mark(P, 5), b=Mark(P, 6, 6)), 0, 1, 2, {("b", P): 6})
    assert ready.shows(1, "a", P, 5)
    assert ready.shows(2, "b", P, 6)
    assert not ready.shows(2, "b", P, 7)
    assert not ready.shows(2, "b", Q, 4)
    assert not ready.shows(3, "b", P, 6)
    assert two.unresolved == frontier(b=(Mark(P, 9, 0, -70), Mark(Q, 4)), c=Mark(Q, 0, 4))
    assert (two.consumed, two.upto, two.since) == (1, 2, 102.0)

    three, ready = at(two, 3, frontier(c=Mark(Q, 4)))
    assert ready is not None
    assert (ready.after, ready.upto, ready.ahead, ready.skip) == (1, 3, {}, {("b", P): 6})
    assert not ready.shows(1, "a", P, 5)
    assert not ready.shows(2, "b", P, 6)
    assert ready.shows(2, "b", P, 7)
    assert ready.shows(3, "c", Q, 4)
    assert (three.unresolved, three.ahead) == (None, {})


def test_when_all_is_resolved_what_came_meanwhile_is_ready_as_well() -> None:
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 5), b=Mark(P, 0, 6)))
    two, ready = at(one, 2, frontier(a=Mark(P, 8)))
    assert (two.progressed, ready) == (frontier(a=Mark(P, 8)), None)
    three, ready = at(two, 3, frontier(b=Mark(P, 9)))
    assert ready == ReadyCut(frontier(a=Mark(P, 8), b=Mark(P, 9, 6)), 0, 3, 3)
    assert three == Cuts(consumed=3, upto=3, epoch=3, since=103.0)


def test_a_transaction_in_front_of_the_hinted_one_is_waited_for() -> None:
    """P wrote 3 into b and c, then 6 into a and b: when b is shown up to 6, c must be shown up to 3."""
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 6), b=Mark(P, 0, 6)))
    two, ready = at(one, 2, frontier(b=Mark(P, 6), c=Mark(P, 0, 3)))
    assert ready is None
    assert [hint[:3] for hint in stalled(two, 200.0, 0.0)] == [("c", P, 3)]
    _, ready = at(two, 3, frontier(c=(Mark(P, 7), Mark(Q, 1)), d=Mark(Q, 0, 1)))
    assert ready is not None and ready.ahead == {("b", P): 6, ("c", P): 6}


def test_a_transaction_behind_the_hinted_one_is_not_waited_for() -> None:
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 5), b=Mark(P, 0, 5)))
    _, ready = at(one, 2, frontier(a=Mark(P, 9), b=Mark(P, 5, 9)))
    assert ready is not None and ready.ahead == {("a", P): 5, ("b", P): 5}


def test_what_arrives_beyond_the_limit_brings_no_hints() -> None:
    """Journal b is not read for a while; P goes on in a, together with c, where nobody reads either."""
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 5), b=Mark(P, 0, 5)))
    two, _ = at(one, 2, frontier(a=Mark(P, 9), c=Mark(P, 0, 9)), reached={("c", P): 3})
    assert two.unresolved == one.unresolved
    _, ready = at(two, 3, frontier(b=Mark(P, 5)))
    assert ready is not None and ready.ahead == {("a", P): 5, ("b", P): 5, ("c", P): 3}


def test_a_report_that_comes_again_does_no_harm() -> None:
    first, second = frontier(a=Mark(P, 5), b=Mark(P, 0, 6)), frontier(b=Mark(P, 6, 0))
    one, _ = at(Cuts(), 1, first)
    again, ready = at(one, 1, first)
    assert ready is None
    two, ready = at(again, 2, second)
    assert ready is not None and ready.upto == 2
    three, ready = at(two, 3, first, reached={("b", P): 6})
    assert ready is not None and not any(ready.shows(n, "ab"[n - 1], P, n + 4) for n in (1, 2))
    assert three.unresolved is None


def test_hints_at_journals_that_are_not_read_do_not_count() -> None:
    progress = frontier(a=Mark(P, 5, 9, -50), x=(Mark(P, 0, 6), Mark(Q, 2, 3, -7)))

    def told(counts: Callable[[str], bool]) -> ReadyCut | None:
        return advance(Cuts(), progress, 1, 0.0, reached=lambda *_: 0, counts=counts)[1]

    assert told(lambda name: name == "a") is None
    ready = told(lambda name: False)
    assert ready is not None
    assert ready.frontier == frontier(a=Mark(P, 5, 0, -50), x=Mark(Q, 2, 0, -7))


def test_an_epoch_does_not_come_after_a_later_one() -> None:
    with pytest.raises(ValueError, match="epoch 0 comes"):
        at(Cuts(), 0, Frontier())
    cuts, _ = at(Cuts(), 5, Frontier())
    with pytest.raises(ValueError, match="epoch 4 comes after epoch 5"):
        at(cuts, 4, Frontier())


def test_hints_that_are_not_reached_are_named_in_time() -> None:
    assert stalled(Cuts(), 1e9, 0.0) == []
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 5), b=(Mark(P, 0, 6), Mark(Q, 0, 7)), c=Mark(P, 1, 8)))
    two, _ = at(one, 2, frontier(b=Mark(P, 6), d=Mark(Q, 0, 9)))
    assert stalled(two, 110.9, 10.0) == []
    assert stalled(two, 111.0, 10.0) == [("b", Q, 7, 10.0), ("c", P, 8, 10.0)]
    assert stalled(two, 50.0, 10.0) == []


def joint_progress(number: int) -> Frontier:
    """P in journal a, and Q in b, where a is read one transaction ahead."""
    acks = tuple(Acks("ab"[who - P], who, number, number) for who in (P, Q))
    marks = [("a", Mark(P, number)), ("b", Mark(Q, number - 1, number))]
    return Frontier.of(marks, joint=[acks])


def test_transactions_of_several_producers_without_an_end_become_ready() -> None:
    cuts, count = Cuts(), 0
    for epoch in range(1, 501):
        cuts, ready = at(cuts, epoch, joint_progress(epoch))
        count += ready is not None
        assert not stalled(cuts, 100.0 + epoch, 2.0)
        assert len(cuts.progressed.joint) <= 1
    assert count == 499


def test_a_cut_that_lacks_an_ack_is_named_whatever_becomes_ready_elsewhere() -> None:
    """The ack of R does not come; all others do, and bring hints that are reached in the next epoch."""
    lacks = Frontier.of(
        [("a", Mark(P, 1)), ("c", Mark(3, 0, 1))], joint=[(Acks("a", P, 1, 1), Acks("c", 3, 1, 1))]
    )
    cuts, _ = at(Cuts(), 1, lacks)
    for epoch in range(2, 100):
        cuts, ready = at(cuts, epoch, joint_progress(epoch))
        assert ready is None
    assert stalled(cuts, 161.0, 60.0) == [("c", 3, 1, 60.0)]


def test_another_producer_of_what_is_shown_ahead_is_waited_for() -> None:
    """P wrote 3 together with Q, then 6 alone into a and b: when b is shown up to 6, c must be up to 4."""
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 6), b=Mark(P, 0, 6)))
    acks = (Acks("b", P, 3, 3), Acks("c", Q, 4, 4))
    two, ready = at(one, 2, Frontier.of([("b", Mark(P, 6)), ("c", Mark(Q, 0, 4))], joint=[acks]))
    assert ready is None
    assert [hint[:3] for hint in stalled(two, 200.0, 0.0)] == [("c", Q, 4)]
    _, ready = at(two, 3, frontier(c=(Mark(Q, 9), Mark(3, 9)), d=Mark(3, 0, 9)))
    assert ready is not None and ready.ahead == {("b", P): 6, ("c", Q): 4}


def test_another_producer_of_what_is_not_shown_is_not_waited_for() -> None:
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 6), b=Mark(P, 0, 6)))
    acks = (Acks("b", P, 8, 8), Acks("c", Q, 4, 4))
    two, ready = at(one, 2, Frontier.of([("b", Mark(P, 8)), ("c", Mark(Q, 0, 4))], joint=[acks]))
    assert ready is not None and ready.ahead == {("b", P): 6}
    assert two.unresolved == frontier(b=Mark(P, 8), c=Mark(Q, 0, 4))


# as JSON


def waiting() -> Cuts:
    one, _ = at(Cuts(), 1, frontier(a=Mark(P, 5), b=Mark(P, 0, 6)))
    two, _ = at(one, 2, frontier(b=Mark(P, 9, 0, -70), c=Mark(Q, 0, 4)))
    return at(two, 3, frontier(a=Mark(P, 10)))[0]


def test_cuts_survive_its_form() -> None:
    for cuts in (Cuts(), waiting(), replace(waiting(), since=0.1 + 0.2)):
        assert Cuts.from_json(json.loads(json.dumps(cuts.to_json()))) == cuts
    assert waiting().to_json() == {
        "version": 1,
        "progressed": {"version": 1, "journals": [["a", [[1, 10, 0, 0]]]]},
        "unresolved": {"version": 1, "journals": [["b", [[1, 9, 0, -70]]], ["c", [[2, 0, 4, 0]]]]},
        "epochs": [1, 2, 3],
        "since": 102.0,
        "ahead": [["b", 1, 6]],
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "a sequence of cuts has version 2"),
        ({"more": 1}, "must not have them: 'more'"),
        ({"epochs": [1, 2]}, "epochs has 2 elements, not 3"),
        ({"epochs": [1, 3, 2]}, "the epochs are [1, 3, 2], and not in order"),
        ({"epochs": [1, 2, -3]}, "an epoch is -3"),
        ({"epochs": [1, 2, 2.5]}, "an epoch is 2.5"),
        ({"since": None}, "since when a cut waits is None"),
        ({"since": float("inf")}, "waits is inf"),
        ({"since": float("nan")}, "waits is nan"),
        ({"since": True}, "waits is True"),
        ({"since": 10**400}, "waits is an integer of 1329 bits"),
        ({"progressed": None}, "a frontier is None"),
        ({"unresolved": {"version": 7, "journals": []}}, "a frontier has version 7"),
        ({"ahead": {}}, "what was shown ahead is of type dict"),
        ({"ahead": [["b", 1]]}, "has 2 elements, not 3"),
        ({"ahead": [["b", -1, 6]]}, "a producer is -1"),
        ({"ahead": [["b", 1, 1 << 64]]}, "a clock is 18446744073709551616"),
        ({"ahead": [["b", 1, 6], ["b", 1, 7]]}, "journal 'b' is shown ahead twice for producer 000000000001"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadState) as caught:
        Cuts.from_json(waiting().to_json() | change)
    assert why in str(caught.value)
