"""``penstock runs``."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import exits
from penstock.cli.commands.run import resume as resume_run
from penstock.cli.commands.run import with_settings
from penstock.cli.desk import Desk, with_desk
from penstock.cli.output import Block, Facts, Grid, amount, count, plain, size
from penstock.config import shown_url
from penstock.errors import RunError, UsageError

if TYPE_CHECKING:
    from penstock.claims import Summary
    from penstock.runner import Verification
    from penstock.runner.output import Exported
    from penstock.runner.runs import Run


@dataclass(frozen=True, slots=True)
class Listing:
    """All runs of a store."""

    runs: list[tuple[Run, Summary | None]]

    def to_json(self) -> list[dict[str, Any]]:
        return [_json(run, summary) for run, summary in self.runs]

    def blocks(self) -> list[Block]:
        rows = [
            (
                run.name,
                run.pipeline,
                _state(s),
                f"{amount(s.completed.partitions)}/{amount(s.total.partitions)}" if s else "-",
                amount(s.poisoned.partitions) if s else "-",
                amount(run.total_rows),
                run.created,
            )
            for run, s in self.runs
        ]
        headers = ("run", "pipeline", "state", "partitions", "poisoned", "rows", "created")
        return [Grid(headers, rows, right=headers[3:6])]


@dataclass(frozen=True, slots=True)
class Details:
    """One run."""

    run: Run
    summary: Summary | None
    owners: dict[str, int]
    """Claimed partitions by the instance that holds them."""

    def to_json(self) -> dict[str, Any]:
        return {**_json(self.run, self.summary), "owners": self.owners}

    def blocks(self) -> list[Block]:
        run, s = self.run, self.summary
        pairs = [
            ("run", f"{run.name} ({_state(s)})"),
            ("pipeline", f"{run.pipeline}{f', from {run.source}' if run.source else ''}"),
            ("created", run.created),
            ("inputs", ", ".join(run.inputs)),
            ("rows", f"{amount(s.completed.rows if s else 0)} of {amount(run.total_rows)} done"),
            *(_progress(run, s) if s else ()),
            ("output", f"{run.output} ({', '.join(run.outputs)}; {run.output_format})"),
            ("storage", run.storage),
            ("stages", ", ".join(f"{n} {stage.names}" for n, stage in enumerate(run.fingerprint.stages))),
        ]
        pairs += [("owner", f"{name} holds {count(n, 'partition')}") for name, n in self.owners.items()]
        return [Facts(pairs)]


def _progress(run: Run, s: Summary) -> list[tuple[str, str]]:
    claimed = f"{amount(s.claimed.partitions)} claimed"
    if s.expired.partitions:
        claimed += f" ({amount(s.expired.partitions)} with an expired lease)"
    return [
        ("partitions", f"{count(s.total.partitions, 'partition')} of {amount(run.partition_rows)} rows"),
        ("", f"{amount(s.completed.partitions)} completed, {claimed}"),
        ("", f"{amount(s.pending.partitions)} pending, {amount(s.poisoned.partitions)} poisoned"),
        ("failed or lost", f"{count(s.failures, 'attempt')}"),
    ]


def _state(summary: Summary | None) -> str:
    from penstock.runner.runs import state_of

    return state_of(summary)


def _json(run: Run, summary: Summary | None) -> dict[str, Any]:
    return {**run.to_json(), "state": _state(summary), "partitions": plain(summary)}


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
            f"{'verified' if v.ok else 'NOT VERIFIED'}: {amount(v.rows_in)} rows in; out: {out}",
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
@with_desk
def ls(desk: Desk) -> None:
    """List all runs."""
    from penstock.runner import runs

    found = runs.every(desk.store) if desk.has_store else []
    desk.output.show(Listing([(run, desk.summary(run)) for run in found]))
    if not found:
        desk.output.say(f"no runs in {shown_url(desk.config.store)}")


@command.command()
@click.argument("name")
@with_desk
def show(desk: Desk, name: str) -> None:
    """Show what a run computes from what, and how far it is."""
    from penstock.claims import State

    run = desk.run(name)
    summary = desk.summary(run)
    owners: Counter[str] = Counter()
    if summary is not None:
        owners.update(view.owner for view in desk.board(name).partitions({State.CLAIMED}))
    desk.output.show(Details(run, summary, dict(sorted(owners.items()))))


@command.command(epilog=exits.TABLE)
@click.argument("name")
@click.option("--file", "source", metavar="FILE[:NAME]", help="The pipeline file, if it was moved.")
@with_desk
@with_settings
def resume(desk: Desk, name: str, source: str | None, accept_changed_code: bool, quiet: bool) -> int:
    """Go on with a run where it stopped; inputs and output are as it was started."""
    return resume_run(desk, name, source, accept_changed_code, quiet)


@command.command()
@click.argument("name")
@with_desk
def verify(desk: Desk, name: str) -> int:
    """Prove from manifests, checksums and counts that every input row was processed once.

    Exits with 4 if that cannot be shown.
    """
    from penstock.runner import verify as verify_run

    found = verify_run(desk.known, name)
    desk.output.show(Verified(found))
    return exits.COMPLETE if found.ok else exits.UNVERIFIED


@command.command()
@click.argument("name", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--drop", is_flag=True, help="Remove the run with all its files, published output included.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before --drop.")
@with_desk
def gc(desk: Desk, name: str | None, dry_run: bool, drop: bool, yes: bool) -> None:
    """Remove files that crashes left behind, of one run or of all."""
    from penstock.claims import Board
    from penstock.runner import gc as sweeper
    from penstock.runner import runs
    from penstock.storage import Storage

    if drop:
        if name is None:
            raise UsageError("--drop removes one run, and none is named", hint="penstock runs gc NAME --drop")
        desk.output.show(_drop(desk, name, dry_run=dry_run, yes=yes))
        return
    chosen = [desk.run(name)] if name else runs.every(desk.known)
    swept = {}
    for run in chosen:
        if desk.summary(run) is None:
            continue  # nobody has written anything for it
        done = sweeper.sweep(Storage(run.storage), run, Board.open(desk.store, run.key), dry_run=dry_run)
        swept[run.name] = (done.files, done.bytes)
    desk.output.show(Sweeping(swept, dry_run))


def _drop(desk: Desk, name: str, *, dry_run: bool, yes: bool) -> Sweeping:
    from penstock.runner import gc as sweeper
    from penstock.runner import layout
    from penstock.storage import Storage

    run = desk.run(name)
    summary = desk.summary(run)
    if summary and (alive := summary.claimed.partitions - summary.expired.partitions):
        raise RunError(
            f"instances work on run {name!r} now: {count(alive, 'partition')} are claimed",
            hint=f"stop them first; `penstock runs show {name}` names them",
        )
    storage = Storage(run.storage)
    files = [n for _, n in storage.list(layout.run_folder(run.key))] + [
        n for _, n in run.output_storage.list(name)
    ]
    if not dry_run:
        if not yes and sys.stdin.isatty():
            question = (
                f"Remove run {name} with {count(len(files), 'file')} ({size(sum(files))}), output included?"
            )
            click.confirm(question, abort=True, err=True)
        sweeper.drop(desk.store, storage, run)
    return Sweeping({name: (len(files), sum(files))}, dry_run, dropped=True)


@command.command()
@click.argument("name")
@click.argument("directory", metavar="DIR")
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; may be given again.")
@click.option("--partial", is_flag=True, help="Also when the run is not complete.")
@with_desk
def export(desk: Desk, name: str, directory: str, tables: tuple[str, ...], partial: bool) -> None:
    """Copy the published output to a plain directory, one folder for each table."""
    from penstock.runner import Output

    desk.output.show(Export(Output(desk.known, name).export(directory, tables, partial=partial)))
