"""``penstock stream``."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import count, size
from penstock.cli.screens import stream as screens
from penstock.cli.screens.cluster import Screen
from penstock.cli.watching import watch, with_watch
from penstock.config import shown_url
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.streams.registry import Wanted
    from penstock.streams.views.observer import StreamObserver
    from penstock.streams.views.views import StreamView

_LOOK_EVERY = 0.2
_AT_REST = 2.0
_CODES = f"""\b
Exit codes:
  {exits.COMPLETE:>2}  it does what is wanted of it
  {exits.RESUMABLE:>2}  it does not (yet), or an output has a problem
"""
_START_CODES = f"""\b
Exit codes:
  {exits.COMPLETE:>2}  the stream has ended or was stopped, or a signal asked this command to leave
   {exits.FAILED}  it cannot go on as it is
   {exits.USAGE}  wrong usage, configuration or definition
  {exits.RESUMABLE:>2}  its instances died again and again; what was committed is kept
"""


@click.group()
def command() -> None:
    """Start streams, look at them, rescale and stop them."""


def _with_wait(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--wait",
        "seconds",
        is_flag=False,
        flag_value=math.inf,
        type=click.FloatRange(min=0),
        metavar="[SECONDS]",
        help=f"Wait until it is so; when so many seconds have passed before, exit with {exits.RESUMABLE}.",
    )(function)


@command.command(epilog=_START_CODES)
@click.argument("source", metavar="FILE[:NAME]")
@click.option(
    "--instances",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes of this command, each with a Spark session.  [default: 1, or as it was rescaled]",
)
@click.option("--accept-changes", is_flag=True, help="Go on with a definition that has changed.")
@click.option("--master", metavar="URL", help="Spark master: local[*], spark://…, sc://….")
@click.option("-v", "--verbose", is_flag=True, help="Also tell every epoch and every batch of an output.")
@with_context
def start(
    context: CommandContext,
    source: str,
    instances: int | None,
    accept_changes: bool,
    master: str | None,
    verbose: bool,
) -> int:
    """Run a stream until it ends, is stopped, or Ctrl-C, and tell what happens.

    A stream that exists goes on where it was. The same command in another terminal, or on another machine
    with the same store and storage, joins it. Ctrl-C leaves with everything committed; another one leaves at
    once.
    """
    from penstock.cli.actions.streaming import run
    from penstock.project import load_stream

    context.flags({"spark.master": master})
    run(context, load_stream(source), instances, accept_changes=accept_changes, verbose=verbose)
    return exits.COMPLETE


@command.command()
@click.argument("name")
@_with_wait
@with_context
def stop(context: CommandContext, name: str, seconds: float | None) -> int:
    """Let all instances of a stream leave, with everything committed. `start` goes on from there."""
    from penstock.streams import registry

    return _wish(
        context,
        name,
        "stopped",
        seconds,
        lambda: not registry.at_work(context.store, registry.load(context.store, name)),
    )


@command.command()
@click.argument("name")
@_with_wait
@with_context
def suspend(context: CommandContext, name: str, seconds: float | None) -> int:
    """Begin no more epochs, and keep the processes. `resume` goes on at once."""
    return _wish(context, name, "suspended", seconds, _Rest(_observer(context, name)))


@command.command()
@click.argument("name")
@with_context
def resume(context: CommandContext, name: str) -> int:
    """Go on with a stream that was suspended, and with outputs that were given up."""
    from penstock.streams import registry

    record = registry.load(context.known, name)
    if record.wanted == "stopped":
        raise UsageError(
            f"stream {name!r} was stopped, not suspended", hint="start it: penstock stream start FILE"
        )
    return _wish(context, name, "running", None, lambda: True, again=True)


@command.command(epilog=_CODES)
@click.argument("name", required=False)
@with_watch
@with_context
def status(context: CommandContext, name: str | None, seconds: float | None) -> int:
    """Show how a stream is, or all streams."""
    if name is None:
        look_at_all = _look_at_all(context)
        _show(context, lambda: Screen(look_at_all(), screens.every), "streams/", seconds)
        return exits.COMPLETE
    observer = _observer(context, name)
    shown = _show(context, lambda: Screen(observer.look(), screens.status), observer.prefix, seconds)
    return exits.COMPLETE if shown is None or shown.view.healthy else exits.RESUMABLE


@command.command(name="list")
@with_context
def list_(context: CommandContext) -> None:
    """List all streams."""
    found = _look_at_all(context)()
    context.output.show(Screen(found, screens.listing))
    if not found:
        context.output.say(f"no streams in {shown_url(context.config.store)}")


@command.command()
@click.argument("name")
@click.argument("instances", type=click.IntRange(min=1), metavar="N")
@_with_wait
@with_context
def rescale(context: CommandContext, name: str, instances: int, seconds: float | None) -> int:
    """Run a stream with N instances in all, which its supervisors share."""
    from penstock.streams import registry

    record = registry.wish(context.known, name, instances=instances)
    observer = _observer(context, name)
    context.output.show(screens.Wish(record, f"{count(instances, 'instance')} wanted"))
    if record.wanted == "stopped" or not observer.look().supervisors:
        context.output.say("no supervisor is there to start any: penstock stream start FILE")
        return exits.COMPLETE if seconds is None else exits.RESUMABLE
    return _await(context, seconds, lambda: _has_seats(observer.look(), instances))


@command.command()
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_context
def drop(context: CommandContext, name: str, yes: bool) -> None:
    """Remove a stream with its queue and the tables of its outputs. What sinks wrote elsewhere stays."""
    from penstock.streams import registry

    record = registry.load(context.known, name)
    files = [each for _, each in context.storage.list(record.layout.root)]
    if not yes and sys.stdin.isatty():
        question = f"Remove stream {name} with {count(len(files), 'file')} ({size(sum(files))})?"
        click.confirm(question, abort=True, err=True)
    dropped = registry.drop(context.store, context.storage, name, stream_id=record.id)
    context.output.show(screens.Dropped(dropped, len(files), sum(files)))


@command.command()
@click.argument("name")
@click.argument("table", metavar="SOURCE|OUTPUT")
@click.option(
    "--at-epoch",
    "epoch",
    type=click.IntRange(min=0),
    metavar="N",
    help="As it was then; of an output, with the batches that were complete.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many rows, the newest ones.",
)
@click.option("--late", is_flag=True, help="Only the late rows of a source.")
@with_context
def show(context: CommandContext, name: str, table: str, epoch: int | None, limit: int, late: bool) -> None:
    """Show committed rows of a source's queue or of an output's table."""
    from penstock.streams import registry
    from penstock.streams.views import preview

    record = registry.load(context.known, name)
    found = preview.rows(context.store, context.storage, record, table, epoch=epoch, limit=limit, late=late)
    context.output.show(screens.StreamRows(found))


@command.command()
@click.argument("source", metavar="FILE[:NAME]")
@with_context
def plan(context: CommandContext, source: str) -> None:
    """Show the sources, operators and outputs of a stream, without running it."""
    from penstock.project import load_stream

    context.output.show(Screen(load_stream(source).stream.describe(), screens.definition))


@command.command()
@click.argument("name")
@click.option("--drop", "dropped", metavar="READER", help="Forget this one: what it needed may go.")
@with_context
def readers(context: CommandContext, name: str, dropped: str | None) -> None:
    """List who keeps epochs of a stream from being let go."""
    from penstock.streams import registry
    from penstock.streams.log.epoch_log import EpochLog
    from penstock.streams.log.readers import ReaderPositions

    record = registry.load(context.known, name)
    holds = ReaderPositions(EpochLog(context.store, context.storage, record.layout))
    if dropped is not None and not holds.drop(dropped):
        known = ", ".join(each.reader for each in holds.list()) or "none"
        raise UsageError(f"stream {name!r} has no reader {dropped!r}", hint=f"named readers: {known}")
    context.output.show(Screen([*holds.list(), *holds.held()], screens.readers))


class _Rest:
    """Whether a stream has come to rest: no epoch is open, and none was committed for a while.

    A leader that read what was wanted a moment before may still drive one more epoch.
    """

    def __init__(self, observer: StreamObserver) -> None:
        self._observer = observer
        self._epoch = -1
        self._since = time.monotonic()

    def __call__(self) -> bool:
        epoch, now = self._observer.look().epoch, time.monotonic()
        if epoch != self._epoch or not self._observer.is_at_rest():
            self._epoch, self._since = epoch, now
        return now - self._since >= _AT_REST


def _wish(
    context: CommandContext,
    name: str,
    wanted: Wanted,
    seconds: float | None,
    ready: Callable[[], bool],
    *,
    again: bool = False,
) -> int:
    from penstock.streams import registry

    record = registry.wish(context.known, name, wanted=wanted, again=again)
    code = _await(context, seconds, ready)
    is_so = seconds is not None and code == exits.COMPLETE
    context.output.show(screens.Wish(record, wanted if is_so else f"{wanted} from now on"))
    return code


def _await(context: CommandContext, seconds: float | None, ready: Callable[[], bool]) -> int:
    """Wait until it is so, if asked to; the exit code."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while deadline is not None and not ready():
        if time.monotonic() >= deadline:
            context.output.say(f"not yet after {seconds:g} s; it goes on by itself")
            return exits.RESUMABLE
        time.sleep(_LOOK_EVERY)
    return exits.COMPLETE


