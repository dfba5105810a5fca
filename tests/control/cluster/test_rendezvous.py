"""Who owns what: the same numbers in every process, Python version and year."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.control.cluster.rules.assignment import HASH, owner, score, vnode, vnode_owners
from penstock.control.cluster.rules.model import Seat

THREE = (Seat("ann", "s1"), Seat("ben", "s2"), Seat("cyd", "s3"))
WEIGHTED = (Seat("ann", "s1", 1), Seat("ben", "s2", 2), Seat("cyd", "s3", 3))
VNODES = 256

# These numbers are a promise: instances of different versions must agree. Another rule needs another HASH.
SCORES = {
    ("ann", 0, "vnode/0"): 12193716580382723276,
    ("ann", 1, "vnode/0"): 9445955618557186949,
    ("ben", 0, "part/orders/2024-01"): 12768316030218679763,
    ("", 0, ""): 3128312419990929346,
    ("größe", 63, "part/s/é"): 7710115172162302680,
}
OWNERS = {
    "vnode/0": ("ann", "ann"),
    "vnode/1": ("cyd", "cyd"),
    "part/orders/0": ("ann", "ben"),
    "part/orders/1": ("cyd", "cyd"),
    "part/größe/é": ("ben", "cyd"),
}
FIRST_32 = (0, 2, 2, 0, 1, 0, 2, 2, 2, 2, 2, 2, 2, 0, 1, 1, 2, 2, 2, 1, 1, 0, 2, 1, 1, 2, 2, 0, 0, 2, 2, 2)
WEIGHTED_32 = (0, 2, 2, 0, 1, 2, 2, 2, 2, 1, 2, 2, 1, 0, 2, 2, 2, 2, 2, 1, 1, 0, 2, 1, 1, 2, 2, 2, 0, 2, 2, 2)


def team(count: int, seed: int = 0) -> tuple[Seat, ...]:
    return tuple(Seat(f"node-{seed}-{i}", f"s{i}") for i in range(count))


def names(seats: Sequence[Seat], count: int = VNODES) -> list[str]:
    return [seats[index].member for index in vnode_owners(seats, count)]


def likely(trials: int, chance: float) -> range:
    """What five standard deviations around the mean allow."""
    mean, spread = trials * chance, 5 * math.sqrt(trials * chance * (1 - chance))
    return range(math.floor(mean - spread), math.ceil(mean + spread) + 1)


# test vectors


def test_the_hash_has_its_name() -> None:
    assert HASH == "blake2b-8-slots"


@pytest.mark.parametrize("given", SCORES)
def test_scores(given: tuple[str, int, str]) -> None:
    assert score(*given) == SCORES[given]


@pytest.mark.parametrize("item", OWNERS)
def test_owners(item: str) -> None:
    assert (owner(THREE, item), owner(WEIGHTED, item)) == OWNERS[item]


def test_virtual_nodes() -> None:
    assert vnode_owners(THREE, 32) == FIRST_32
    assert vnode_owners(WEIGHTED, 32) == WEIGHTED_32
    assert hashlib.blake2b(repr(vnode_owners(THREE, 256)).encode(), digest_size=8).hexdigest() == (
        "e8faa07ff648a876"
    )


def test_nobody_owns_anything_without_members() -> None:
    assert vnode_owners((), 256) == ()


def test_computed_independently() -> None:
    """From the description alone: another process in another language could do this."""
    for number in range(100):
        item = f"vnode/{number}"
        scores = {
            (
                int(
                    hashlib.blake2b(f"{slot}\0{seat.member}\0{item}".encode(), digest_size=8).hexdigest(), 16
                ),
                seat.member,
            )
            for seat in WEIGHTED
            for slot in range(seat.capacity)
        }
        assert vnode(number) == item
        assert owner(WEIGHTED, item) == max(scores)[1]


def test_the_same_in_a_process_with_another_hash_seed() -> None:
    program = (
        "import json; from penstock.control.cluster.rules.model import Seat;"
        "from penstock.control.cluster.rules import assignment as r;"
        "seats = [Seat('ann', 's1', 1), Seat('ben', 's2', 2), Seat('cyd', 's3', 3)];"
        "print(json.dumps(r.vnode_owners(seats, 256)))"
    )
    for seed in ("0", "4711"):
        out = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert tuple(json.loads(out.stdout)) == vnode_owners(WEIGHTED, 256)


# what moves


@pytest.mark.parametrize("seed", range(8))
def test_a_fourth_member_takes_a_quarter_and_nothing_else_moves(seed: int) -> None:
    four = team(4, seed)
    before, after = names(four[:3]), names(four)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {four[3].member}
    assert len(moved) in likely(VNODES, 1 / 4)


@pytest.mark.parametrize("gone", range(4))
def test_what_a_leaving_member_owned_moves_and_nothing_else(gone: int) -> None:
    four = team(4)
    before, after = names(four), names(four[:gone] + four[gone + 1 :])
    for old, new in zip(before, after, strict=True):
        assert (old == new) == (old != four[gone].member)
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old != new)
    assert len(heirs) == 3, "one member inherited everything"


def test_sessions_and_order_do_not_matter() -> None:
    back_again = tuple(replace(seat, session=f"new-{seat.session}") for seat in reversed(THREE))
    assert names(back_again) == names(THREE)


# shares


@pytest.mark.parametrize("count", [2, 3, 8])
def test_shares_are_even(count: int) -> None:
    shares = Counter(names(team(count)))
    assert len(shares) == count
    assert all(share in likely(VNODES, 1 / count) for share in shares.values())


@pytest.mark.parametrize("capacities", [(1, 2, 3), (1, 1, 8), (16, 32, 64)])
def test_capacity_weighs(capacities: tuple[int, ...]) -> None:
    seats = [replace(seat, capacity=c) for seat, c in zip(team(3), capacities, strict=True)]
    shares = Counter(names(seats, 600))
    for seat in seats:
        assert shares[seat.member] in likely(600, seat.capacity / sum(capacities))


def test_more_capacity_only_takes() -> None:
    before, after = names(THREE), names([*THREE[:2], replace(THREE[2], capacity=2)])
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"cyd"}
