from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.control.catalog import Drop, Head, StatementKind
from penstock.control.catalog.codec import HEAD, decode, encode
from penstock.errors import CatalogError, CorruptFile, UsageError
from penstock.store.backends import MAX_DOCUMENT
from tests.control.catalog.support import after, create

FULL = after(
    create("a", kind=StatementKind.TABLE), create("shop.b", "a", sql="SELECT 'ü'"), create("c"), Drop("c")
)


def test_what_is_encoded_is_decoded() -> None:
    for head in (Head(), FULL):
        assert decode(encode(head)) == head


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(encode(FULL)), **values}).encode()


ROW = ["n", "view", "0" * 64, [], ""]
GARBAGE = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b"[" * 100_000,
    encode(FULL)[:-9],
    changed(format="1"),
    changed(format=0),
    changed(format=True),
    changed(version=-1),
    changed(version=None),
    changed(version=1.5),
    changed(statements=None),
    changed(statements=[ROW[:-1]]),
    changed(statements=[["a/b", *ROW[1:]]]),
    changed(statements=[["n", "index", *ROW[2:]]]),
    changed(statements=[["n", "view", "xyz", [], ""]]),
    changed(statements=[["n", "view", 7, [], ""]]),
    changed(statements=[["n", "view", "0" * 64, [7], ""]]),
    changed(statements=[["n", "view", "0" * 64, ["later"], ""], ["later", *ROW[1:]]]),
    changed(statements=[ROW, ROW]),
    changed(history=[[1, "what"]]),
    changed(history=[["1", "", "", "", ""]]),
    changed(history=7),
]


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: str(data[:40]))
def test_garbage_is_told_with_a_way_out(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="catalog/head") as raised:
        decode(data)
    assert "catalog/ddl/" in (raised.value.left or "")
    assert "restore the store" in (raised.value.hint or "")


def test_a_newer_format_is_refused_whatever_it_holds() -> None:
    with pytest.raises(CatalogError, match=f"format {HEAD.number + 1}") as raised:
        decode(json.dumps({"format": HEAD.number + 1, "things": []}).encode())
    assert "upgrade Penstock" in (raised.value.hint or "")


def test_two_thousand_statements_of_two_kilobytes_are_a_small_head_and_many_more_are_refused() -> None:
    text = f"SELECT {'x' * 2000}"
    views = (create(f"warehouse.orders_{i:04}", "base", sql=f"{text}{i}") for i in range(1999))
    head = after(create("base"), *views)
    assert len(head.entries) == 2000
    assert len(encode(head)) < MAX_DOCUMENT * 0.8
    with pytest.raises(UsageError, match="no room for more") as raised:
        encode(Head(1, head.entries * 2))
    assert "4,000 statements" in raised.value.what
    assert "drop what is no longer used" in (raised.value.hint or "")
