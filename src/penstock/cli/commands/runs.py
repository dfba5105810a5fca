"""``penstock runs``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.commands.run import resume as resume_run
from penstock.cli.commands.run import with_settings
from penstock.cli.context import CommandContext, with_context
from penstock.cli.output import Block, Facts, Grid, amount, count, size
from penstock.config import shown_url
from penstock.core.json_values import plain
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.batch.runner import Verification
    from penstock.batch.runs.output import Exported
    from penstock.batch.runs.runs import Run
    from penstock.batch.runs.views import RunView
    from penstock.control.claims import PartitionSummary


@dataclass(frozen=True, slots=True)
class Listing:
    """All runs of a store."""

    runs: list[RunView]

    def to_json(self) -> list[dict[str, Any]]:
        return [view.to_json() for view in self.runs]

    def blocks(self) -> list[Block]:
        rows = [
            (
                view.run.name,
                view.run.pipeline,
                view.state,
                f"{amount(s.completed.partitions)}/{amount(s.total.partitions)}" if s else "-",
                amount(s.poisoned.partitions) if s else "-",
                amount(view.run.total_rows),
                view.run.created,
            )
            for view in self.runs
            for s in [view.summary]
        ]
        headers = ("run", "pipeline", "state", "partitions", "poisoned", "rows", "created")
        return [Grid(headers, rows, right=headers[3:6])]


@dataclass(frozen=True, slots=True)
class Details:
    """One run."""

    view: RunView

    def to_json(self) -> dict[str, Any]:
        return self.view.to_json()

    def blocks(self) -> list[Block]:
        run, s = self.view.run, self.view.summary
        pairs = [
            ("run", f"{run.name} ({self.view.state})"),
            ("pipeline", f"{run.pipeline}{f', from {run.source}' if run.source else ''}"),
            ("created", run.created),
            ("inputs", ", ".join(run.inputs)),
            *(_phases(self.view) if run.phases else _rows(run, s)),
            ("output", f"{self.view.output} ({', '.join(run.outputs)}; {run.output_format})"),
            ("storage", self.view.storage),
            ("stages", ", ".join(f"{n} {stage.names}" for n, stage in enumerate(run.fingerprint.stages))),
        ]
        if self.view.left_out:
            named = ", ".join(self.view.left_out)
            pairs.append(("without", f"the rows of poisoned partitions: later phases began without {named}"))
        pairs += [
            ("owner", f"{name} holds {count(n, 'partition')}") for name, n in (self.view.owners or {}).items()
        ]
        return [Facts(pairs)]


def _rows(run: Run, s: PartitionSummary | None) -> Iterator[tuple[str, str]]:
    yield "rows", f"{amount(s.completed.rows if s else 0)} of {amount(run.total_rows)} done"
    if s is not None:
        yield "partitions", f"{count(s.total.partitions, 'partition')} of {count(run.partition_rows, 'row')}"
        yield from (("", line) for line in _standing(s))
        yield "failed or lost", f"{count(s.failures, 'attempt')}"


def _standing(s: PartitionSummary) -> Iterator[str]:
    claimed = f"{amount(s.claimed.partitions)} claimed"
    if s.expired.partitions:
        claimed += f" ({amount(s.expired.partitions)} with an expired lease)"
    yield f"{amount(s.completed.partitions)} completed, {claimed}"
    yield f"{amount(s.pending.partitions)} pending, {amount(s.poisoned.partitions)} poisoned"


def _phases(view: RunView) -> Iterator[tuple[str, str]]:
    for number, (phase, s) in enumerate(zip_longest(view.run.phases, view.phases)):
        first, last = phase.stages[0], phase.stages[1] - 1
        stages = "no stage" if last < first else f"stage {first}" + (f" to {last}" if last > first else "")
        yield f"phase {number}", f"{phase.cut}; {stages}"
        if s is None:
            yield "", "not begun"
        else:
            what = "partition" if phase.by_rows else "key range" if phase.rows is None else "claim"
            yield "", f"{count(s.total.partitions, what)}: {', '.join(_standing(s))}"
    if view.summary is not None:
        yield "failed or lost", f"{count(view.summary.failures, 'attempt')}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found."""

    verification: Verification

    def to_json(self) -> dict[str, Any]:
        return self.verification.to_json()

    def blocks(self) -> list[Block]:
        v = self.verification
        rows = [("ok" if c.ok else "FAILED", c.name, c.detail) for c in v.checks]
        out = ", ".join(f"{amount(n)} {table}" for table, n in v.rows_out.items())
        return [
            Grid(("", "check", "found"), rows),
            f"{'verified' if v.ok else 'NOT VERIFIED'}: {count(v.rows_in, 'row')} in; out: {out}",
        ]


@dataclass(frozen=True, slots=True)
class Sweeping:
    """What was removed, or would be."""

    runs: dict[str, tuple[int, int]]
    dry: bool
    dropped: bool = False

    def to_json(self) -> dict[str, Any]:
        swept = {name: {"files": files, "bytes": n} for name, (files, n) in self.runs.items()}
        return {"dry_run": self.dry, "dropped": self.dropped, "runs": swept}

    def blocks(self) -> list[Block]:
        verb = "would remove" if self.dry else "removed"
        what = " of the run and the run itself" if self.dropped else " that nothing refers to"
        return [f"{name}: {verb} {count(f, 'file')} ({size(n)}){what}" for name, (f, n) in self.runs.items()]


