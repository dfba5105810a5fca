"""What commands print. Text for people and JSON for programs come from the same objects.

Data goes to stdout; messages, progress and errors go to stderr.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from penstock.core.json_values import plain
from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts. Columns named in ``right`` hold numbers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Named values, one to a line."""

    pairs: Sequence[tuple[str, str]]


Block = str | Grid | Facts


class Shown(Protocol):
    """Something that a command answers with."""

    def to_json(self) -> Any:
        """The answer as JSON values."""

    def blocks(self) -> Iterable[Block]:
        """The same answer for people."""


class Output(ABC):
    """Where a command's answer, messages and errors go."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        # Looked up now: a test may have replaced them.
        self.out = out or sys.stdout
        self.err = err or sys.stderr

    @abstractmethod
    def show(self, value: Shown) -> None:
        """Print the answer."""

    @abstractmethod
    def fail(self, error: PenstockError) -> None:
        """Print an error."""

    def say(self, text: str) -> None:
        """Print a message that is not part of the answer."""
        print(text, file=self.err, flush=True)


class TextOutput(Output):
    """For people: tables are drawn with rich on a terminal, and as plain columns elsewhere."""

    def show(self, value: Shown) -> None:
        for block in value.blocks():
            if isinstance(block, str):
                print(block, file=self.out)
            elif isinstance(block, Facts):
                print(_facts(block), file=self.out)
            elif self.out.isatty():
                _draw(block, self.out)
            else:
                print(_columns(block), file=self.out)
        self.out.flush()

    def fail(self, error: PenstockError) -> None:
        self.say(f"error[{error.code}]: {error}")


class JsonOutput(Output):
    """For programs: one JSON value on stdout; an error as one JSON value on stderr."""

    def show(self, value: Shown) -> None:
        print(json.dumps(plain(value.to_json()), indent=2), file=self.out, flush=True)

    def fail(self, error: PenstockError) -> None:
        self.say(json.dumps({"error": error_json(error)}))


def error_json(error: PenstockError) -> dict[str, Any]:
    next_step = in_commands(error).hint
    return {"code": error.code, "what": error.what, "left": error.left, "next": next_step}


def amount(number: float) -> str:
    """A number with thousands separated."""
    return f"{number:,.0f}"


def size(number: int) -> str:
    """A number of bytes, as people say it."""
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """``1 partition``, ``2 partitions``."""
    return f"{amount(number)} {noun}" if number == 1 else f"{amount(number)} {noun}s"


def _facts(block: Facts) -> str:
    width = max((len(name) for name, _ in block.pairs), default=0)
    pad = "\n" + " " * (width + 2)
    return "\n".join(f"{name:<{width}}  {text.replace(chr(10), pad)}".rstrip() for name, text in block.pairs)


def _columns(grid: Grid) -> str:
    lines = [tuple(grid.headers), *(tuple(cell.replace("\n", " ") for cell in row) for row in grid.rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(grid.headers))]
    aligned = [
        (
            f"{cell:>{w}}" if name in grid.right else f"{cell:<{w}}"
            for cell, w, name in zip(line, widths, grid.headers, strict=True)
        )
        for line in lines
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def _draw(grid: Grid, out: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in grid.headers:
        table.add_column(header, justify="right" if header in grid.right else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*map(Text, row))
    Console(file=out).print(table)


def in_commands(error: PenstockError, table: str = "TABLE") -> PenstockError:
    """The same error with advice that can be typed; ``table`` is the input it is about, if known."""
    if error.typed is None:
        return error
    told = type(error)(error.what, left=error.left, hint=error.typed.format(table=table))
    told.__cause__ = error
    return told
