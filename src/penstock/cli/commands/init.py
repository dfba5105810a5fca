"""``penstock init``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block
from penstock.errors import PenstockError, UsageError

# Rows of the example input: enough for four partitions, few enough to read.
_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Made:
    """The files of a new project, and what to type next."""

    folder: Path
    files: Sequence[str]
    commands: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "files": list(self.files), "next": list(self.commands)}

    def blocks(self) -> list[Block]:
        return [
            *(f"wrote {self.folder / name}" for name in self.files),
            "",
            "next:",
            *(f"  {line}" for line in self.commands),
        ]


@click.command()
@click.argument("directory", metavar="[DIR]", default=".")
@click.option(
    "--no-archive", is_flag=True, help="Do not make Spark's class archive, which takes about a minute."
)
@with_context
def command(context: CommandContext, directory: str, no_archive: bool) -> None:
    """Make a project with an example in it.

    Writes penstock.toml, a pipeline that runs as it is, and a little data for it. Nothing is
    overwritten.
    """
    folder = Path(directory)
    contents = {
        "penstock.toml": _template("penstock.toml"),
        "trades.py": _template("trades.py.txt"),
        "data/trades.csv": example_rows(_ROWS),
    }
    taken = [name for name in contents if (folder / name).exists()]
    if taken:
        raise UsageError(
            f"{folder} has {', '.join(taken)} already",
            left="nothing was written",
            hint="penstock init OTHER_DIR",
        )
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    commands = [
        "penstock run trades.py --input trades=data/trades.csv --output output",
        "penstock runs verify trades",
    ]
    if directory != ".":
        commands.insert(0, f"cd {directory}")
    context.output.show(Made(folder, list(contents), commands))
    if not no_archive:
        _train(context)


def example_rows(count: int) -> str:
    """Trades that are the same on every machine; a few of them are invalid."""
    symbols = ("ACME", "BOLT", "CRUX", "DYNE", "ECHO")
    lines = ["trade_id,symbol,price,quantity,at"]
    for n in range(count):
        price = 10 + (n * 7919) % 9000 / 100
        quantity = 0 if n % 97 == 0 else 1 + (n * 31) % 500
        at = f"2026-01-05T{9 + n * 8 // count:02d}:{n % 60:02d}:{n * 7 % 60:02d}Z"
        lines.append(f"{n},{symbols[n * 13 % 5]},{price:.2f},{quantity},{at}")
    return "\n".join(lines) + "\n"


def _template(name: str) -> str:
    from importlib.resources import files

    return files("penstock.cli").joinpath("templates", name).read_text(encoding="utf-8")


def _train(context: CommandContext) -> None:
    from penstock.spark import cds, java

    try:
        found = java.find()
        if cds.archive(found) is None:
            context.output.say(
                "making Spark's class archive, so that it starts faster (about a minute, once) …"
            )
            if cds.train(found) is None:
                context.output.say("another process is making it now")
    except PenstockError as error:
        context.output.say(f"the project is ready, but without a class archive: {error}")