@dataclass(frozen=True, slots=True)
class Export:
    exported: Exported

    def to_json(self) -> Any:
        return plain(self.exported)

    def blocks(self) -> list[Block]:
        e = self.exported
        return [f"{e.directory}: {count(e.files, 'file')}, {count(e.rows, 'row')}, {size(e.bytes)}"]


@click.group()
def command() -> None:
    """Look at runs, resume and verify them."""


@command.command()
@with_context
def ls(context: CommandContext) -> None:
    """List all runs."""
    from penstock.batch.runs import views

    found = list(views.every(context.store)) if context.has_store else []
    context.output.show(Listing(found))
    if not found:
        context.output.say(f"no runs in {shown_url(context.config.store)}")


@command.command()
@click.argument("name")
@with_context
def show(context: CommandContext, name: str) -> None:
    """Show what a run computes from what, and how far it is."""
    from penstock.batch.runs import views

    context.output.show(Details(views.one(context.known, name)))


@command.command(epilog=exits.TABLE)
@click.argument("name")
@click.option("--file", "source", metavar="FILE[:NAME]", help="The pipeline file, if it was moved.")
@with_context
@with_settings
def resume(
    context: CommandContext,
    name: str,
    source: str | None,
    accept_changed_code: bool,
    without_poisoned: bool,
    quiet: bool,
) -> int:
    """Go on with a run where it stopped; inputs and output are as it was started."""
    return resume_run(context, name, source, accept_changed_code, without_poisoned, quiet)


@command.command()
@click.argument("name")
@with_context
def verify(context: CommandContext, name: str) -> int:
    """Prove from manifests, checksums and counts that every input row was processed once.

    Exits with 4 if that cannot be shown.
    """
    from penstock.batch.runner import verify as verify_run

    found = verify_run(context.known, name)
    context.output.show(Verified(found))
    return exits.COMPLETE if found.ok else exits.UNVERIFIED


@command.command()
@click.argument("name", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--drop", is_flag=True, help="Remove the run with all its files, published output included.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --drop.")
@with_context
def gc(context: CommandContext, name: str | None, dry_run: bool, drop: bool, yes: bool) -> None:
    """Remove files that crashes left behind, of one run or of all.

    Without NAME it also finishes drops that were interrupted, and removes the files of replaced inputs that
    no run was started with.
    """
    from penstock.batch import inputs
    from penstock.batch.runs import dropping, runs
    from penstock.batch.runs import gc as sweeper
    from penstock.storage import Storage

    if drop:
        if name is None:
            raise UsageError("--drop removes one run, and none is named", hint="penstock runs gc NAME --drop")
        context.output.show(_drop(context, name, dry_run=dry_run, yes=yes))
        return
    chosen = [context.run(name)] if name else runs.every(context.known)
    swept = {}
    for run in chosen:
        if context.summary(run) is None:
            continue  # nobody has written anything for it
        boards = partial(runs.boards, context.store, run)
        done = sweeper.sweep(Storage(run.storage), run, boards, dry_run=dry_run)
        swept[run.name] = (done.files, done.bytes)
    context.output.show(Sweeping(swept, dry_run))
    for run in () if name else dropping.half_dropped(context.store):
        context.output.say(
            f"{run.name}: {'would finish' if dry_run else 'finishes'} a drop that was interrupted"
        )
        if not dry_run:
            dropping.finish(context.store, Storage(run.storage), run)
    if not name and any(facts.get("outlived") for facts in inputs.facts(context.known)):
        for replaced, removed in sweeper.sweep_inputs(
            context.store, context.storage, dry_run=dry_run
        ).items():
            verb = "would remove" if dry_run else "removed"
            files = f"{count(removed.files, 'file')} ({size(removed.bytes)})"
            context.output.say(f"input {replaced}: {verb} {files} of what was replaced")


def _drop(context: CommandContext, name: str, *, dry_run: bool, yes: bool) -> Sweeping:
    from penstock.batch.runs import dropping, layout
    from penstock.batch.runs import gc as sweeper
    from penstock.storage import Storage

    run = context.run(name)
    dropping.check_idle(context.store, run)
    storage = Storage(run.storage)
    listed = storage.list(layout.run_folder(run.key)) + sweeper.outputs(run)
    files = [n for _, n in listed]
    if not dry_run:
        if not yes and sys.stdin.isatty():
            question = (
                f"Remove run {name} with {count(len(files), 'file')} ({size(sum(files))}), output included?"
            )
            click.confirm(question, abort=True, err=True)
            # An answer may take long: somebody may work on it by now.
            dropping.check_idle(context.store, run)
        dropping.drop(context.store, storage, run)
    return Sweeping({name: (len(files), sum(files))}, dry_run, dropped=True)


@command.command()
@click.argument("name")
@click.argument("directory", metavar="DIR")
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; may be given again.")
@click.option("--partial", is_flag=True, help="Also when the run is not complete.")
@with_context
def export(
    context: CommandContext, name: str, directory: str, tables: tuple[str, ...], partial: bool
) -> None:
    """Copy the published output to a plain directory, one folder for each table."""
    from penstock.batch.runner import Output

    context.output.show(Export(Output(context.known, name).export(directory, tables, partial=partial)))
