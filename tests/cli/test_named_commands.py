"""Whatever command a message or a document tells people to type exists, with the options it shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli.app import penstock as program

ROOT = Path(__file__).parents[2]
_SHOWN = re.compile(r"(?:`|\$ |^    |\bor |^|next: )penstock ([a-z][a-z0-9-]*(?: [^`\n]*)?)", re.MULTILINE)

_NO_COMMANDS = {"worker joins"}
"""Words that only look like one."""


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield str(path.relative_to(ROOT)), path.read_text()


def _shown() -> Iterator[tuple[str, str]]:
    for place, text in _texts():
        for found in _SHOWN.finditer(text):
            if found[1] not in _NO_COMMANDS:
                yield place, found[1]


def _problem(shown: str) -> str | None:
    words = re.split(r"#|, ", shown)[0].replace("…", " ").split()
    command: click.Command | None = program
    path: list[str] = []
    while (
        isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0].rstrip(",.;:)"))
    ):
        name = words.pop(0).rstrip(",.;:)")
        path.append(name)
        command = command.get_command(click.Context(command), name)
        if command is None:
            return f"there is no command {' '.join(path)}"
    if command is None or isinstance(command, click.Group):
        return None
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for word in words:
        option = re.match(r"--[a-z][a-z-]*", word)
        if option and option[0] not in known | {"--help"}:
            return f"penstock {' '.join(path)} has no option {option[0]}"
    return None


def test_every_command_that_people_are_told_to_type_exists() -> None:
    shown = list(_shown())
    assert len(shown) > 100
    problems = [
        f"{place}: {problem} (in `penstock {text}`)" for place, text in shown if (problem := _problem(text))
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "text", ["runs show x", "stream rescale words 4", "serve --role worker", "users add NAME"]
)
def test_a_command_that_exists_is_no_problem(text: str) -> None:
    assert _problem(text) is None


@pytest.mark.parametrize("text", ["import data.csv", "runs shown x", "serve --rolle worker"])
def test_a_command_that_does_not_is_one(text: str) -> None:
    assert _problem(text) is not None
