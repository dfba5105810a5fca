from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.objects.names import folder_above, folder_of, key_of, version_name, version_of

AWKWARD = [
    "a",
    "A",
    "a/",
    "a//b",
    "/",
    "/a",
    ".",
    "..",
    "a/../b",
    "é",
    "e\N{COMBINING ACUTE ACCENT}",
    "𝄞",
    "v0000000000000001.json",
    "a/v0000000000000001.json",
    "a.doc",
    "a.doc/b",
    "=",
    "=2e",
    "a=",
    "a%2Fb",
    "a b#1?c&d",
    "a\\b",
    "~",
    "x" * 200,
    "x" * 201,
    "é" * 300 + "/" + "x" * 1000,
]

characters = st.one_of(st.sampled_from("/.=aA0-_v#%"), st.characters().filter(str.isprintable))
keys = st.text(characters, min_size=1)
long_keys = st.builds(lambda text, times: text * times, keys, st.integers(1, 300))


@given(st.one_of(keys, long_keys))
def test_every_key_comes_back(key: str) -> None:
    assert key_of(folder_of(key)) == key


@given(keys)
def test_names_are_such_that_every_system_keeps_them_apart(key: str) -> None:
    for name in folder_of(key).split("/"):
        assert name not in ("", ".", "..")
        assert name == name.lower()
        assert name.isascii() and len(name) < 255
        assert version_of(name) is None


@given(keys, keys)
def test_a_document_is_below_the_folder_of_its_prefix(prefix: str, rest: str) -> None:
    assert folder_of(prefix + rest).startswith(folder_above(prefix) + "/")


@given(keys, keys)
def test_no_folder_of_versions_lies_in_another(one: str, other: str) -> None:
    assert not folder_of(one).startswith(folder_of(other) + "/")


def test_awkward_keys_are_apart() -> None:
    folders = [folder_of(key) for key in AWKWARD]
    assert len(set(folders)) == len(AWKWARD)
    assert [key_of(folder) for folder in folders] == AWKWARD


@pytest.mark.parametrize(
    "folder",
    [
        "d",
        "s/a.doc",
        "d/a",
        "d/A.doc",
        "d/.doc",
        "d/a=zz.doc",
        "d/=ff.doc",
        "d/a=.doc",
        "d//a.doc",
        "d/a#1.doc",
    ],
)
def test_a_folder_of_somebody_else_has_no_key(folder: str) -> None:
    assert key_of(folder) is None


def test_versions_sort_as_their_names() -> None:
    names = [version_name(number) for number in (1, 9, 10, 123456789)]
    assert names == sorted(names)
    assert [version_of(name) for name in names] == [1, 9, 10, 123456789]
    assert version_of("v1.json") is None and version_of(names[0] + "#1") is None
