"""Patterns of paths as Hadoop reads them, which is how Spark does.

They look like those of Python's `glob` and differ: ``[^a]`` is any character but ``a``, as ``[!a]`` is.
There are two ways to read one. `exactly` finds what Spark finds. `at_most` finds that and perhaps more: it
decides about rights, where to err must not open anything.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_GLOB = re.compile(r"[*?\[\]{}]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_CHOICE = r"\[(?![!^]?\])[^\[\]{}/]+\]"
"""A choice of characters that can be read in one way only."""
_PIECES = re.compile(rf"({_CHOICE}|[*?\[\]{{}}])")
_NOTHING = re.compile(r"(?!)")
_KNOWN = {"?": ".", "*": ".*"}

Reading = Callable[[str], re.Pattern[str]]
"""What a part of a pattern, between two slashes, matches."""


def is_pattern(path: str) -> bool:
    return _GLOB.search(path) is not None


def is_clear(pattern: str) -> bool:
    """Whether its choices of characters hold no brackets and braces, and no brace divides one."""
    return all("[" not in re.sub(_CHOICE, "", each) for each in (pattern, *braces(pattern)))


def braces(pattern: str) -> Iterator[str]:
    """The patterns that one with ``{a,b}`` stands for."""
    found = _BRACES.search(pattern)
    if not found:
        yield pattern
        return
    for choice in found[1].split(","):
        yield from braces(pattern[: found.start()] + choice + pattern[found.end() :])


def at_most(part: str) -> re.Pattern[str]:
    """A choice of characters counts as any one, and what follows on a stray bracket or brace as anything."""
    regex = ""
    for number, piece in enumerate(_PIECES.split(part)):
        if number % 2 and len(piece) == 1 and piece not in _KNOWN:
            return re.compile(f"{regex}.*", re.DOTALL)
        regex += _KNOWN.get(piece, ".") if number % 2 else re.escape(piece)
    return re.compile(regex, re.DOTALL)


def exactly(part: str) -> re.Pattern[str]:
    """As Hadoop does. What Hadoop refuses to read matches nothing."""
    pieces = _PIECES.split(part)
    if "[" in pieces[1::2]:
        return _NOTHING
    try:
        regex = (_exact(piece) if number % 2 else re.escape(piece) for number, piece in enumerate(pieces))
        return re.compile("".join(regex), re.DOTALL)
    except re.error:
        return _NOTHING


def found(pattern: str, reading: Reading, *, hidden: bool) -> Iterator[str]:
    """The paths of this machine that match now. Without braces.

    Unless ``hidden``, a part finds a name that begins with a dot only if it begins with one itself.
    """
    parts = Path(pattern).parts
    return _below("", parts, reading, hidden=hidden) if parts else iter(())


def _below(folder: str, parts: Sequence[str], reading: Reading, *, hidden: bool) -> Iterator[str]:
    fixed = list(itertools.takewhile(lambda part: not is_pattern(part), parts))
    folder = os.path.join(folder, *fixed)  # noqa: PTH118
    if len(fixed) == len(parts):
        if os.path.lexists(folder):
            yield folder
        return
    part, rest = parts[len(fixed)], parts[len(fixed) + 1 :]
    matching = reading(part)
    for name in _names(folder):
        if matching.fullmatch(name) and (hidden or part.startswith(".") or not name.startswith(".")):
            yield from _below(os.path.join(folder, name), rest, reading, hidden=hidden)  # noqa: PTH118


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")  # noqa: PTH208
    except OSError:
        # It is no folder, or gone, or closed to us, and to Spark as well.
        return []


def _exact(piece: str) -> str:
    if len(piece) == 1:
        return _KNOWN.get(piece, re.escape(piece))
    negated = piece[1] in "!^"
    body = "".join(c if c == "-" else re.escape(c) for c in piece[1 + negated : -1])
    return f"[{'^' if negated else ''}{body}]"
