"""``penstock inputs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.desk import Desk, with_desk
from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.config import shown_url
from penstock.errors import CorruptFile, InputError, UsageError

if TYPE_CHECKING:
    from penstock.cli.registering import Users
    from penstock.inputs import Input

_NAMED = 20


def _json(found: Input) -> dict[str, Any]:
    return {**found.document(), "partitions": found.partitions, "bytes": sum(f.bytes for f in found.files)}


@dataclass(frozen=True, slots=True)
class Listing:
    inputs: Sequence[Input]

    def to_json(self) -> list[dict[str, Any]]:
        return [_json(i) for i in self.inputs]

    def blocks(self) -> list[Block]:
        headers = ("input", "format", "rows", "partitions", "files", "size", "source")
        rows = [
            (
                i.name,
                i.format,
                amount(i.total_rows),
                amount(i.partitions),
                amount(len(i.files)),
                size(sum(f.bytes for f in i.files)),
                i.source,
            )
            for i in self.inputs
        ]
        return [Grid(headers, rows, right=headers[2:6])]


@dataclass(frozen=True, slots=True)
class Details:
    input: Input
    users: Users
    problem: str

    def to_json(self) -> dict[str, Any]:
        return {
            **_json(self.input),
            "fields": {f.name: f"{f.type}{'' if f.nullable else ' not null'}" for f in self.input.schema},
            "paths": [f.path for f in self.input.files],
            "runs": [*self.users.unfinished, *self.users.finished],
            "changed": self.problem or None,
        }

    def blocks(self) -> list[Block]:
        i = self.input
        fields = "\n".join(f"{f.name}: {f.type}{'' if f.nullable else ' not null'}" for f in i.schema)
        files = [f"{f.path}  {amount(f.rows)} rows, {size(f.bytes)}" for f in i.files[:_NAMED]]
        if len(i.files) > _NAMED:
            files.append(f"and {len(i.files) - _NAMED} more")
        using = [*(f"{name} (unfinished)" for name in self.users.unfinished), *self.users.finished]
        pairs = [
            ("input", i.name),
            ("source", f"{i.source} ({i.format})"),
            (
                "rows",
                f"{amount(i.total_rows)} in {count(i.partitions, 'partition')} of {amount(i.partition_rows)}",
            ),
            ("fields", fields),
            ("files", "\n".join(files)),
            ("runs", ", ".join(using) or "none"),
            ("state", self.problem or "unchanged since it was registered"),
        ]
        return [Facts(pairs)]


@dataclass(frozen=True, slots=True)
class Dropped:
    name: str

    def to_json(self) -> dict[str, Any]:
        return {"dropped": self.name}

    def blocks(self) -> list[Block]:
        return [f"input {self.name} is forgotten; the files it was registered from are untouched"]


@click.group()
def command() -> None:
    """Look at registered inputs, or forget one."""


@command.command()
@with_desk
def ls(desk: Desk) -> None:
    """List all registered inputs."""
    from penstock import inputs

    names = inputs.names(desk.store) if desk.has_store else []
    desk.output.show(Listing([inputs.load(desk.store, desk.storage, name) for name in names]))
    if not names:
        desk.output.say(f"no inputs in {shown_url(desk.config.store)}")


@command.command()
@click.argument("name")
@with_desk
def show(desk: Desk, name: str) -> None:
    """Show fields, files and runs of an input, and whether it has changed."""
    from penstock import inputs
    from penstock.cli.registering import users

    found = inputs.load(desk.known, desk.storage, name)
    try:
        inputs.check_unchanged(found)
        problem = ""
    except InputError as error:
        problem = error.what
    desk.output.show(Details(found, users(desk.store, name, found.digest), problem))


@command.command()
@click.argument("name")
@with_desk
def drop(desk: Desk, name: str) -> None:
    """Forget an input that no unfinished run uses."""
    from penstock import inputs
    from penstock.cli.registering import users

    try:
        digest = inputs.load(desk.known, desk.storage, name).digest
        using = users(desk.store, name, digest)
    except CorruptFile:
        using = None
    if using and using.unfinished:
        raise UsageError(
            f"input {name} cannot be dropped: unfinished runs use it: {', '.join(using.unfinished)}",
            hint=f"finish it with `penstock runs resume {using.unfinished[0]}`, or remove it with "
            f"`penstock runs gc {using.unfinished[0]} --drop`",
        )
    inputs.drop(desk.store, desk.storage, name)
    desk.output.show(Dropped(name))
    if using and using.finished:
        desk.output.say(f"`runs verify` cannot compare it any more for {', '.join(using.finished)}")
