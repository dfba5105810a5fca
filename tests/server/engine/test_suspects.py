"""Which statements are taken to have ended Spark."""

from __future__ import annotations

from penstock.errors import SqlError
from penstock.server.engine.running.suspects import HOLD, Suspects

BAD, DASHBOARD, OTHER = ("bob", "bad"), ("ann", "dashboard"), ("ann", "other")


def refused(suspects: Suspects, key: tuple[str, str], now: float) -> str | None:
    try:
        suspects.check(key, now)
    except SqlError as error:
        return error.sqlstate
    return None


def begins(
    suspects: Suspects,
    key: tuple[str, str],
    query: str,
    now: float,
    *,
    since: float | None = None,
    others: int = 0,
) -> bool:
    return suspects.begin(key, query, now, since=now if since is None else since, others=others)


def test_the_one_that_was_there_twice_the_second_time_alone_is_refused_for_a_while() -> None:
    suspects = Suspects(expiry=100)
    assert not suspects
    suspects.ended([BAD, DASHBOARD], 0)
    assert suspects and refused(suspects, BAD, 1) is refused(suspects, DASHBOARD, 1) is None
    assert begins(suspects, BAD, "q1", 1)
    assert not begins(suspects, DASHBOARD, "q2", 1)
    suspects.ended([BAD], 2)
    assert refused(suspects, BAD, 3) == "53200"
    assert refused(suspects, DASHBOARD, 3) is refused(suspects, OTHER, 3) is None
    assert refused(suspects, ("eve", "bad"), 3) is None
    assert refused(suspects, BAD, 103) is None


def test_an_end_beside_others_tells_nothing_about_the_one_on_trial() -> None:
    suspects = Suspects()
    suspects.ended([("eve", "a0"), DASHBOARD], 0)
    for number in range(1, 9):
        if refused(suspects, ("eve", f"a{number}"), number) is not None:
            break
        assert begins(suspects, DASHBOARD, f"d{number}", number, others=0)
        suspects.ended([DASHBOARD, ("eve", f"a{number}")], number)
        assert refused(suspects, DASHBOARD, number) in (None, "53400")
    # Nobody can tell the users apart: both are stopped in the end, for minutes. The statement is not.
    assert number == 6
    assert refused(suspects, DASHBOARD, 6 + 600) is None


def test_a_trial_and_the_others_make_room_for_each_other_for_a_while() -> None:
    suspects = Suspects()
    suspects.ended([BAD, DASHBOARD], 0)
    # It begins when the others have ended, or have had their time.
    assert not begins(suspects, BAD, "q1", 1, others=2)
    assert begins(suspects, BAD, "q1", 2, others=0)
    suspects.end(BAD, "q1", well=False)
    assert not begins(suspects, BAD, "q2", 10, others=2)
    assert not begins(suspects, BAD, "q2", 10 + HOLD - 1, others=2)
    assert begins(suspects, BAD, "q2", 10 + HOLD, others=2)
    # Whoever is not suspected waits so long, and no longer.
    assert not begins(suspects, OTHER, "q3", 20, since=20)
    assert begins(suspects, OTHER, "q3", 20 + HOLD, since=20)
    # The more ends it has seen, the longer is it left alone.
    suspects.ended([BAD, OTHER], 30)
    assert begins(suspects, BAD, "q4", 31)
    assert not begins(suspects, ("ann", "third"), "q5", 31 + HOLD, since=31)
    assert begins(suspects, ("ann", "third"), "q5", 31 + 2 * HOLD, since=31)
    # One that gives up before it began makes room.
    suspects.end(BAD, "q4", well=False)
    assert begins(suspects, ("ann", "third"), "q5", 32, since=32)


def test_one_that_ends_well_is_acquitted() -> None:
    suspects = Suspects()
    suspects.ended([BAD, DASHBOARD], 0)
    assert begins(suspects, DASHBOARD, "q1", 1)
    suspects.end(DASHBOARD, "q1", well=True)
    assert begins(suspects, BAD, "q2", 1)
    suspects.ended([BAD], 2)
    assert refused(suspects, BAD, 3) == "53200" and refused(suspects, DASHBOARD, 3) is None
    # One that is cancelled, or fails, has not shown that it can end well, and makes room for the next.
    suspects.ended([DASHBOARD, OTHER], 3)
    assert begins(suspects, DASHBOARD, "q4", 4)
    suspects.end(DASHBOARD, "q4", well=False)
    assert begins(suspects, OTHER, "q5", 6) and not begins(suspects, DASHBOARD, "q6", 6)


def test_a_user_with_a_new_statement_each_time_is_stopped() -> None:
    suspects = Suspects(pause=10)
    for number in range(3):
        assert refused(suspects, ("bob", "new"), number) is None
        suspects.ended([("bob", f"text {number}"), (f"user {number}", "x")], number)
    assert refused(suspects, ("bob", "new"), 4) == "53400"
    assert refused(suspects, ("ann", "new"), 4) is None
    assert refused(suspects, ("bob", "new"), 13) is None


def test_ends_without_a_user_between_spare_nobody() -> None:
    suspects = Suspects()
    for number, user in enumerate(("bob", "x", "bob", "y", "bob")):
        assert refused(suspects, ("bob", "new"), number) is None
        suspects.ended([(user, f"text {number}"), (f"user {number}", "z")], number)
    assert refused(suspects, ("bob", "new"), 5) == "53400"
    assert refused(suspects, ("x", "new"), 5) is None


def test_a_user_whose_statements_end_well_shields_nobody_and_is_not_stopped() -> None:
    suspects = Suspects()
    suspects.ended([("bob", "b0"), DASHBOARD], 0)
    for number in range(1, 3):
        # The dashboard is asked for again and again, and runs at every end.
        suspects.end(DASHBOARD, f"q{number}", well=True)
        assert refused(suspects, ("bob", "new"), number) is None
        suspects.ended([("bob", f"b{number}"), DASHBOARD], number)
    assert refused(suspects, ("bob", "new"), 4) == "53400"
    assert refused(suspects, DASHBOARD, 4) is refused(suspects, OTHER, 4) is None


def test_of_two_who_were_always_there_none_is_stopped_soon_and_both_are_in_the_end() -> None:
    suspects = Suspects()
    for number in range(6):
        assert refused(suspects, ("bob", "new"), number) is refused(suspects, ("ann", "new"), number) is None
        suspects.ended([("bob", f"b{number}"), ("ann", f"a{number}")], number)
    assert refused(suspects, ("bob", "new"), 6) == refused(suspects, ("ann", "new"), 6) == "53400"


def test_what_is_remembered_is_bounded() -> None:
    suspects = Suspects(kept=2)
    for name in ("bob", "ann", "eve"):
        suspects.ended([(name, "x")], 0)
    # The oldest is forgotten: for it, this is the first time.
    suspects.ended([("bob", "x")], 1)
    assert refused(suspects, ("bob", "x"), 2) is None
    suspects.ended([("eve", "x")], 3)
    assert refused(suspects, ("eve", "x"), 4) == "53200"
