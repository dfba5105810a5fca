"""``penstock partitions``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.actions.planning import fingerprint_without_spark
from penstock.cli.context import PARTITION, CommandContext, with_context
from penstock.cli.output import Block, Grid, amount, count
from penstock.core.json_values import plain
from penstock.core.ranges import PartitionName
from penstock.errors import PenstockError, UnknownPartition, UsageError

if TYPE_CHECKING:
    from penstock.batch.runs.runs import Run
    from penstock.control.claims import PartitionState, PartitionView

_STATES = ("pending", "claimed", "completed", "poisoned")


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition; how many rows it is given, if that is known."""

    name: PartitionName
    view: PartitionView
    rows: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    partitions: Sequence[ListedPartition]

    def to_json(self) -> Any:
        return [{**plain(p.view), "phase": p.name.phase, "rows": p.rows} for p in self.partitions]

    def blocks(self) -> list[Block]:
        headers = ("partition", "rows", "state", "owner", "token", "failures", "checkpoints", "last error")
        rows = [
            (
                str(p.name),
                "" if p.rows is None else amount(p.rows),
                _state(p.view),
                p.view.owner,
                str(p.view.token or "-"),
                str(p.view.attempts),
                ", ".join(f"stage {c.stage}" for c in p.view.checkpoints),
                p.view.errors[-1].error.splitlines()[0] if p.view.errors else "",
            )
            for p in self.partitions
        ]
        return [Grid(headers, rows, right=("rows", "token", "failures"))]


def _state(view: PartitionView) -> str:
    expired = view.state == "claimed" and not view.alive
    return f"{view.state} (lease expired)" if expired else str(view.state)


@dataclass(frozen=True, slots=True)
class Moved:
    """Partitions that can be claimed again."""

    run: str
    partitions: Sequence[PartitionName]

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "pending": [str(p) for p in self.partitions]}

    def blocks(self) -> list[Block]:
        return [f"{self.run}: {count(len(self.partitions), 'partition')} can be claimed again"]


@contextmanager
def _named(run: str) -> Iterator[None]:
    try:
        yield
    except UnknownPartition as error:
        raise UnknownPartition(
            error.what, hint=f"penstock partitions ls {run} --limit 0 lists them"
        ) from error


@click.group()
def command() -> None:
    """Look at partitions, free or retry them."""


@command.command()
@click.argument("run")
@click.option("--state", type=click.Choice(_STATES), multiple=True, help="Only these; may be given again.")
@click.option("--limit", default=100, show_default=True, metavar="N", help="At most N; 0 for all.")
@click.option("--from", "begin", default=0, metavar="ROW", help="From the partition that holds this row.")
@click.option("--phase", type=int, metavar="N", help="Only those of one phase.  [default: all]")
@with_context
def ls(
    context: CommandContext, run: str, state: tuple[str, ...], limit: int, begin: int, phase: int | None
) -> None:
    """List partitions, phase by phase. Those of later phases are named PHASE:RANGE."""
    from penstock.control.claims import PartitionState

    states = {PartitionState(s) for s in state} or None
    found = list(islice(_listed(context, run, states, begin, phase), limit + 1 if limit else None))
    shown = found[:limit] if limit else found
    context.output.show(Listing(shown))
    if len(found) > len(shown):
        more = found[-1].name
        only = f" --phase {more.phase}" if more.phase else ""
        context.output.say(f"more: --from {more.range.begin}{only}, or --limit 0 for all")


def _listed(
    context: CommandContext,
    run: str,
    states: set[PartitionState] | None,
    begin: int,
    phase: int | None,
) -> Iterator[ListedPartition]:
    from penstock.batch.runs import exchanges

    record = context.run(run)
    boards = context.boards(run)
    for number in range(len(boards)) if phase is None else [phase]:
        plan = exchanges.find_plan(context.store, record, number)
        board = context.board(run, number)
        for view in board.partitions(states, begin):
            rows = view.range.rows if record.every_phase[number].by_rows else None
            rows = plan.ranges[view.range.begin].rows if plan else rows
            yield ListedPartition(PartitionName(number, view.range), view, rows)


