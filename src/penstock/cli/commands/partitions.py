"""``penstock partitions``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.desk import RANGE, Desk, with_desk
from penstock.cli.output import Block, Grid, amount, count, plain
from penstock.errors import UnknownPartition, UsageError

if TYPE_CHECKING:
    from penstock.claims import PartitionView
    from penstock.ranges import Range

_STATES = ("pending", "claimed", "completed", "poisoned")


@dataclass(frozen=True, slots=True)
class Listing:
    partitions: Sequence[PartitionView]

    def to_json(self) -> Any:
        return plain(self.partitions)

    def blocks(self) -> list[Block]:
        headers = ("partition", "rows", "state", "owner", "token", "failures", "checkpoints", "last error")
        rows = [
            (
                str(p.range),
                amount(p.range.rows),
                f"{p.state} (lease expired)" if p.state == "claimed" and not p.alive else str(p.state),
                p.owner,
                str(p.token or "-"),
                str(p.attempts),
                ", ".join(f"stage {c.stage}" for c in p.checkpoints),
                p.errors[-1].error.splitlines()[0] if p.errors else "",
            )
            for p in self.partitions
        ]
        return [Grid(headers, rows, right=("rows", "token", "failures"))]


@dataclass(frozen=True, slots=True)
class Moved:
    """Partitions that can be claimed again."""

    run: str
    partitions: Sequence[Range]

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
@with_desk
def ls(desk: Desk, run: str, state: tuple[str, ...], limit: int, begin: int) -> None:
    """List partitions in row order."""
    from penstock.claims import State

    states = {State(s) for s in state} or None
    views = desk.board(run).partitions(states, begin)
    found = list(islice(views, limit + 1 if limit else None))
    shown = found[:limit] if limit else found
    desk.output.show(Listing(shown))
    if len(found) > len(shown):
        desk.output.say(f"more: --from {found[-1].range.begin}, or --limit 0 for all")


@command.command()
@click.argument("run")
@click.argument("rows", metavar="RANGE", type=RANGE)
@with_desk
def release(desk: Desk, run: str, rows: Range) -> None:
    """Take a partition from its owner, whose work on it is refused from then on."""
    with _named(run):
        desk.board(run).force_release(rows)
    desk.output.show(Moved(run, [rows]))


@command.command()
@click.argument("run")
@click.argument("rows", metavar="[RANGE]", type=RANGE, required=False)
@click.option("--all", "every", is_flag=True, help="All poisoned partitions.")
@with_desk
def retry(desk: Desk, run: str, rows: Range | None, every: bool) -> None:
    """Let poisoned partitions be claimed again."""
    from penstock.claims import State

    if every == (rows is not None):
        raise UsageError(
            "name one poisoned partition, or all of them",
            hint=f"penstock partitions retry {run} --all, or one that "
            f"`penstock partitions ls {run} --state poisoned` lists",
        )
    board = desk.board(run)
    chosen = [rows] if rows else [view.range for view in board.partitions({State.POISONED})]
    with _named(run):
        for each in chosen:
            board.retry(each)
    desk.output.show(Moved(run, chosen))
    if chosen:
        desk.output.say(f"next: penstock runs resume {run}")