def _has_seats(view: StreamView, instances: int) -> bool:
    """Whether so many instances take part, each with its seat, and nobody is on the way in or out."""
    members = {each.member for each in view.instances if each.state == "alive"}
    seated = set(view.rescale.members) if view.rescale else members
    return len(members) == len(view.instances) == instances and seated == members


def _show(
    context: CommandContext, look: Callable[[], Screen[Any]], prefix: str, seconds: float | None
) -> Screen[Any] | None:
    """Show it once, and give what was shown; or watch it to the end."""
    if seconds is not None:
        watch(context.output, context.store, prefix, look, seconds)
        return None
    shown = look()
    context.output.show(shown)
    return shown


def _observer(context: CommandContext, name: str) -> StreamObserver:
    from penstock.streams.views.observer import StreamObserver

    config = context.config
    return StreamObserver(context.known, context.storage, name, config.cluster, config.stream)


def _look_at_all(context: CommandContext) -> Callable[[], Sequence[StreamView]]:
    """Looks at all streams; observers are kept, since some things only show by looking on."""
    from penstock.streams import registry

    observers: dict[str, StreamObserver] = {}

    def look() -> Sequence[StreamView]:
        found = registry.names(context.store) if context.has_store else []
        for name in found:
            observers[name] = observers.get(name) or _observer(context, name)
        return tuple(observers[name].look() for name in found)

    return look
