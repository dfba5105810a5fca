"""``penstock cluster``."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from penstock import __version__
from penstock.cli import exits
from penstock.cli.context import CommandContext, with_context
from penstock.cli.screens import cluster as screens
from penstock.cli.screens.cluster import Screen
from penstock.cli.watching import watch, with_watch
from penstock.config import shown_url
from penstock.control.cluster.rules.model import MAX_CAPACITY, Member
from penstock.core.names import LONGEST, RULE, is_name
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.control.cluster.views.observer import Observer

_CODES = f"""\b
Exit codes:
  {exits.COMPLETE:>2}  there is a leader and nothing to warn of
  {exits.RESUMABLE:>2}  there is no leader, or there are warnings
"""
_PING_CODES = f"""\b
Exit codes:
  {exits.COMPLETE:>2}  everybody answered
  {exits.RESUMABLE:>2}  somebody did not
"""


@click.group()
def command() -> None:
    """Take part in a cluster, and look at it."""


@command.command(epilog=_CODES)
@with_watch
@with_context
def status(context: CommandContext, seconds: float | None) -> int:
    """Show on one screen how the cluster is, with warnings about what is not as it should be.

    A barrier that hangs and a lease that is not renewed are only found by --watch, which looks on.
    """
    from penstock.cli.screens.roles import Status, StatusScreen, status_blocks
    from penstock.server.roles.views import gateway_view

    observer = _observer(context)

    def look() -> Screen[Any]:
        gateway = gateway_view(context.store, context.config.cluster)
        # Where only SQL is served, coordinators and workers are all that there is.
        alone = gateway is not None and not observer.exists()
        cluster = None if alone else observer.status(_catalog_version(context))
        return StatusScreen(Status(cluster, gateway), status_blocks)

    shown = _answer(context, observer, seconds, look)
    return exits.COMPLETE if shown is None or shown.view.healthy else exits.RESUMABLE


@command.command()
@click.option("--renew", is_flag=True, help="Make a new one; the old one lets nobody in any more.")
@with_context
def token(context: CommandContext, renew: bool) -> None:
    """Print the token by which workers join (`penstock serve --role worker`)."""
    from penstock.cli.screens.roles import JoinToken
    from penstock.server.roles.worker_records import join_token, renew_join_token

    context.output.show(JoinToken(renew_join_token(context.store) if renew else join_token(context.store)))


@command.command()
@with_watch
@with_context
def workers(context: CommandContext, seconds: float | None) -> None:
    """List the workers that compute for the coordinator."""
    from penstock.cli.screens.roles import workers_screen
    from penstock.server.roles.worker_records import workers as all_workers

    observer = _observer(context)
    _answer(context, observer, seconds, lambda: Screen(tuple(all_workers(context.store)), workers_screen))


@command.command()
@with_watch
@with_context
def members(context: CommandContext, seconds: float | None) -> None:
    """List the members, also instances of batch runs, which own no virtual nodes."""
    observer = _observer(context)
    _answer(context, observer, seconds, lambda: Screen(observer.members(), screens.members))


@command.command(epilog=_PING_CODES)
@with_context
def ping(context: CommandContext) -> int:
    """Ask every member directly whether it is there, and whom it believes to lead.

    Members that were started with --listen answer; with [tls] both sides show a certificate.
    """
    from penstock.control.cluster.peer import ping as ask_all

    observer = _observer(context)
    observer.look()
    found = ask_all(observer.serving(), context.config.tls)
    if not found:
        raise UsageError("nobody takes part", hint="start a member with `penstock cluster join`")
    context.output.show(Screen(found, screens.pings))
    return exits.COMPLETE if all(each.reached for each in found) else exits.RESUMABLE


@command.command()
@with_watch
@with_context
def leader(context: CommandContext, seconds: float | None) -> None:
    """Show who leads, and who did before."""
    observer = _observer(context)
    _answer(context, observer, seconds, lambda: Screen(observer.leader(), screens.leader))


@command.command()
@click.option("--history", is_flag=True, help="Also earlier versions, and what moved from one to the next.")
@click.option("--vnodes", is_flag=True, help="Also who owns each virtual node.")
@with_watch
@with_context
def assignments(context: CommandContext, history: bool, vnodes: bool, seconds: float | None) -> None:
    """Show which virtual nodes each member has. No work is placed on them yet."""
    observer = _observer(context)

    def look() -> Screen[Any]:
        return Screen(observer.assignments(history=history, vnodes=vnodes), screens.assignments)

    _answer(context, observer, seconds, look)


def _limit(default: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--limit",
        type=click.IntRange(min=1, max=1000),
        default=default,
        show_default=True,
        metavar="N",
        help="How many decided epochs of each scope.",
    )


@command.command()
@_limit(10)
@with_watch
@with_context
def barriers(context: CommandContext, limit: int, seconds: float | None) -> None:
    """Show the epochs that wait for answers, how the last ones ended, and which answers did not count."""
    observer = _observer(context)
    _answer(context, observer, seconds, lambda: Screen(observer.barriers(limit), screens.barriers))


@command.command()
@click.option("--scope", metavar="NAME", help="Only this scope.")
@_limit(20)
@with_watch
@with_context
def epochs(context: CommandContext, scope: str | None, limit: int, seconds: float | None) -> None:
    """List the epochs that were decided, newest first."""
    observer = _observer(context)
    _answer(context, observer, seconds, lambda: Screen(observer.epochs(scope, limit), screens.epochs))


@command.command()
@click.option("--id", "name", metavar="ID", help="The member's name; by default host name and process id.")
@click.option(
    "--capacity",
    type=click.IntRange(1, MAX_CAPACITY),
    default=1,
    show_default=True,
    metavar="N",
    help="Its weight: with 2 it gets twice as many virtual nodes as with 1.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="An address to show to the others; may be given again.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Answer `penstock cluster ping` here; port 0 takes a free one. Beyond loopback it needs [tls].",
)
@click.option(
    "--barrier-every",
    type=click.FloatRange(min=0, min_open=True, max=86_400),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How often it drives an epoch through all members while it leads.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also tell every epoch that is committed.")
@with_context
def join(
    context: CommandContext,
    name: str | None,
    capacity: int,
    addresses: tuple[str, ...],
    listen: str | None,
    barrier_every: float,
    verbose: bool,
) -> int:
    """Take part as a member until Ctrl-C or SIGTERM, and tell what happens.

    It stands for election, answers barriers and follows the catalog. It does no work of runs, streams or
    SQL: those have processes of their own. Its share of the virtual nodes shows how work would be spread, and
    nothing is placed on them yet. The first signal gives up the lead and the share; another one leaves at
    once. After a lost session it joins again.
    """
    from penstock.cli.actions.joining import Joining, Teller

    _check_listen(listen, addresses)
    member = Member(_member_id(name), "", __version__, capacity, _addresses(addresses))
    config = context.config
    return Joining(
        context.store,
        config.cluster,
        member,
        barrier_every,
        Teller(context.output),
        listen=listen,
        tls=config.tls,
        verbose=verbose,
    ).run()


def _check_listen(listen: str | None, addresses: tuple[str, ...]) -> None:
    from penstock.control.cluster.peer import ADDRESS, split

    if listen is None or any(text.startswith(f"{ADDRESS}=") for text in addresses):
        return
    host, port = split(listen)
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        raise UsageError(
            f"others cannot reach a member at {listen}",
            hint=f"say under which address they can: --address {ADDRESS}=HOST:{port or 'PORT'}",
        )


def _answer(
    context: CommandContext, observer: Observer, seconds: float | None, look: Callable[[], Screen[Any]]
) -> Screen[Any] | None:
    """Show it once, and give what was shown; or watch it to the end."""
    if seconds is not None:
        watch(context.output, context.store, observer.keys.root, look, seconds)
        return None
    shown = look()
    context.output.show(shown)
    return shown


def _observer(context: CommandContext) -> Observer:
    from penstock.control.cluster.views.observer import Observer

    if not context.has_store:
        raise UsageError(
            f"there is no store at {shown_url(context.config.store)}",
            hint="go to the project's folder, or name the store with --store URL; "
            "`penstock cluster join` makes a new one",
        )
    return Observer(context.store, context.config.cluster)


def _catalog_version(context: CommandContext) -> int:
    from penstock.control.catalog import Catalog

    return Catalog(context.store).head().version


def _member_id(name: str | None) -> str:
    if name is None:
        host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0]).strip("-_")
        return f"{(host or 'member')[: LONGEST - 10]}-{os.getpid()}"
    if not is_name(name):
        raise UsageError(f"{name!r} cannot be the id of a member", hint=RULE)
    return name


def _addresses(given: tuple[str, ...]) -> dict[str, str]:
    from penstock.control.cluster.peer import split

    found: dict[str, str] = {}
    for text in given:
        name, equals, address = text.partition("=")
        if not equals or not is_name(name) or name in found:
            raise UsageError(
                f"--address {text}: {'given twice' if name in found else 'it has no name'}",
                hint="write --address NAME=HOST:PORT, such as --address peer=127.0.0.1:9090",
            )
        split(address)
        found[name] = address
    return found
