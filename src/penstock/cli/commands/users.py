"""``penstock users``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Grid
from penstock.config import shown_url
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.server.access.users import Account, Users


@dataclass(frozen=True, slots=True)
class Listing:
    """All users."""

    users: Sequence[Account]

    def to_json(self) -> list[dict[str, Any]]:
        return [user.to_json() for user in self.users]

    def blocks(self) -> list[Block]:
        rows = [(u.name, _rights(u), _schemas(u), _login(u), u.created) for u in self.users]
        return [Grid(("user", "may", "schemas", "comes in by", "created"), rows)]


@dataclass(frozen=True, slots=True)
class Changed:
    """A user that this command made or changed; ``password`` if it was made up here."""

    user: Account
    what: str
    password: str | None = None

    def to_json(self) -> dict[str, Any]:
        shown = {"generated": self.password} if self.password is not None else {}
        return {**self.user.to_json(), **shown}

    def blocks(self) -> list[Block]:
        user = self.user
        said = f"user {user.name} {self.what}: {_rights(user)}, schemas {_schemas(user)}, {_login(user)}"
        if self.password is None:
            return [said]
        return [said, f"password (shown this once): {self.password}"]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A user that is gone."""

    user: Account

    def to_json(self) -> dict[str, Any]:
        return {"dropped": self.user.name}

    def blocks(self) -> list[Block]:
        return [f"user {self.user.name} dropped"]


def _rights(user: Account) -> str:
    return "everything" if user.admin else "read and write" if user.writes else "read"


def _schemas(user: Account) -> str:
    if user.admin or user.schemas is None:
        return "all"
    return ", ".join(sorted(user.schemas)) or "none"


def _login(user: Account) -> str:
    if not user.enabled:
        return "disabled"
    return "password" if user.verifier is not None else "client certificate"


@click.group()
def command() -> None:
    """Say who may connect to the SQL gateway, and what they may do."""


def _with_password(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--password-stdin", is_flag=True, help="Read the password from the first line of stdin."
        ),
        click.option("--generate", is_flag=True, help="Make up a password, and show it once."),
    ):
        function = option(function)
    return function


@command.command()
@click.argument("name")
@click.option("--admin", is_flag=True, help="May do everything, and sees and cancels others' queries.")
@click.option("--write/--read-only", "writes", default=False, help="May create and drop views and tables.")
@click.option("--schema", "schemas", multiple=True, metavar="S", help="May use this schema only; repeatable.")
@click.option("--no-password", is_flag=True, help="Comes in by a client certificate of this name only.")
@_with_password
@with_context
def add(
    context: CommandContext,
    name: str,
    admin: bool,
    writes: bool,
    schemas: tuple[str, ...],
    no_password: bool,
    password_stdin: bool,
    generate: bool,
) -> None:
    """Add a user. Without options it may read everything, and the password is asked for."""
    from penstock.server.access.users import check_name

    check_name(name)
    if no_password and (password_stdin or generate):
        raise UsageError("--no-password and a password were given", hint="give one of them")
    password = None if no_password else _password(name, stdin=password_stdin, generated=generate)
    user = _users(context).add(name, password, admin=admin, writes=writes, schemas=schemas or None)
    context.output.show(Changed(user, "added", password if generate else None))


@command.command()
@click.argument("name")
@click.option("--admin/--no-admin", default=None, help="May do everything, or not.")
@click.option("--write/--read-only", "writes", default=None, help="May create and drop views and tables.")
@click.option("--schema", "schemas", multiple=True, metavar="S", help="May use these only; repeatable.")
@click.option("--all-schemas", is_flag=True, help="May use every schema.")
@click.option("--enable/--disable", "enabled", default=None, help="May come in, or not.")
@with_context
def alter(
    context: CommandContext,
    name: str,
    admin: bool | None,
    writes: bool | None,
    schemas: tuple[str, ...],
    all_schemas: bool,
    enabled: bool | None,
) -> None:
    """Change what a user may do. It holds within a second, also for clients that are in."""
    if schemas and all_schemas:
        raise UsageError("--schema and --all-schemas were given", hint="give one of them")
    if admin is writes is enabled is None and not schemas and not all_schemas:
        raise UsageError("nothing to change", hint=f"penstock users alter {name} --help")
    user = _known(context).grant(
        name,
        admin=admin,
        writes=writes,
        schemas=schemas or None,
        every_schema=all_schemas,
        enabled=enabled,
    )
    context.output.show(Changed(user, "changed"))


@command.command()
@click.argument("name")
@_with_password
@with_context
def passwd(context: CommandContext, name: str, password_stdin: bool, generate: bool) -> None:
    """Give a user another password. Tokens that were issued before are void."""
    users = _known(context)
    if users.find(name) is None:
        raise UsageError(f"there is no user {name!r}", hint="`penstock users list` shows all")
    password = _password(name, stdin=password_stdin, generated=generate)
    user = users.set_password(name, password)
    context.output.show(Changed(user, "has another password", password if generate else None))


@command.command()
@click.argument("name")
@click.option("--last", is_flag=True, help="Also if no user is left then.")
@with_context
def drop(context: CommandContext, name: str, last: bool) -> None:
    """Remove a user."""
    context.output.show(Dropped(_known(context).drop(name, last=last)))


@command.command(name="list")
@with_context
def list_(context: CommandContext) -> None:
    """List all users and what they may do."""
    found = _users(context).list() if context.has_store else []
    context.output.show(Listing(found))
    if not found:
        context.output.say(
            f"no users in {shown_url(context.config.store)}: a server that listens on loopback lets "
            "everybody on its machine in, any other nobody"
        )


def _users(context: CommandContext) -> Users:
    from penstock.server.access.users import Users

    return Users(context.store)


def _known(context: CommandContext) -> Users:
    from penstock.server.access.users import Users

    return Users(context.known)


def _password(name: str, *, stdin: bool, generated: bool) -> str:
    from penstock.server.access import passwords

    if stdin and generated:
        raise UsageError("--password-stdin and --generate were given", hint="give one of them")
    if generated:
        return passwords.generate()
    if stdin:
        return passwords.check(_line())
    if not sys.stdin.isatty():
        raise UsageError(
            "there is no terminal to ask for a password",
            hint="give --password-stdin, --generate, or --no-password for a client certificate",
        )
    asked = click.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True)
    return passwords.check(str(asked))


def _line() -> str:
    data = sys.stdin.buffer.readline(4096)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError("the password is not UTF-8", hint="write it in UTF-8") from None
