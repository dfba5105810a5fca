"""Two instances, one ``kill -9``, and a proof that nothing was lost, doubled or computed needlessly."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import penstock as ps
from demo import plain
from demo.account import Claimed, lives, recomputed
from demo.killing import Death, kill_in_the_middle
from demo.ledger import Ledger
from demo.scene import Scene, make_trades, prepare, register
from demo.screen import screen
from penstock.batch.runner.events import Event
from penstock.store import Store
from penstock.workers.run_instances import RunSupervisor


class Verdicts:
    """What was claimed to be exact, and whether it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.ok = True

    def add(self, ok: bool, text: str) -> None:
        self.ok = self.ok and ok
        mark, style = ("✓", "green") if ok else ("✗", "bold red")
        self._console.print(Text(f"  {mark} ", style) + Text(text, "" if ok else style))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    began = time.monotonic()
    _heading(console, f"Making {options.rows:,} trades")
    scene = prepare(options.folder.resolve(), options.rows, options.partitions)
    make_trades(scene)
    with ps.open_store(scene.config.store) as store:
        register(scene, store)
        ledger, death = _run(console, scene, store)
        return _account(console, scene, store, ledger, death, began)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m demo", description="See a pipeline survive kill -9.")
    parser.add_argument("--rows", type=int, default=2_000_000, help="trades to make (default: two million)")
    parser.add_argument("--partitions", type=int, default=20, help="in how many pieces (default: 20)")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where (default: .demo)")
    return parser.parse_args(arguments)


def _run(console: Console, scene: Scene, store: Store) -> tuple[Ledger, Death | None]:
    """Two instances work on the run; one of them is killed."""
    stages = scene.project.pipeline.stages
    partitions = -(-scene.rows // (scene.config.run.partition_rows or scene.rows))
    names = " → ".join("+".join(stage.names) for stage in stages)
    _heading(console, f"Two instances run {names} over {partitions} partitions")
    ledger = Ledger()
    with screen(console, ledger, partitions, len(stages)) as shown:

        def listen(event: Event) -> None:
            ledger(event)
            shown.tell(event)

        supervisor = RunSupervisor(scene.jobs(), listen)
        with _stderr_to(scene.log):
            supervisor.__enter__()
        try:
            shown.instances = supervisor.instances
            for instance in supervisor.instances:
                shown.say(f"{instance.name} is process {instance.pid}, with a Spark session of its own")
            death = kill_in_the_middle(supervisor, ledger, store, scene.run, partitions, shown.look)
            if death is not None:
                held = ", ".join(str(view.range) for view in death.held)
                shown.say(
                    f"💀 kill -9 {death.pid}: {death.instance} dies while it works on {held}", "bold red"
                )
            supervisor.wait()
        except BaseException:
            supervisor.kill()
            raise
        finally:
            supervisor.__exit__(None, None, None)
        shown.say("the run has ended")
    return ledger, death


def _account(
    console: Console, scene: Scene, store: Store, ledger: Ledger, death: Death | None, began: float
) -> int:
    claimed = lives(ledger.events)
    stages = [" + ".join(stage.names) for stage in scene.project.pipeline.stages]
    _heading(console, "Who claimed what")
    console.print(_claims(claimed, stages, death))
    _heading(console, "Is it exact?")
    verdicts = Verdicts(console)
    if death is None:
        verdicts.add(False, f"nobody was killed: the run ended too early (see {scene.log})")
        return 1
    cost = recomputed(claimed, death, len(stages))
    verdicts.add(
        cost.as_expected and all(c.finished for c in claimed),
        f"computed again: {cost.rows:,} rows, for the one stage that each of {cost.claims} claims was at "
        f"({cost.rows / cost.total:.1%} of all work)",
    )
    verdicts.add(True, f"taken from checkpoints: {cost.reused:,} rows of the stages before it")
    found = ps.verify(store, scene.run)
    verdicts.add(found.ok, f"verify: {found.rows_in:,} of {scene.rows:,} input rows processed once")
    for check in found.checks:
        if not check.ok:
            verdicts.add(False, f"verify: {check.name}: {check.detail}")
    if not found.ok:
        return 1
    for result in _compared(console, scene, store):
        verdicts.add(
            result.equal and result.rows == result.plain_rows,
            f"{result.table}: {result.rows:,} rows, "
            + ("equal to plain Spark's, value by value" if result.equal else "NOT what plain Spark computes"),
        )
    _heading(console, f"{time.monotonic() - began:.0f} seconds. Look around:")
    for command in _commands(scene):
        console.print(Text(f"  {command}", "cyan"), soft_wrap=True)
    return 0 if verdicts.ok else 1


def _compared(console: Console, scene: Scene, store: Store) -> list[plain.Comparison]:
    folder = scene.folder / "plain"
    with console.status("The same in plain Spark …") if console.is_terminal else _nothing():
        with _stderr_to(scene.log):
            spark = ps.start_spark(ps.SparkConfig(master="local[2]", fast_start=True), app_name="plain")
        try:
            plain.compute(spark, scene.trades, folder)
        finally:
            spark.stop()
        results = plain.compare(ps.Output(store, scene.run), folder)
    shutil.rmtree(folder)
    return results


def _claims(claimed: Sequence[Claimed], stages: Sequence[str], death: Death | None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", "claimed by", "token", "began with"):
        table.add_column(name, justify="right" if name == "token" else "left")
    for each in claimed:
        first = each.resumed_at
        owners = Text(" → ").join(
            Text(f"{owner} 💀" if death and owner == death.instance and n + 1 < len(each.owners) else owner)
            for n, owner in enumerate(each.owners)
        )
        if first:
            began = f"stage {first} ({stages[first]}), from its checkpoint"
        else:
            began = "its key range, from the exchange" if each.partition.phase else "stage 0, from the input"
        style = "bold" if len(each.owners) > 1 else "dim"
        table.add_row(str(each.partition), owners, " → ".join(map(str, each.tokens)), began, style=style)
    return table


def _commands(scene: Scene) -> list[str]:
    command = Path(sys.executable).with_name("penstock")
    folder = os.path.relpath(scene.folder)
    program = os.path.relpath(command, scene.folder)
    return [
        f"cd {folder} && {program} runs show {scene.run}",
        f"cd {folder} && {program} runs verify {scene.run}",
        f"cd {folder} && {program} partitions ls {scene.run}",
    ]


def _heading(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", "bold"))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let processes started inside the block write to a file: Spark is talkative when it is killed."""
    kept = os.dup(2)
    with path.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())
