"""Carrying a run out, in this process or by several instances, and telling how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.cli import exits
from penstock.cli.context import CommandContext
from penstock.cli.output import Block, Facts, Grid, amount, count, in_commands
from penstock.cli.screens.progress import Progress, progress
from penstock.cli.signals import Signals
from penstock.config import shown_url
from penstock.core.json_values import plain
from penstock.errors import PenstockError
from penstock.workers.jobs import Stop
from penstock.workers.run_job import RunJob, perform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.batch.runner import Report
    from penstock.batch.runs.runs import Run
    from penstock.control.claims import PartitionSummary
    from penstock.project import Project
    from penstock.workers.run_instances import RunChild

Prepare = Callable[["SparkSession | None"], None]
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Result:
    """How a run stands after a command worked on it."""

    run: Run
    ending: str
    summary: PartitionSummary
    reports: Sequence[Report]
    lost: Sequence[str]
    """Instances that died, and of what."""
    poisoned: Sequence[str]
    seconds: float
    error: PenstockError | None = None
    touched: Mapping[str, int] = field(default_factory=dict)
    """How many partitions were resumed, lost or failed, each counted once."""
    left_out: Sequence[str] = ()
    """Poisoned partitions without which later phases began."""
    waiting: int | None = None
    """The first phase that is not begun."""

    @property
    def rows(self) -> int:
        return sum(r.rows for r in self.reports)

    @property
    def code(self) -> int:
        if self.error is not None:
            return exits.code_for(self.error, halted=self.ending == "halted")
        return {"complete": exits.COMPLETE, "incomplete": exits.INCOMPLETE}.get(self.ending, exits.RESUMABLE)

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "ending": self.ending,
            "exit_code": self.code,
            "partitions": plain(self.summary),
            "poisoned": list(self.poisoned),
            "left_out": list(self.left_out),
            "output": {
                "location": shown_url(self.run.output),
                "format": self.run.output_format,
                "tables": self.run.outputs,
            },
            "seconds": round(self.seconds, 3),
            "instances": [r.to_json() for r in self.reports],
            "lost_instances": list(self.lost),
            "error": {"code": self.error.code, "message": str(self.error)} if self.error else None,
        }

    def blocks(self) -> list[Block]:
        summary, seconds = self.summary, max((r.seconds for r in self.reports), default=0.0)
        done = (
            f"{amount(summary.completed.partitions)} of {count(summary.total.partitions, 'partition')} done"
        )
        if summary.poisoned.partitions:
            done += f", {summary.poisoned.partitions} poisoned"
        speed = f" ({amount(self.rows / seconds)} rows/s)" if seconds and self.rows else ""
        pairs = [
            ("run", f"{self.run.name}: {self.ending}"),
            ("partitions", done),
            ("rows", f"{amount(self.rows)} in {seconds:.1f} s{speed}"),
        ]
        for word in ("resumed", "lost", "failed"):
            if number := sum(getattr(r, word) for r in self.reports):
                times = count(number, "attempt" if word == "failed" else "time")
                partitions = self.touched.get(word, number)
                told = f"{times} at {count(partitions, 'partition')}"
                same = number == partitions and word != "failed"
                pairs.append((word, count(number, "partition") if same else told))
        where, tables = shown_url(self.run.output), ", ".join(self.run.outputs)
        pairs.append(("output", f"{where} ({tables}; {self.run.output_format})"))
        blocks: list[Block] = [Facts(pairs)]
        if len(self.reports) > 1:
            rows = [
                (r.instance, r.ending, amount(r.acked), amount(r.rows), amount(r.resumed))
                for r in self.reports
            ]
            headers = ("instance", "ending", "partitions", "rows", "resumed")
            blocks += ["", Grid(headers, rows, right=headers[2:])]
        return blocks

    def advice(self) -> str:
        """What to do next."""
        name = self.run.name
        if self.error is not None:
            return f"error[{self.error.code}]: {self.error}"
        if self.ending == "complete":
            return f"next: penstock runs verify {name}, or penstock runs export {name} DIR"
        if self.ending == "incomplete":
            return "\n".join(self._of_poisoned())
        return f"complete partitions and checkpoints are kept\nnext: penstock runs resume {name}"

    def _of_poisoned(self) -> Iterator[str]:
        name = self.run.name
        named = ", ".join(self.poisoned[:_NAMED]) + (", …" if len(self.poisoned) > _NAMED else "")
        if named:
            yield f"poisoned: {named}; `penstock partitions ls {name} --state poisoned` shows why"
        if self.left_out:
            yield f"later phases began without the rows of {', '.join(self.left_out[:_NAMED])}"
        if set(self.poisoned) <= set(self.left_out):
            yield "next: mend the cause, then compute everything anew with --run NAME"
            return
        yield f"next: mend the cause, then penstock partitions retry {name} --all, which says how to go on"
        if self.waiting:
            phases = (
                f"phase {self.waiting} waits"
                if self.waiting + 1 == len(self.run.phases)
                else (f"phases {self.waiting} to {len(self.run.phases) - 1} wait")
            )
            yield f"{phases} for them; without their rows: penstock runs resume {name} --without-poisoned"


def execute(
    context: CommandContext, project: Project, job: RunJob, *, quiet: bool, prepare: Prepare | None = None
) -> Result:
    """Work on a run until it ends. ``prepare`` is given the session before work begins, if there is one."""
    began = time.monotonic()
    instances = job.settings.instances
    with progress(context.store, job.run, instances, context.output.err, quiet=quiet) as shown:
        if instances == 1:
            reports, lost, error = _here(project, job, shown, prepare)
        else:
            if prepare:
                prepare(None)
            reports, lost, error = _children(job, shown, instances)
    done = _result(context, job.run, reports, lost, error, time.monotonic() - began)
    return replace(done, touched=shown.partitions())


def _here(
    project: Project, job: RunJob, shown: Progress, prepare: Prepare | None
) -> tuple[list[Report], list[str], PenstockError | None]:
    stop = Stop()

    def asked(name: str) -> None:
        # A session that is just starting is waited for: Spark's JVM, left alone half-way, would stay.
        doing = (
            "Spark is still starting, leaving as soon as it has" if stop.idle else "giving the claims back"
        )
        stop.request()
        shown.say(f"{name}: {doing} (once more to leave without waiting)")

    with Signals(asked, lambda: shown.say(_HURRIED)) as signals:

        def started(spark: SparkSession) -> None:
            signals.install()
            if prepare:
                prepare(spark)

        report = perform(job, project, shown, stop, started=started)
    return [report], [], report.error


def _children(
    job: RunJob, shown: Progress, instances: int
) -> tuple[list[Report], list[str], PenstockError | None]:
    from penstock.workers.run_instances import RunSupervisor, share

    lost: list[str] = []
    errors: list[PenstockError] = []

    def ended(instance: RunChild) -> None:
        shown.instances -= 1
        if instance.error is not None:
            errors.append(instance.error)
        elif instance.state == "died":
            lost.append(f"{instance.name}: {instance.cause}")
            shown.say(
                f"instance {instance.name} died ({instance.cause}); the others take over its partitions"
            )

    with RunSupervisor(share(job, instances), shown, ended) as supervisor:

        def asked(name: str) -> None:
            shown.say(f"{name}: asking all instances to give their claims back (once more to kill them)")
            supervisor.stop()

        with Signals(asked, supervisor.kill):
            supervisor.wait()
    errors += [r.error for r in supervisor.reports if r.error is not None]
    return supervisor.reports, lost, errors[0] if errors else None


_HURRIED = "left without giving the claims back: they are free when their leases have run out"


def _result(
    context: CommandContext,
    name: str,
    reports: list[Report],
    lost: list[str],
    error: PenstockError | None,
    seconds: float,
) -> Result:
    from penstock.batch.runs import exchanges, runs
    from penstock.control.claims import PartitionState
    from penstock.core.ranges import PartitionName

    run = runs.find(context.store, name)
    if run is None or (error is not None and not reports):
        # It did not come so far as to begin.
        raise error or PenstockError(f"run {name!r} ended before it began: {'; '.join(lost)}")
    boards = runs.boards(context.store, run)
    summary = runs.summary(context.store, run)
    assert summary is not None  # a run that can be found has a board
    poisoned = [
        str(PartitionName(phase, v.range))
        for phase, board in enumerate(boards)
        if summary.poisoned.partitions
        for v in board.partitions({PartitionState.POISONED})
    ]
    left_out = tuple(exchanges.left_out(context.store, run))
    open_work = summary.pending.partitions + summary.claimed.partitions
    worst = next((e for e in ("halted", "interrupted", "stopped") for r in reports if r.ending == e), None)
    waiting = len(boards) if len(boards) < len(run.every_phase) else None
    # Later phases wait for what was set aside, unless something else kept them from beginning.
    ending: str
    if open_work or (waiting and (worst or not poisoned)):
        ending = worst or "instances lost"
    else:
        ending, error = "incomplete" if poisoned or left_out else "complete", None
    told = in_commands(error) if error is not None else None
    return Result(run, ending, summary, reports, lost, poisoned, seconds, told, {}, left_out, waiting)
