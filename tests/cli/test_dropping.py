"""Commands that remove things: the very ones that were meant, whatever happens while they wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.batch.runs import dropping, gc, runs
from penstock.cli import exits
from penstock.core.ranges import Range
from penstock.storage import Storage
from penstock.store import Store, open_store
from tests.cli.program import Cli

if TYPE_CHECKING:
    import pytest


def _answering(monkeypatch: pytest.MonkeyPatch, module: str, meanwhile: Callable[[], None]) -> None:
    """A person at a terminal who says yes, after something happened elsewhere."""

    def confirm(*arguments: object, **more: object) -> bool:
        meanwhile()
        return True

    terminal = SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(f"penstock.cli.commands.{module}.sys", terminal)
    monkeypatch.setattr("click.confirm", confirm)


def _anew(folder: Path, new_id: str) -> None:
    """Drop the run and start it anew, as another process does."""
    with open_store(f"sqlite:///{folder}/.penstock/store.db") as store:
        old = runs.load(store, "trades")
        dropping.drop(store, Storage(old.storage), old)
        made = replace(old, id=new_id)
        runs.start(store, made, max_failures=5, accept_changed_code=False)
        made.output_storage.write(f"trades/trades/{new_id}-000000000000-000000000500-000001-abcdef/x", b"new")


def test_a_drop_that_waits_at_its_prompt_spares_the_next_run(
    run: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("partitions", "release", "trades", "1000-1500")
    _answering(monkeypatch, "runs", lambda: _anew(run.folder, "feedbeef"))
    result = run("runs", "gc", "trades", "--drop")
    assert result.exit_code == exits.FAILED
    assert "another one of this name was started" in result.stderr
    assert "nothing was removed" in result.stderr
    (listed,) = run.json("runs", "ls")
    assert listed["id"] == "feedbeef"
    assert [path.read_text() for path in (run.folder / "output").rglob("x")] == ["new"]


def test_a_drop_looks_again_for_instances_after_its_prompt(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run("partitions", "release", "trades", "1000-1500")

    def claimed() -> None:
        with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
            runs.board(store, "trades").claim(store.session(60), "b")

    _answering(monkeypatch, "runs", claimed)
    result = run("runs", "gc", "trades", "--drop")
    assert result.exit_code == exits.FAILED
    assert "instances work on run 'trades' now: 1 partition is claimed" in result.stderr
    assert len(run.json("runs", "ls")) == 1


def test_gc_finishes_a_drop_that_was_interrupted(run: Cli) -> None:
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        old = runs.load(store, "trades")
        old.output_storage.write("trades/trades/0-000000000000-000000000500-000001-abcdef/x", b"old")
        dropping._forget(store, old)
    assert "would finish a drop" in run("runs", "gc", "--dry-run").stderr
    assert (run.folder / "output/trades").exists()
    assert "finishes a drop" in run("runs", "gc").stderr
    assert not (run.folder / "output/trades").exists()
    assert run.json("inputs", "ls") == []
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        assert list(store.scan("runs/")) == []


def test_an_input_that_is_registered_anew_meanwhile_is_not_dropped(
    project: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.batch import inputs
    from penstock.cli.actions import registering

    storage = Storage(project.folder / ".penstock/storage")

    def register(store: Store) -> inputs.Input:
        table = pa.table({"a": [1, 2]})
        return inputs.register(None, store, storage, "mine", table, partition_rows=1, replace=True)

    with open_store(f"sqlite:///{project.folder}/.penstock/store.db") as store:
        register(store)

    def anew(store: Store, name: str, digest: str) -> registering.InputUsers:
        inputs.drop(store, storage, name)
        register(store)
        return registering.InputUsers((), ())

    with monkeypatch.context() as patch:
        patch.setattr(registering, "users", anew)
        result = project("inputs", "drop", "mine")
    assert result.exit_code == exits.FAILED
    assert "registered anew meanwhile" in result.stderr
    with open_store(f"sqlite:///{project.folder}/.penstock/store.db") as store:
        found = inputs.load(store, storage, "mine")
        assert sum(s.rows for s in inputs.splits(found, storage, Range(0, 2), 1)) == 2
        assert all(Path(f.path).exists() for f in found.files)
    assert project("inputs", "drop", "mine").exit_code == 0


def test_replaced_inputs_stay_for_the_runs_that_read_them(run: Cli) -> None:
    from penstock.batch import inputs

    storage = Storage(run.folder / ".penstock/storage")
    name = "trades.trades"
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        first = inputs.load(store, storage, name)
        for rows in range(1, 21):
            table = pa.table({"a": list(range(rows))})
            inputs.register(None, store, storage, name, table, partition_rows=1, replace=True)
        assert gc.sweep_inputs(store, storage)[name].files == 3 * 19
    assert (kept := storage.list(first.folder))
    run("partitions", "release", "trades", "1000-1500")
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        runs.board(store, "trades").claim(store.session(600), "b")
    result = run("inputs", "drop", name)
    assert result.exit_code == exits.FAILED
    assert "instances work on run 'trades' now" in result.stderr
    assert storage.list(first.folder) == kept
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        dropping._forget(store, runs.load(store, "trades"))
    assert f"input {name}: would remove 2 files" in run("runs", "gc", "--dry-run").stderr
    assert storage.list(first.folder) == kept
    assert f"input {name}: removed 2 files" in run("runs", "gc").stderr
    assert storage.list(first.folder) == []
    assert f"input {name}" not in run("runs", "gc").stderr
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        assert inputs.load(store, storage, name).total_rows == 20
