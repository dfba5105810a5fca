"""What `partitions retry` advises is not refused afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.batch.runs import runs
from penstock.batch.runs.manifests import Fingerprint
from penstock.batch.runs.runs import Run
from penstock.cli import exits
from penstock.store import open_store
from tests.cli.program import Cli

if TYPE_CHECKING:
    import pytest


def _change(cli: Cli, change: Callable[[Run], Run]) -> None:
    with open_store(f"sqlite:///{cli.folder}/.penstock/store.db") as store:
        document = store.get(runs.key("trades"))
        assert document is not None
        changed = change(runs.RUN.decode(document.key, document.value))
        store.cas(document.key, document.version, runs.RUN.encode(changed))


def _advice(cli: Cli) -> str:
    result = cli("partitions", "retry", "trades", "500-1000")
    assert result.exit_code == exits.COMPLETE, result.output
    return result.stderr


def _as_it_is(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the code were the one that the run began with."""
    from penstock.cli.commands import partitions

    def current(context: object, project: object, run: Run) -> Fingerprint:
        return run.fingerprint

    monkeypatch.setattr(partitions, "fingerprint_without_spark", current)


def test_code_that_changed_needs_a_word(run: Cli) -> None:
    told = _advice(run)
    assert "code of stage 0" in told
    assert "next: penstock runs resume trades --accept-changed-code keeps 1 partition" in told


def test_code_that_is_the_same_needs_none(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_it_is(run, monkeypatch)
    assert _advice(run).rstrip().endswith("next: penstock runs resume trades")


def test_a_file_that_is_gone_or_was_never_known(run: Cli) -> None:
    (run.folder / "trades.py").rename(run.folder / "moved.py")
    assert "next: penstock runs resume trades --file FILE[:NAME]" in _advice(run)
    _change(run, lambda old: replace(old, source=""))
    assert "start its Runner again" in _advice(run)


def test_data_that_changed(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_it_is(run, monkeypatch)
    with (run.folder / "data/trades.csv").open("a") as file:
        file.write("2000,ACME,1.0,1,2026-01-05T10:00:00Z\n")
    assert "it cannot go on yet" in _advice(run)


def test_an_output_that_takes_no_files(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    _as_it_is(run, monkeypatch)
    (run.folder / "output").write_text("not a folder")
    assert "nothing can be written to" in _advice(run)
    resumed = run("runs", "resume", "trades")
    assert resumed.exit_code == exits.RESUMABLE
    assert "error[storage-unusable]" in resumed.stderr


def test_an_output_below_a_file_is_refused_before_anything(project: Cli) -> None:
    (project.folder / "file").write_text("")
    result = project("run", "trades.py", "--input", "trades=data/trades.csv", "--output", "file/below")
    assert result.exit_code == exits.USAGE
    assert "nothing can be written to" in result.stderr
    assert "nothing was begun" in result.stderr
    assert "give another --output" in result.stderr
    assert project.json("runs", "ls") == []


def test_one_row_is_not_one_rows(project: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.cli.commands import run as command

    def stop(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "execute", stop)
    lines = (project.folder / "data/trades.csv").read_text().splitlines()[:2]
    (project.folder / "one.csv").write_text("\n".join(lines) + "\n")
    result = project("run", "trades.py", "--input", "trades=one.csv")
    assert "input trades.trades: 1 row in 1 partition, " in result.stderr


def test_attempts_are_not_partitions(run: Cli) -> None:
    from penstock.batch.runner import Report
    from penstock.cli.actions.running import Result
    from penstock.cli.output import Facts
    from penstock.control.claims.views import Count, PartitionSummary

    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        record = runs.load(store, "trades")
    none = Count()
    summary = PartitionSummary(none, none, none, Count(3, 1500), none, 15)
    report = Report("trades", "a", "incomplete", failed=15, poisoned=3, resumed=4)
    result = Result(record, "incomplete", summary, [report], [], [], 1.0, touched={"failed": 3, "resumed": 2})
    (facts,) = result.blocks()
    assert isinstance(facts, Facts)
    told = dict(facts.pairs)
    assert told["failed"] == "15 attempts at 3 partitions"
    assert told["resumed"] == "4 times at 2 partitions"
