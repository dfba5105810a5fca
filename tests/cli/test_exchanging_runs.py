"""What the commands tell of a run whose later phases wait for poisoned partitions, or did not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.batch.exchange.packing import plan
from penstock.batch.runs import exchanges, runs
from penstock.batch.runs.runs import RUN, PhaseRecord, Run
from penstock.cli import exits
from penstock.cli.actions.running import Result
from penstock.control.claims import register
from penstock.core.ranges import Range
from penstock.store import Store, open_store
from tests.cli.program import Cli

PHASES = (
    PhaseRecord("rows of trades", (0, 1), (), 2000, 500, ("trades:symbol",)),
    PhaseRecord("keys trades.symbol", (1, 2), ("trades", "volumes"), reads={"trades": (0, "trades:symbol")}),
)


@pytest.fixture
def store(run: Cli) -> Iterator[Store]:
    """That of a run with an exchange, whose partition 500-1000 is poisoned."""
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        document = store.get(runs.key("trades"))
        assert document is not None
        store.cas(
            document.key, document.version, RUN.encode(replace(runs.load(store, "trades"), phases=PHASES))
        )
        yield store


def _planned(store: Store, without: list[str]) -> None:
    """The second phase is begun: one key range."""
    record = runs.load(store, "trades")
    made = plan([], buckets=16, target_bytes=1, at_least=1, made_of={}, without=without)
    store.cas(exchanges.plan_key(record, 1), 0, made.encode())
    register(store, record.place(1), 1, 1, 5)


def test_a_partition_that_came_too_late_is_not_computed_for_nothing(run: Cli, store: Store) -> None:
    _planned(store, ["500-1000"])
    result = run("partitions", "retry", "trades", "500-1000")
    assert result.exit_code != 0
    assert "phase 1 of run 'trades' began without partition 500-1000" in result.output
    assert "--run NAME" in result.output
    result = run("partitions", "retry", "trades", "--all")
    assert result.exit_code == 0
    assert "too late for 500-1000" in result.output
    assert "0 partitions can be claimed again" in result.output
    assert "later phases began without 500-1000" in run("runs", "show", "trades").output
    assert json.loads(run("runs", "show", "trades", "--json").stdout)["left_out"] == ["500-1000"]


def test_partitions_of_later_phases_are_retried(run: Cli, store: Store) -> None:
    _planned(store, [])
    boards = runs.boards(store, runs.load(store, "trades"))
    boards[1].poison(Range(0, 1), "bad")
    assert "1:0-1" in run("partitions", "ls", "trades", "--state", "poisoned").output
    assert "1 partition can be claimed again" in run("partitions", "retry", "trades", "1:0-1").output
    assert [view.state for view in boards[1].partitions()] == ["pending"]


def _advice(record: Run, poisoned: list[str], left_out: list[str], waiting: int | None) -> str:
    nothing: Any = None
    result = Result(record, "incomplete", nothing, [], [], poisoned, 0.0, None, {}, left_out, waiting)
    assert result.code == exits.INCOMPLETE
    return result.advice()


def test_the_end_of_a_run_says_what_waits_and_how_to_go_on(store: Store) -> None:
    record = runs.load(store, "trades")
    waits = _advice(record, ["500-1000"], [], 1)
    assert "poisoned: 500-1000" in waits
    assert "phase 1 waits for them" in waits
    assert "penstock runs resume trades --without-poisoned" in waits
    assert "penstock partitions retry trades --all" in waits
    late = _advice(record, ["500-1000"], ["500-1000"], None)
    assert "later phases began without the rows of 500-1000" in late
    assert "--run NAME" in late and "retry" not in late
    both = _advice(record, ["500-1000", "1:0-1"], ["500-1000"], None)
    assert "began without the rows of 500-1000" in both and "penstock partitions retry trades --all" in both


def test_the_option_is_one_of_run_and_resume(run: Cli) -> None:
    for command in (["run"], ["runs", "resume"]):
        assert "--without-poisoned" in run(*command, "--help").output
