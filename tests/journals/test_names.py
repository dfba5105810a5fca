from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.journals.format import names


def test_partition_fields() -> None:
    name = names.make("shop/orders", {"region": "eu", "customer": "A/B=ü%"}, 3)
    assert name == "shop/orders/customer=A%2FB%3D%C3%BC%25/region=eu/pivot=03"
    assert names.fields(name) == {"customer": "A/B=ü%", "region": "eu"}
    assert names.base(name) == "shop/orders"
    assert names.has_pivot(name) and not names.has_pivot("shop/orders")
    assert (names.fields("shop/orders"), names.base("shop/orders")) == ({}, "shop/orders")
    assert names.make("a", {}) == "a/pivot=00"
    assert names.make("a", {"b": "", "c": ".."}, 255) == "a/b=/c=../pivot=ff"


@settings(deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-o_][a-z0-9_-]{0,8}", fullmatch=True),
        st.text(st.characters(codec="utf-8"), max_size=4),
        max_size=4,
    )
)
def test_fields_come_back(fields: dict[str, str]) -> None:
    name = names.make("base", fields)
    assert names.fields(name) == fields
    assert names.base(name) == "base"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "a/./b",
        ".hidden",
        "a/.lock",
        "a\nb",
        "a\0",
        "a\x7f",
        "\ud800",
        "0" * 16 + "-" + "f" * 16 + "-x",
        "a/pivot=00/b",
        "x" * 256,
        "/".join(["x" * 200] * 6),
    ],
)
def test_what_no_journal_can_be_called(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a journal"):
        names.check(name)


@pytest.mark.parametrize("name", ["a", "a/b", "Größe", "a b", "a=b/c", "pivot", "x" * 255])
def test_what_a_journal_can_be_called(name: str) -> None:
    assert names.check(name) == name


@pytest.mark.parametrize(
    ("base", "fields", "pivot"),
    [
        ("a", {"pivot": "1"}, 0),
        ("a", {"": "1"}, 0),
        ("a", {"b=c": "1"}, 0),
        ("a=b", {}, 0),
        ("a", {}, -1),
        ("", {}, 0),
    ],
)
def test_parts_that_make_no_name(base: str, fields: dict[str, str], pivot: int) -> None:
    with pytest.raises(UsageError):
        names.make(base, fields, pivot)


def test_folders_below_a_pivot_belong_to_its_journal() -> None:
    assert names.of_folder("a/pivot=00/date=2026-01-01/hour=07") == "a/pivot=00"
    assert names.of_folder("a/date=2026-01-01") == "a/date=2026-01-01"
