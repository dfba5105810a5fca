"""``penstock checkpoints``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.context import PARTITION, CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.core import codec
from penstock.core.ranges import PartitionName
from penstock.errors import CorruptFile, RunError, UnknownPartition

if TYPE_CHECKING:
    from penstock.batch.runs.manifests import CheckpointManifest
    from penstock.batch.runs.runs import Run
    from penstock.control.claims import CheckpointRef, PartitionView


@dataclass(frozen=True, slots=True)
class ListedCheckpoint:
    """A recorded checkpoint; without a manifest it is damaged, and ``problem`` says how."""

    partition: PartitionName
    ref: CheckpointRef
    manifest: CheckpointManifest | None
    problem: str = ""

    @property
    def rows(self) -> int:
        return sum(t.rows for t in self.manifest.tables.values()) if self.manifest else 0

    @property
    def bytes(self) -> int:
        tables = self.manifest.tables.values() if self.manifest else ()
        return sum(f.bytes for t in tables for f in t.files)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "partition": str(self.partition),
            "stage": self.ref.stage,
            "token": self.ref.token,
            "digest": self.ref.digest,
            "rows": self.rows,
            "bytes": self.bytes,
            "problem": self.problem or None,
        }
        if self.manifest is not None:
            value["fingerprint"] = codec.plain(self.manifest.fingerprint)
            value["tables"] = {
                name: {
                    "input": t.input,
                    "rows": t.rows,
                    "fields": {f.name: str(f.type) for f in t.schema},
                    "files": codec.plain(t.files),
                }
                for name, t in self.manifest.tables.items()
            }
        return value

    def blocks(self) -> Iterator[Block]:
        yield f"partition {self.partition}, after stage {self.ref.stage}, token {self.ref.token}"
        if self.manifest is None:
            yield f"  not usable: {self.problem}"
            return
        stages = self.manifest.fingerprint.stages
        pairs = [(f"  stage {n}", f"{s.names}, code {s.code}") for n, s in enumerate(stages)]
        for name, table in self.manifest.tables.items():
            fields = ", ".join(f"{f.name}: {f.type}" for f in table.schema)
            if table.input is not None:
                pairs.append((f"  {name}", f"rows of the input as they are ({fields})"))
                continue
            pairs.append((f"  {name}", f"{count(table.rows, 'row')} ({fields})"))
            pairs += [("", f"{f.path}  {count(f.rows, 'row')}, {size(f.bytes)}") for f in table.files]
        yield Facts(pairs)


@dataclass(frozen=True, slots=True)
class Listing:
    checkpoints: Sequence[ListedCheckpoint]

    def to_json(self) -> list[dict[str, Any]]:
        return [c.to_json() for c in self.checkpoints]

    def blocks(self) -> list[Block]:
        headers = ("partition", "stage", "token", "tables", "rows", "size", "")
        rows = [
            (
                str(c.partition),
                str(c.ref.stage),
                str(c.ref.token),
                ", ".join(c.manifest.tables) if c.manifest else "",
                amount(c.rows),
                size(c.bytes),
                c.problem,
            )
            for c in self.checkpoints
        ]
        return [Grid(headers, rows, right=("stage", "token", "rows", "size"))]


@dataclass(frozen=True, slots=True)
class CheckpointRows(Listing):
    """The same, with everything that is known."""

    def blocks(self) -> list[Block]:
        return [block for c in self.checkpoints for block in c.blocks()]


@click.group()
def command() -> None:
    """Look at the checkpoints of a run. A partition that is done has none."""


@command.command()
@click.argument("run")
@click.option("--limit", default=100, show_default=True, metavar="N", help="At most N partitions; 0 for all.")
@with_context
def ls(context: CommandContext, run: str, limit: int) -> None:
    """List the checkpoints of partitions that are not done."""
    views = (
        (phase, view)
        for phase, board in enumerate(context.boards(run))
        for view in board.partitions(touched=True)
        if view.checkpoints
    )
    record = context.run(run)
    found = [c for phase, view in islice(views, limit or None) for c in _of(record, phase, view)]
    context.output.show(Listing(found))
    if not found:
        context.output.say(f"run {run} has no checkpoints")


@command.command()
@click.argument("run")
@click.argument("partition", metavar="PARTITION", type=PARTITION)
@click.argument("stage", type=int, required=False)
@with_context
def show(context: CommandContext, run: str, partition: PartitionName, stage: int | None) -> None:
    """Show what the checkpoints of a partition hold."""
    view = context.board(run, partition.phase).partition(partition.range)
    if view is None:
        raise UnknownPartition(
            f"run {run!r} has no partition {partition}", hint=f"penstock partitions ls {run} lists them"
        )
    found = [c for c in _of(context.run(run), partition.phase, view) if stage is None or c.ref.stage == stage]
    if not found:
        after = f" after stage {stage}" if stage is not None else ""
        raise RunError(f"partition {partition} of run {run!r} is {view.state} and has no checkpoint{after}")
    context.output.show(CheckpointRows(found))


def _of(run: Run, phase: int, view: PartitionView) -> list[ListedCheckpoint]:
    from penstock.batch.runs import layout, manifests
    from penstock.storage import Storage

    storage = Storage(run.storage)
    name = PartitionName(phase, view.range)
    found = []
    for ref in sorted(view.checkpoints, key=lambda r: r.stage):
        path = layout.checkpoint_manifest(run.place(phase), view.range, ref.token, ref.stage, ref.digest)
        try:
            manifest = manifests.fetch(storage, path, ref.digest, manifests.CHECKPOINT)
            found.append(ListedCheckpoint(name, ref, manifest))
        except CorruptFile as error:
            found.append(ListedCheckpoint(name, ref, None, error.what))
    return found
