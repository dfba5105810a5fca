from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.journals.documents import (
    Hint,
    decode_hints,
    encode_ack,
    encode_document,
    encode_hints,
    parse,
    stamp_of,
)
from penstock.journals.uuids import Flag, Stamp

STAMP = Stamp(0x0123456789AB, 0xFEDCBA9876543217, Flag.CONTINUE)
UUID = "87654321-cba9-1fed-9c01-0123456789ab"


def test_a_document_is_one_line_with_its_meta_first() -> None:
    line = encode_document(STAMP, {"id": 7, "text": "größe\n ", "_meta": {"uuid": "old", "op": "c"}})
    assert line == (f'{{"_meta":{{"uuid":"{UUID}","op":"c"}},"id":7,"text":"größe\\n "}}\n').encode()
    assert encode_document(STAMP, {}) == f'{{"_meta":{{"uuid":"{UUID}"}}}}\n'.encode()
    assert stamp_of(parse(line)) == STAMP


@pytest.mark.parametrize(
    "document",
    [[1], "x", None, {"_meta": 7}, {"x": float("nan")}, {"x": object()}, {"x": "\ud800"}, {"x": b"y"}],
)
def test_what_cannot_be_a_document(document: Any) -> None:
    with pytest.raises(BadInput):
        encode_document(STAMP, document)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=5),
        st.none() | st.integers() | st.text() | st.lists(st.text(max_size=3), max_size=3),
        max_size=4,
    )
)
def test_documents_come_back(document: dict[str, Any]) -> None:
    document.pop("_meta", None)
    line = encode_document(STAMP, document)
    assert line.count(b"\n") == 1
    assert parse(line) == {"_meta": {"uuid": UUID}, **document}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"a":NaN}', "NaN is no JSON number"),
        (b'{"a":-Infinity}', "no JSON number"),
        (b'{"a":"\xff"}', "not UTF-8 at its byte 6"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a":' + b"[" * 200_000, "nested too deeply"),
        (b'{"a":1}{', "not JSON"),
        (b"\0" * 20, "not JSON"),
    ],
)
def test_lines_that_are_no_documents(line: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(line)


@pytest.mark.parametrize(
    "document", [{}, {"_meta": {}}, {"_meta": 1}, {"_meta": {"uuid": 7}}, {"_meta": None}]
)
def test_documents_without_a_uuid(document: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        stamp_of(document)


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
    assert decode_hints(encoded) == HINTS


def test_an_ack() -> None:
    line = encode_ack(Stamp(0x0123456789AB, 0xFEDCBA9876543217, Flag.ACK), HINTS[:1])
    document = json.loads(line)
    assert list(document) == ["_meta", "hints"]
    assert document["_meta"] == {"uuid": UUID.replace("9c01", "9c02"), "ack": True}
    assert decode_hints(document["hints"]) == HINTS[:1]


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
    assert decode_hints(json.loads(json.dumps(encode_hints(hints)))) == sorted(set(hints))


def test_clocks_as_texts() -> None:
    for text, clock in (("255", 255), ("0xff", 255), ("ff", 255), ("1dc8f5a0c0de0010", 0x1DC8F5A0C0DE0010)):
        value = [{"j": [0, "a"], "p": [{"p": "0123456789ab", "c": text}]}]
        assert decode_hints(value) == [Hint("a", 0x0123456789AB, clock)]


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
        decode_hints(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("jpcx"), inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(JSON)
def test_hostile_hints_are_refused_or_read(value: Any) -> None:
    with suppress(BadInput):
        decode_hints(value)
