from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.cluster.rules.assignment import (
    HASH,
    moved,
    part_owners,
    seats_of,
    successor,
    vnode_owners,
)
from penstock.control.cluster.rules.model import Member, Seat, Snapshot
from penstock.errors import TerminalError

ANN, BEN, CYD = Seat("ann", "s1"), Seat("ben", "s2"), Seat("cyd", "s3")
PARTS = [f"2024-{month:02}" for month in range(1, 13)]


def snapshot(*seats: Seat, vnodes: int = 64, version: int = 1) -> Snapshot:
    return successor(Snapshot(version - 1), seats, vnodes, 7)


def test_only_those_who_serve_and_stay_get_a_seat() -> None:
    members = [
        Member("zoe", "s9", "1", capacity=3),
        Member("ann", "s1", "1"),
        Member("run-1", "s2", "1", serves=False),
        Member("ben", "s3", "1", leaving=True),
    ]
    assert seats_of(members) == (ANN, Seat("zoe", "s9", 3))
    assert seats_of([]) == ()


def test_the_successor() -> None:
    first = successor(Snapshot(), (ANN, BEN), 64, 3)
    assert first == Snapshot(1, 3, (ANN, BEN), vnode_owners((ANN, BEN), 64), HASH)
    assert successor(first, (ANN,), 64, 5) == Snapshot(2, 5, (ANN,), (0,) * 64, HASH)


def test_what_a_member_owns() -> None:
    found = snapshot(ANN, BEN)
    owned = found.vnodes("ann"), found.vnodes("ben")
    assert sorted(owned[0] + owned[1]) == list(range(64))
    assert all(found.seats[found.owners[number]] == ANN for number in owned[0])
    assert found.vnodes("nobody") == ()
    assert (found.seat("ben"), found.seat("nobody")) == (BEN, None)


# parts


def test_every_part_has_one_owner_that_is_there() -> None:
    owners = part_owners(snapshot(ANN, BEN, CYD), "orders", PARTS)
    assert list(owners) == PARTS
    assert set(owners.values()) <= {"ann", "ben", "cyd"}


def test_owners_of_parts_are_fixed_for_ever() -> None:
    owners = part_owners(snapshot(ANN, BEN, CYD), "orders", ["0", "1"])
    assert owners == {"0": "ann", "1": "cyd"}
    assert part_owners(snapshot(ANN, BEN, CYD), "größe", ["é"]) == {"é": "ben"}


def test_sources_are_spread_apart() -> None:
    found = snapshot(ANN, BEN, CYD)
    assert part_owners(found, "orders", PARTS) != part_owners(found, "trades", PARTS)


def test_a_new_member_only_takes_parts() -> None:
    before = part_owners(snapshot(ANN, BEN), "orders", PARTS)
    after = part_owners(snapshot(ANN, BEN, CYD), "orders", PARTS)
    assert {after[part] for part in PARTS if after[part] != before[part]} == {"cyd"}


def test_a_part_that_appears_later_moves_no_other() -> None:
    found = snapshot(ANN, BEN, CYD)
    some, all_of_them = part_owners(found, "orders", PARTS[:5]), part_owners(found, "orders", PARTS)
    assert all(all_of_them[part] == some[part] for part in some)


def test_nobody_owns_parts_before_the_first_assignment() -> None:
    assert part_owners(Snapshot(), "orders", PARTS) == {}


def test_an_assignment_of_an_unknown_hash_is_not_guessed() -> None:
    other = replace(snapshot(ANN, BEN), hash="md5-ring")
    with pytest.raises(TerminalError, match="'md5-ring'") as caught:
        part_owners(other, "orders", PARTS)
    assert "same version" in (caught.value.hint or "")


# what moved


def test_nothing_moves_when_members_come_back_under_new_sessions() -> None:
    before = snapshot(ANN, BEN)
    after = snapshot(replace(ANN, session="x"), replace(BEN, session="y"), version=2)
    assert moved(before, after) == ()


def test_what_moves_is_what_changed_hands() -> None:
    before, after = snapshot(ANN, CYD), snapshot(ANN, BEN, CYD, version=2)
    assert moved(before, after) == after.vnodes("ben")
    assert moved(after, before) == after.vnodes("ben")


def test_everything_moves_at_first_and_when_the_number_changes() -> None:
    assert moved(Snapshot(), snapshot(ANN)) == tuple(range(64))
    assert moved(snapshot(ANN), snapshot(ANN, vnodes=32, version=2)) == tuple(range(32))
