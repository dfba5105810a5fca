"""Patterns are read as Hadoop reads them, and no way of writing one leads out of the roots."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SqlError
from penstock.server.relations.files.globbing import at_most, exactly
from penstock.server.relations.files.paths import Roots, files, overlap


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.csv").write_text("x")
    for name in ("data/a.csv", "data/b.csv", "data/^.csv", ".git/config"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1")
    (root / "link").symlink_to(tmp_path / "outside")
    return root


@pytest.mark.parametrize(
    "path",
    [
        "{data/a.csv,[^a]git/config}",
        "[^a]git/config",
        "[!a]git/config",
        "[+-9]git/config",
        "?git/conf*",
        "{x,[^a]git}/config",
        "[^a]ink/secret.csv",
        "{data,[^a]ink}/[^b]*.csv",
        "[^a]in[^a]/*",
    ],
)
def test_what_is_hidden_or_outside_cannot_be_matched(root: Path, path: str) -> None:
    with pytest.raises(SqlError, match=r"serve\.paths") as caught:
        Roots([str(root)]).checked(path)
    assert caught.value.sqlstate == "42501"


@pytest.mark.parametrize(
    "path", ["[].]git/config", "[^]a]git/config", "[{a,.}]git/*", "{[a,.]git,x}/*", "[a/b]"]
)
def test_what_can_be_read_in_two_ways_is_refused(root: Path, path: str) -> None:
    with pytest.raises(SqlError, match="more than one way") as caught:
        Roots([str(root)]).checked(path)
    assert caught.value.sqlstate == "22023" and caught.value.hint


def test_tables_read_what_spark_reads(root: Path) -> None:
    def names(pattern: str) -> list[str]:
        return [Path(file).name for file in files(str(root / pattern))]

    assert names("data/[^a].csv") == names("data/[!a].csv") == ["^.csv", "b.csv"]
    assert names("data/[a^].csv") == ["^.csv", "a.csv"]
    assert names("{data/[^b^].csv,none}") == ["a.csv"]
    assert names("d[a-c]ta/?.csv") == ["^.csv", "a.csv", "b.csv"]
    assert names("*/*.csv") == [*names("data/*"), "secret.csv"]
    assert names("data/[z-a].csv") == names("data/[a.csv") == []


def test_a_private_place_is_found_behind_any_choice(root: Path) -> None:
    (root / "way").symlink_to(root / "data")
    for pattern in ("[^x]ata/*", "[^x]ay/*", "[]x]ata/a.csv", "[!]x]ata"):
        assert overlap(str(root / pattern), str(root / "data/a.csv")), pattern
    assert not overlap(str(root / "[^x]ata/*.csv"), str(root / "other/a.csv"))


def test_the_wide_reading_holds_the_exact_one() -> None:
    names = [".git", "a", "^", "]", "ab", "a]", "!", "[", "{", "a-b", "a.b"]
    for part in ("[^a]git", "[!.]", "[^]a]", "[]a]", "[a-]", "a]", "a]*", "*[^a]", "[a", "{a", "?", "[&&a]"):
        for name in names:
            assert not exactly(part).fullmatch(name) or at_most(part).fullmatch(name), (part, name)
