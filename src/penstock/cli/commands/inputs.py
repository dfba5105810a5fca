"""``penstock inputs``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.config import shown_url
from penstock.errors import CorruptFile, InputError, UsageError

if TYPE_CHECKING:
    from penstock.batch.inputs import Input
    from penstock.cli.actions.registering import InputUsers

_NAMED = 20


def _json(found: Input) -> dict[str, Any]:
    told = found.document() | {"source": shown_url(found.source)}
    return {**told, "partitions": found.partitions, "bytes": sum(f.bytes for f in found.files)}


@dataclass(frozen=True, slots=True)
class ListedInput:
    """An input as the store knows it, and with its files if they are in this storage."""

    facts: Mapping[str, Any]
    input: Input | None
    problem: str

    def to_json(self) -> dict[str, Any]:
        facts = {**self.facts, "source": shown_url(self.facts["source"]), "problem": self.problem}
        storage = self.facts.get("storage")
        return {
            **(_json(self.input) if self.input else facts),
            "storage": None if storage is None else shown_url(storage),
        }

    def row(self) -> tuple[str, ...]:
        facts = self.facts
        partitions = -(-facts["total_rows"] // facts["partition_rows"])
        taken = size(sum(f.bytes for f in self.input.files)) if self.input else "?"
        counts = (amount(facts["total_rows"]), amount(partitions), amount(facts["files"]), taken)
        return (facts["name"], facts["format"], *counts, self.problem or shown_url(facts["source"]))


@dataclass(frozen=True, slots=True)
class Listing:
    entries: Sequence[ListedInput]

    def to_json(self) -> list[dict[str, Any]]:
        return [entry.to_json() for entry in self.entries]

    def blocks(self) -> list[Block]:
        headers = ("input", "format", "rows", "partitions", "files", "size", "source")
        return [Grid(headers, [entry.row() for entry in self.entries], right=headers[2:6])]


@dataclass(frozen=True, slots=True)
class Details:
    input: Input
    users: InputUsers
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
        files = [f"{f.path}  {count(f.rows, 'row')}, {size(f.bytes)}" for f in i.files[:_NAMED]]
        if len(i.files) > _NAMED:
            files.append(f"and {len(i.files) - _NAMED} more")
        using = [*(f"{name} (unfinished)" for name in self.users.unfinished), *self.users.finished]
        pairs = [
            ("input", i.name),
            ("source", f"{shown_url(i.source)} ({i.format})"),
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


@dataclass(frozen=True, slots=True)
class Cleared:
    name: str
    files: int

    def to_json(self) -> dict[str, Any]:
        return {"input": self.name, "removed_files": self.files}

    def blocks(self) -> list[Block]:
        return [f"input {self.name}: removed {count(self.files, 'file')} of interrupted registrations"]


@click.group()
def command() -> None:
    """Look at registered inputs, or forget one."""


@command.command()
@with_context
def ls(context: CommandContext) -> None:
    """List all registered inputs."""
    from penstock.batch import inputs

    entries = [_entry(context, each) for each in inputs.facts(context.store)] if context.has_store else []
    context.output.show(Listing(entries))
    if not entries:
        context.output.say(f"no inputs in {shown_url(context.config.store)}")


def _entry(context: CommandContext, facts: Mapping[str, Any]) -> ListedInput:
    """One that is broken, or in another storage, keeps nobody from seeing the others."""
    from penstock.batch import inputs

    try:
        return ListedInput(facts, inputs.load(context.store, context.storage, facts["name"]), "")
    except (InputError, CorruptFile) as error:
        return ListedInput(facts, None, error.what)


@command.command()
@click.argument("name")
@with_context
def show(context: CommandContext, name: str) -> None:
    """Show fields, files and runs of an input, and whether it has changed."""
    from penstock.batch import inputs
    from penstock.cli.actions.registering import users

    found = inputs.load(context.known, context.storage, name)
    try:
        inputs.check_unchanged(found)
        problem = ""
    except InputError as error:
        problem = error.what
    context.output.show(Details(found, users(context.store, name, found.digest), problem))


@command.command()
@click.argument("name")
@click.option(
    "--leftovers",
    is_flag=True,
    help="Only remove what interrupted registrations left; nobody may be registering it now.",
)
@with_context
def drop(context: CommandContext, name: str, leftovers: bool) -> None:
    """Forget an input that no unfinished run uses."""
    from penstock.batch import inputs
    from penstock.batch.runs import dropping, runs
    from penstock.cli.actions.registering import users

    if leftovers:
        removed = inputs.drop_leftovers(context.known, context.storage, name)
        context.output.show(Cleared(name, removed))
        return
    try:
        found = inputs.load(context.known, context.storage, name)
    except CorruptFile:
        found = None  # its file list is lost, so that no run can use it
    using = users(context.store, name, found.digest) if found else None
    _refuse_used(name, using)

    def needed() -> bool:
        if found:
            _refuse_used(name, users(context.store, name, found.digest))
        for run in runs.using(context.store, name):
            dropping.check_idle(context.store, run)  # it may read what was registered before
        return False

    registration = found.id if found else None
    if not inputs.drop(context.store, context.storage, name, registration=registration, needed=needed):
        raise InputError(
            f"input {name} was dropped or registered anew meanwhile",
            left="nothing was removed",
            hint=f"penstock inputs show {name}",
        )
    context.output.show(Dropped(name))
    if using and using.finished:
        context.output.say(f"`runs verify` cannot compare it any more for {', '.join(using.finished)}")


def _refuse_used(name: str, using: InputUsers | None) -> None:
    if using and using.unfinished:
        raise UsageError(
            f"input {name} cannot be dropped: unfinished runs use it: {', '.join(using.unfinished)}",
            hint=f"finish it with `penstock runs resume {using.unfinished[0]}`, or remove it with "
            f"`penstock runs gc {using.unfinished[0]} --drop`",
        )
