"""The fragments in `news/`, and how a release gathers them."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tools import news

DAY = datetime.date(2027, 1, 31)
CHANGELOG = f"# Changelog\n\n{news.MARK}\n\n## 0.1.0 (2026-12-01)\n\n### Added\n- All.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "README.md").write_text("How to.\n")
    (tmp_path / "news" / "sinks.fixed.md").write_text("A sink\nwrites once.\n")
    (tmp_path / "news" / "tables.added.md").write_text("Tables.\n")
    (tmp_path / "news" / "claims.added.md").write_text("Claims.\n")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_fragments_of_this_repository_can_be_released() -> None:
    assert news.section("Unreleased", news.gather(news.ROOT / "news")).startswith("## Unreleased\n")
    assert news.MARK in (news.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_kinds_and_topics_are_in_order(root: Path) -> None:
    expected = "## Unreleased\n\n### Added\n- Claims.\n- Tables.\n\n### Fixed\n- A sink writes once.\n"
    assert news.section("Unreleased", news.gather(root / "news")) == expected


def test_a_release_comes_first_and_uses_up_its_fragments(root: Path) -> None:
    text = news.release(root, "0.2.0", DAY)
    changelog = (root / "CHANGELOG.md").read_text()
    assert text.startswith("## 0.2.0 (2027-01-31)\n")
    assert changelog == CHANGELOG.replace(f"{news.MARK}\n", f"{news.MARK}\n\n{text}")
    assert [path.name for path in (root / "news").iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("version", "message"),
    [("0.2", "three numbers"), ("0.1.0", "already has 0.1.0")],
)
def test_a_release_that_cannot_be_changes_nothing(root: Path, version: str, message: str) -> None:
    with pytest.raises(news.BadNews, match=message):
        news.release(root, version, DAY)
    assert (root / "CHANGELOG.md").read_text() == CHANGELOG
    assert len(list((root / "news").iterdir())) == 4


def test_a_release_needs_news(root: Path) -> None:
    for path in news.paths(root / "news"):
        path.unlink()
    with pytest.raises(news.BadNews, match="no fragments"):
        news.release(root, "0.2.0", DAY)


@pytest.mark.parametrize(
    "name", ["sinks.md", "sinks.mended.md", "Sinks.fixed.md", "sinks.fixed.txt", ".sinks.swp"]
)
def test_a_fragment_has_a_topic_and_a_kind(name: str) -> None:
    with pytest.raises(news.BadNews, match=r"<topic>\.<kind>\.md"):
        news.fragment(name, "A sink writes once.")


@pytest.mark.parametrize("text", ["", " \n", "- A sink writes once.", "# Sinks"])
def test_a_fragment_is_plain_sentences(text: str) -> None:
    with pytest.raises(news.BadNews, match=r"news/sinks\.fixed\.md"):
        news.fragment("sinks.fixed.md", text)


def test_long_texts_are_wrapped(root: Path) -> None:
    (root / "news" / "claims.added.md").write_text("word " * 60)
    lines = news.section("Unreleased", news.gather(root / "news")).splitlines()
    assert max(map(len, lines)) <= news.WIDTH
    assert [line[:6] for line in lines[3:6]] == ["- word", "  word", "  word"]


def test_the_command_shows_and_releases(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert news.main([], root) == 0
    assert capsys.readouterr().out.startswith("## Unreleased")
    assert news.main(["--release", "0.1.0"], root) == 1
    assert "already has" in capsys.readouterr().err
    assert news.main(["--release", "0.2.0"], root) == 0
    assert "## 0.2.0 (" in (root / "CHANGELOG.md").read_text()
