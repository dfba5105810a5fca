from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.journals.format.documents import encode_document, parse, stamp_of
from penstock.journals.format.uuids import Flag, Stamp

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