@command.command()
@click.argument("run")
@click.argument("partition", metavar="PARTITION", type=PARTITION)
@with_context
def release(context: CommandContext, run: str, partition: PartitionName) -> None:
    """Take a partition from its owner, whose work on it is refused from then on."""
    with _named(run):
        context.board(run, partition.phase).force_release(partition.range)
    context.output.show(Moved(run, [partition]))


@command.command()
@click.argument("run")
@click.argument("partition", metavar="[PARTITION]", type=PARTITION, required=False)
@click.option("--all", "every", is_flag=True, help="All poisoned partitions.")
@with_context
def retry(context: CommandContext, run: str, partition: PartitionName | None, every: bool) -> None:
    """Let poisoned partitions be claimed again; their checkpoints are kept."""
    from penstock.batch.runs import exchanges

    if every == (partition is not None):
        raise UsageError(
            "name one poisoned partition, or all of them",
            hint=f"penstock partitions retry {run} --all, or one that "
            f"`penstock partitions ls {run} --state poisoned` lists",
        )
    record = context.run(run)
    chosen = [partition] if partition else _retryable(context, record)
    with _named(run):
        for each in chosen:
            exchanges.check_retry(context.store, record, each)
            context.board(run, each.phase).retry(each.range)
    context.output.show(Moved(run, chosen))
    if chosen:
        context.output.say(how_to_resume(context, run))


def _retryable(context: CommandContext, run: Run) -> list[PartitionName]:
    """The poisoned partitions, but those that a later phase did not wait for, which are told."""
    from penstock.batch.runs import exchanges
    from penstock.control.claims import PartitionState

    found = [each.name for each in _listed(context, run.name, {PartitionState.POISONED}, 0, None)]
    late = exchanges.left_out(context.store, run)
    if too_late := [str(each) for each in found if str(each) in late]:
        context.output.say(
            f"too late for {', '.join(too_late)}: later phases began without their rows; "
            "penstock run … --run NAME computes everything anew"
        )
    return [each for each in found if str(each) not in late]


def how_to_resume(context: CommandContext, name: str) -> str:
    """The next command for a run that has partitions to do, or what has to be seen to before."""
    from penstock.batch import inputs
    from penstock.batch.runner.places import check_places
    from penstock.project import load
    from penstock.storage import Storage

    run = context.run(name)
    command = f"penstock runs resume {name}"
    if not run.source:
        return f"next: start its Runner again, or {command} --file FILE[:NAME]: it was started from Python"
    try:
        project = load(run.source)
    except PenstockError as error:
        return f"its pipeline file cannot be loaded: {error.what}\nnext: {command} --file FILE[:NAME]"
    storage = Storage(run.storage)
    try:
        check_places(storage, run.output_storage, begun=True)
        for registered in run.registered.values():
            inputs.check_unchanged(inputs.load(context.store, storage, registered))
    except PenstockError as error:
        return f"it cannot go on yet: {error.what}\nnext: {error.hint or 'see to that'}; then {command}"
    try:
        reasons = run.fingerprint.differences(fingerprint_without_spark(context, project, run))
    except Exception:  # a resource that needs a session, say
        return f"next: {command}, with --accept-changed-code if the code was changed"
    changed = [reason for reason in reasons if reason.startswith("input ")]
    if changed:
        return (
            f"it cannot go on with what is there now: {'; '.join(changed)}\n"
            f"next: put the registered data back and {command}, or start a run of its own with --run NAME"
        )
    summary = context.summary(run)
    if not reasons or summary is None or not summary.completed.partitions:
        return f"next: {command}"
    kept = count(summary.completed.partitions, "partition")
    return (
        f"the pipeline changed since the run began: {'; '.join(reasons)}\n"
        f"next: {command} --accept-changed-code keeps {kept} that the old code completed; "
        "penstock run … --run NAME computes everything anew"
    )
