"""Gathers the fragments in `news/` into a section of CHANGELOG.md.

    python -m tools.news                        show the section
    python -m tools.news --release 0.2.0        write it, and remove the fragments

A fragment is `news/<topic>.<kind>.md`: one change, in the words of a user.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed")
WIDTH = 110
MARK = "<!-- releases -->"
"""The line of CHANGELOG.md below which the newest release begins."""
_NAME = re.compile(r"(?P<topic>[a-z0-9]+(?:-[a-z0-9]+)*)\.(?P<kind>[a-z]+)\.md")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class BadNews(Exception):
    """A fragment, a version or the changelog is not as it must be."""


@dataclass(frozen=True)
class Fragment:
    """One change that users notice."""

    topic: str
    kind: str
    text: str


def fragment(name: str, text: str) -> Fragment:
    """Read one fragment from the name and the content of its file."""
    found = _NAME.fullmatch(name)
    if found is None or found["kind"] not in KINDS:
        raise BadNews(f"news/{name}: call it <topic>.<kind>.md, with one of {', '.join(KINDS)}")
    words = " ".join(text.split())
    if not words:
        raise BadNews(f"news/{name} is empty")
    if words.startswith(("-", "*", "#")):
        raise BadNews(f"news/{name}: write plain sentences, without a bullet or heading")
    return Fragment(found["topic"], found["kind"], words)


def paths(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "README.md")


def gather(folder: Path) -> list[Fragment]:
    """All fragments of a folder."""
    return [fragment(path.name, path.read_text(encoding="utf-8")) for path in paths(folder)]


def section(title: str, fragments: Iterable[Fragment]) -> str:
    """The section of a release: a list for each kind, in the order of topics."""
    known = sorted(fragments, key=lambda f: f.topic)
    blocks = [f"## {title}"]
    for kind in KINDS:
        if texts := [f.text for f in known if f.kind == kind]:
            blocks.append(f"### {kind.capitalize()}\n" + "\n".join(map(_item, texts)))
    return "\n\n".join(blocks) + "\n"


def _item(text: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def released(changelog: str, section: str) -> str:
    """The changelog with a new section above all others."""
    before, mark, after = changelog.partition(MARK)
    if not mark:
        raise BadNews(f"CHANGELOG.md has no line {MARK}")
    title = section.partition("\n")[0].partition(" (")[0]
    if re.search(rf"^{re.escape(title)}(?: |$)", after, re.MULTILINE):
        raise BadNews(f"CHANGELOG.md already has {title.removeprefix('## ')}")
    older = after.strip("\n")
    return "\n".join([f"{before}{mark}", "", section, *([older, ""] if older else [])])


def release(root: Path, version: str, day: datetime.date) -> str:
    """Write the section of a release into CHANGELOG.md, and remove its fragments."""
    if _VERSION.fullmatch(version) is None:
        raise BadNews(f"{version} is no version: it has three numbers, like 0.2.0")
    fragments = gather(root / "news")
    if not fragments:
        raise BadNews("there are no fragments in news/")
    text = section(f"{version} ({day.isoformat()})", fragments)
    changelog = root / "CHANGELOG.md"
    changelog.write_text(released(changelog.read_text(encoding="utf-8"), text), encoding="utf-8")
    for path in paths(root / "news"):
        path.unlink()
    return text


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.news", description="Gather news/ for CHANGELOG.md."
    )
    parser.add_argument("--release", metavar="VERSION", help="write the section and remove the fragments")
    options = parser.parse_args(arguments)
    try:
        if options.release:
            today = datetime.datetime.now(datetime.UTC).date()
            sys.stdout.write(release(root, options.release, today))
        else:
            sys.stdout.write(section("Unreleased", gather(root / "news")))
    except BadNews as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
