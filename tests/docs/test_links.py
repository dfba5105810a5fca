"""Every relative link of a document leads somewhere, and so does its anchor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.support import PAGES, ROOT, anchors, links, named, slug


def problem(page: Path, link: str) -> str | None:
    """What is wrong with a link of a page; None if nothing is."""
    if "://" in link or link.startswith("mailto:"):
        return None
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    if not target.is_relative_to(ROOT):
        return f"{link} leads out of the repository"
    if not target.exists():
        return f"{link}: there is no {target.relative_to(ROOT)}"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
        return f"{link}: {target.relative_to(ROOT)} has no heading for #{anchor}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_link_is_broken(page: Path) -> None:
    found = links(page.read_text(encoding="utf-8"))
    problems = [told for link in found if (told := problem(page, link))]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=named)
def test_every_page_can_be_reached_from_the_index(page: Path) -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index.read_text(encoding="utf-8"))}
    assert page == index or page in listed


def test_links_in_code_do_not_count() -> None:
    text = "`[a](b.md)` [c](d.md#e)\n```\n[f](g.md)\n```\n[![h](i.png)](j.md)"
    assert links(text) == ["d.md#e", "i.png", "j.md"]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("When Spark ends", "when-spark-ends"),
        ("`stream.x` and [a](b)!", "streamx-and-a"),
        ("a_b / c", "a_b--c"),
    ],
)
def test_anchors_are_those_of_github(heading: str, expected: str) -> None:
    assert slug(heading) == expected


def test_a_heading_that_comes_again_gets_a_number() -> None:
    assert anchors("# A\n## B\n## B\n```\n# C\n```\n") == {"a", "b", "b-1"}


def test_what_is_wrong_is_told() -> None:
    page = ROOT / "README.md"
    assert problem(page, "https://penstock.example/x.md") is None
    assert "there is no docs/nothing.md" in str(problem(page, "docs/nothing.md"))
    assert "has no heading" in str(problem(page, "docs/tutorial.md#nothing"))
    assert "leads out" in str(problem(page, "../x.md"))
