"""The documents of the repository, and what is in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

_FENCED = re.compile(r"^(```+|~~~+)(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


def named(path: Path) -> str:
    """A page as tests call it."""
    return str(path.relative_to(ROOT))


def code(text: str, language: str) -> list[str]:
    """The code blocks in a language."""
    return [body for _, found, body in _FENCED.findall(text) if found == language]


def links(text: str) -> list[str]:
    """Where the links and pictures of a page lead. Code is no link."""
    return _LINK.findall(_SPAN.sub("`code`", _FENCED.sub("", text)))


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    found: set[str] = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        name = slug(heading)
        number = 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


def slug(heading: str) -> str:
    """A heading as the end of a URL: small letters, no punctuation, hyphens for spaces."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    kept = re.sub(r"[^\w\- ]", "", plain.replace("`", "").lower())
    return kept.replace(" ", "-")


GENERATED = {name: ROOT / "docs" / "reference" / f"{name}.md" for name in ("settings", "api")}
STALE = "the page is out of date: run `python -m tests.docs`"
