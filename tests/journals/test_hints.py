"""Hints in both forms: ours, and that of Flow."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.journals.format.documents import encode_ack
from penstock.journals.format.hints import Hint, decode_hints, encode_hints
from penstock.journals.format.uuids import Flag, Stamp, encode

UUID = "87654321-cba9-1fed-9c01-0123456789ab"

HINTS = [
    Hint("orders/region=eu/pivot=00", 0x0123456789AB, 5),
    Hint("orders/region=eu/pivot=00", 0x0323456789AB, (1 << 64) - 1),
    Hint("orders/region=us/pivot=00", 0x0123456789AB, 6),
    Hint("payments", 0x0123456789AB, 7),
]


def test_hints_are_delta_encoded() -> None:
    encoded = encode_hints(reversed(HINTS))
    assert encoded == [
        {
            "j": [0, "orders/region=eu/pivot=00"],
            "p": [{"p": "0123456789ab", "c": 5}, {"p": "0323456789ab", "c": 18446744073709551615}],
        },
        {"j": [14, "us/pivot=00"], "p": [{"p": "0123456789ab", "c": 6}]},
        {"j": [0, "payments"], "p": [{"p": "0123456789ab", "c": 7}]},
    ]
    assert decode_hints({"hints": encoded}, "own") == HINTS


def test_an_ack() -> None:
    line = encode_ack(Stamp(0x0123456789AB, 0xFEDCBA9876543217, Flag.ACK), HINTS[:1])
    document = json.loads(line)
    assert list(document) == ["_meta", "hints"]
    assert document["_meta"] == {"uuid": UUID.replace("9c01", "9c02"), "ack": True}
    assert decode_hints(document, "own") == HINTS[:1]


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Hint,
            st.from_regex(r"[abé]{1,3}(/[ab]{1,3}){0,2}", fullmatch=True),
            st.integers(0, (1 << 48) - 1).map(lambda n: n | 1 << 40),
            st.integers(0, (1 << 64) - 1),
        ),
        max_size=5,
    )
)
def test_hints_come_back(hints: list[Hint]) -> None:
    document = json.loads(json.dumps({"hints": encode_hints(hints)}))
    assert decode_hints(document, "own") == sorted(set(hints))


def one(clock: object) -> dict[str, Any]:
    return {"hints": [{"j": [0, "a"], "p": [{"p": "0123456789ab", "c": clock}]}]}


@pytest.mark.parametrize(
    ("text", "clock"),
    [
        ("0xff", 0xFF),
        ("0x10", 0x10),
        ("ff", 0xFF),
        ("1dc8f5a0c0de0010", 0x1DC8F5A0C0DE0010),
        ("1000000000000010", 0x1000000000000010),
        ("0000000000000016", 0x16),
        ("2203849182000000256", 2203849182000000256),
        ("18446744073709551615", (1 << 64) - 1),
    ],
)
def test_clocks_as_texts(text: str, clock: int) -> None:
    assert decode_hints(one(text), "own") == [Hint("a", 0x0123456789AB, clock)]


@pytest.mark.parametrize("text", ["255", "0", "123456789012345"])
def test_a_clock_that_could_be_decimal_or_hexadecimal_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="could be decimal or hexadecimal"):
        decode_hints(one(text), "own")


GOOD = {"p": "0123456789ab", "c": 1}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "not a list"),
        ({}, "not a list"),
        ([7], "hint 0 is not an object"),
        ([{"j": [0, "a"]}], "hint 0 is not an object with j and p"),
        ([{"p": [GOOD]}], "the journal of hint 0"),
        ([{"j": [1, "a"], "p": [GOOD]}], "the journal of hint 0"),
        ([{"j": [True, "a"], "p": [GOOD]}], "the journal of hint 0"),
        ([{"j": [0, "ab"], "p": []}, {"j": [-1, "a"], "p": []}], "the journal of hint 1"),
        ([{"j": [0, 7], "p": []}], "the journal of hint 0"),
        ([{"j": [0], "p": []}], "the journal of hint 0"),
        ([{"j": [0, "../a"], "p": []}], "names no journal"),
        ([{"j": [0, ""], "p": []}], "names no journal"),
        ([{"j": [0, "a"], "p": [7]}], "hint 0 has a producer"),
        ([{"j": [0, "a"], "p": [{"p": "0123456789ab"}]}], "hint 0 has a producer"),
        ([{"j": [0, "a"], "p": [{"p": "x", "c": 1}]}], "is not a producer"),
        ([{"j": [0, "a"], "p": [{"p": 1, "c": 1}]}], "is not a producer"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": -1}]}], "clock"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": 1 << 64}]}], "clock"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": 1.0}]}], "clock"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": True}]}], "clock"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": "xyz"}]}], "clock"),
        ([{"j": [0, "a"], "p": [GOOD | {"c": ""}]}], "clock"),
    ],
)
def test_malformed_hints(value: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        decode_hints({"hints": value}, "own")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("jpcx"), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(JSON, st.booleans())
def test_hostile_hints_are_refused_or_read(value: Any, flows: bool) -> None:
    with suppress(BadInput):
        decode_hints({"hints": value, "is_ack": flows}, "own")


# the form of Flow

ONE, TWO, THREE = 0x010000000001, 0x030000000002, 0x050000000003


def flows(own: Hint, hints: list[Hint]) -> dict[str, Any]:
    """An ack as Flow writes it, for the others of its transaction."""
    told: list[dict[str, Any]] = []
    before = own.journal.encode()
    for journal in sorted({hint.journal for hint in hints}):
        name = journal.encode()
        kept = next((n for n, (a, b) in enumerate(zip(before, name, strict=False)) if a != b), None)
        kept = min(len(before), len(name)) if kept is None else kept
        while kept < len(name) and name[kept] & 0xC0 == 0x80:
            kept -= 1
        producers = [
            {}
            if hint.producer == own.producer
            else {
                "p": base64.b64encode(hint.producer.to_bytes(6, "big")).decode(),
                "c": f"{hint.clock:016x}",
            }
            for hint in sorted(hints)
            if hint.journal == journal
        ]
        told.append({"j": [len(before) - kept, name[kept:].decode()], "p": producers})
        before = name
    uuid = encode(Stamp(own.producer, own.clock, Flag.ACK))
    return {"_meta": {"uuid": uuid}, "hints": told, "is_ack": True}


def test_an_ack_of_flow() -> None:
    own, other = 0x1122334455667788, 0x5040302010203040
    document = {
        "_meta": {"uuid": encode(Stamp(ONE, own, Flag.ACK))},
        "hints": [
            {"j": [0, ""], "p": [{"p": "AwAAAAAC", "c": "5040302010203040"}]},
            {"j": [10, "y/pivot=00"], "p": [{}, {"p": "BQAAAAAD", "c": "9181716151413121"}]},
            {"j": [22, "hammers/pivot=00"], "p": [{}]},
            {"j": [-1, "b"], "p": [{}]},
        ],
        "is_ack": True,
    }
    assert decode_hints(document, "acme/anvils/part=x/pivot=00") == [
        Hint("acme/anvils/part=x/pivot=00", TWO, other),
        Hint("acme/anvils/part=y/pivot=00", ONE, own),
        Hint("acme/anvils/part=y/pivot=00", THREE, 0x9181716151413121),
        Hint("acme/hammers/pivot=00", ONE, own),
        Hint("b", ONE, own),
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[abéè日]{1,3}(/[ab]{1,3}){0,2}", fullmatch=True),
            st.sampled_from([ONE, TWO, THREE]),
        ),
        min_size=1,
        max_size=6,
        unique=True,
    ),
    st.dictionaries(
        st.sampled_from([ONE, TWO, THREE]),
        st.integers(0, (1 << 64) - 1)
        | st.integers(0, 10**16 - 1).map(lambda n: int(f"{n:016d}", 16)),  # hexadecimal without letters
        min_size=3,
    ),
)
def test_hints_of_flow_come_back(acks: list[tuple[str, int]], clocks: dict[int, int]) -> None:
    all_ = [Hint(journal, who, clocks[who]) for journal, who in sorted(acks)]
    for own in all_:
        document = json.loads(json.dumps(flows(own, [each for each in all_ if each != own])))
        assert decode_hints(document, own.journal) == [each for each in all_ if each != own]


@pytest.mark.parametrize("meta", [{}, {"ack": True}])
def test_what_the_entries_are_says_which_form_it_is(meta: dict[str, Any]) -> None:
    document = flows(Hint("x/a", ONE, 9), [Hint("x/b", ONE, 9), Hint("x/b", TWO, 7)])
    document["_meta"] |= meta
    del document["is_ack"]
    assert decode_hints(document, "x/a") == [Hint("x/b", ONE, 9), Hint("x/b", TWO, 7)]


OURS = {"p": "0123456789ab", "c": 1}
FLOWS = {"p": "AwAAAAAC", "c": "5040302010203040"}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"hints": [{"j": [0, "a"], "p": [OURS, FLOWS]}]}, "both forms"),
        ({"hints": [{"j": [0, "a"], "p": [OURS]}, {"j": [0, "b"], "p": [{}]}]}, "both forms"),
        ({"is_ack": True, "hints": [{"j": [0, "a"], "p": [OURS]}]}, "both forms"),
        ({"is_ack": True, "hints": [{"j": [9, "a"], "p": [FLOWS]}]}, "lacks 9 bytes"),
        ({"is_ack": True, "hints": [{"j": [1, "a"], "p": [FLOWS]}]}, "cuts a character"),
        ({"is_ack": True, "hints": [{"j": [-1, ""], "p": [FLOWS]}]}, "names no journal"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [FLOWS | {"c": 5}]}]}, "16 hexadecimal digits"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [FLOWS | {"c": "0x5"}]}]}, "16 hexadecimal digits"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [FLOWS | {"p": "AwAAAA=="}]}]}, "6 bytes in base64"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [FLOWS | {"p": "AwA*AAAC"}]}]}, "6 bytes in base64"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [FLOWS | {"p": "AAAAAAAA"}]}]}, "multicast"),
        ({"is_ack": True, "hints": [{"j": [0, ""], "p": [{}]}]}, "UUID"),
    ],
)
def test_malformed_hints_of_flow(document: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        decode_hints(document, "oné")
