"""``penstock catalog``."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, count
from penstock.config import shown_url
from penstock.control.catalog import Catalog, Create, Drop, Head, Logged, Manifest, Statement, StatementKind
from penstock.control.catalog.sql import MAX_SQL, script
from penstock.errors import UsageError


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything in the catalog, without the texts."""

    head: Head

    def to_json(self) -> dict[str, Any]:
        return {"version": self.head.version, "statements": list(self.head.entries)}

    def blocks(self) -> list[Block]:
        rows = [(e.name, e.kind, ", ".join(e.needs), e.created) for e in self.head.entries]
        return [
            f"version {self.head.version}, {count(len(rows), 'statement')}",
            Grid(("name", "kind", "needs", "created"), rows),
        ]


@dataclass(frozen=True, slots=True)
class Script:
    """The DDL in an order in which it can be replayed."""

    manifest: Manifest

    def to_json(self) -> Manifest:
        return self.manifest

    def blocks(self) -> list[Block]:
        return [script(s.sql for s in self.manifest.statements)] if self.manifest.statements else []


@dataclass(frozen=True, slots=True)
class Details:
    """One statement; ``only_sql`` leaves people with nothing but its text."""

    statement: Statement
    only_sql: bool

    def to_json(self) -> Statement:
        return self.statement

    def blocks(self) -> list[Block]:
        s = self.statement
        if self.only_sql:
            return [script([s.sql])]
        needs = ", ".join(s.needs) or "nothing"
        pairs = [("name", s.name), ("kind", s.kind), ("needs", needs), ("created", s.created), ("sql", s.sql)]
        return [Facts(pairs)]


@dataclass(frozen=True, slots=True)
class Made:
    """A change that this command made."""

    change: Logged

    def to_json(self) -> dict[str, Any]:
        return _json(self.change)

    def blocks(self) -> list[Block]:
        return [f"version {self.change.version}: {self.change.what}"]


@dataclass(frozen=True, slots=True)
class History:
    """The last changes, oldest first."""

    changes: Sequence[Logged]

    def to_json(self) -> list[dict[str, Any]]:
        return [_json(change) for change in self.changes]

    def blocks(self) -> list[Block]:
        rows = [(str(c.version), c.what, c.by, c.when) for c in self.changes]
        return [Grid(("version", "change", "by", "when"), rows, right=("version",))]


def _json(change: Logged) -> dict[str, Any]:
    return {"version": change.version, "change": change.what, "by": change.by, "when": change.when}


@click.group()
def command() -> None:
    """Look at the ordered DDL that rebuilds everything, or change it."""


_expect = click.option(
    "--expect",
    "expected",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Change the catalog only if it is still at this version.",
)


@command.command()
@click.argument("name", required=False)
@click.option("--sql", "only_sql", is_flag=True, help="Print the DDL alone, in order, ready to be replayed.")
@with_context
def show(context: CommandContext, name: str | None, only_sql: bool) -> None:
    """List the statements of the catalog in order, or show one."""
    if name is not None:
        context.output.show(Details(_find(Catalog(context.known), name), only_sql))
        return
    head = Catalog(context.store).head() if context.has_store else Head()
    if not head.entries:
        context.output.say(f"the catalog in {shown_url(context.config.store)} is empty")
    if only_sql:
        context.output.show(Script(Catalog(context.store).read() if head.entries else Manifest(head.version)))
    else:
        context.output.show(Listing(head))


@command.command()
@click.argument("kind", type=click.Choice([kind.value for kind in StatementKind]))
@click.argument("name")
@click.argument("stdin", metavar="[-]", required=False, type=click.Choice(["-"]))
@click.option("--sql", metavar="TEXT", help="The statement that rebuilds it.")
@click.option("--file", "source", type=click.File(encoding="utf-8"), help="Read the statement from a file.")
@click.option("--needs", multiple=True, metavar="NAME", help="What must be there before it; repeatable.")
@click.option("--replace", is_flag=True, help="Take the place of what has this name.")
@_expect
@with_context
def add(
    context: CommandContext,
    kind: str,
    name: str,
    stdin: str | None,
    sql: str | None,
    source: IO[str] | None,
    needs: tuple[str, ...],
    replace: bool,
    expected: int | None,
) -> None:
    """Add a statement to the catalog. With `-` it is read from stdin."""
    given = [text for text in (sql, source, stdin) if text is not None]
    if len(given) != 1:
        raise UsageError(
            "the statement must be given once", hint="give one of --sql TEXT, --file FILE, or - for stdin"
        )
    text = sql if sql is not None else _text(source or click.open_file("-", encoding="utf-8"))
    change = Create(Statement(name, StatementKind(kind), text, needs), replace)
    context.output.show(Made(Catalog(context.store).change(change, expected=expected, by=_who())))


@command.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Drop all that need it as well.")
@_expect
@with_context
def drop(context: CommandContext, name: str, cascade: bool, expected: int | None) -> None:
    """Take a statement out of the catalog."""
    change = Drop(name, cascade)
    context.output.show(Made(Catalog(context.known).change(change, expected=expected, by=_who())))


@command.command()
@with_context
def history(context: CommandContext) -> None:
    """List the last changes of the catalog."""
    changes = Catalog(context.store).head().history if context.has_store else ()
    context.output.show(History(changes))
    if not changes:
        context.output.say(f"the catalog in {shown_url(context.config.store)} was never changed")


def _find(catalog: Catalog, name: str) -> Statement:
    found = catalog.find(name)
    if found is None:
        raise UsageError(
            f"there is no {name} in the catalog", hint="`penstock catalog show` lists what there is"
        )
    return found


def _text(file: IO[str]) -> str:
    try:
        return file.read(MAX_SQL + 1)
    except UnicodeDecodeError as error:
        raise UsageError(f"the statement cannot be read: {error}", hint="write it in UTF-8") from error


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname().split('.')[0]}"
