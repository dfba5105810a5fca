"""Commands that need no Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.batch.inputs.model import REGISTRATION
from penstock.batch.runs import runs, views
from penstock.cli import exits
from penstock.errors import RunMismatch
from penstock.server.system.shapes import TABLES
from penstock.store import open_store
from tests.cli.program import Cli


def test_init_refuses_to_overwrite(project: Cli) -> None:
    (project.folder / "trades.py").write_text("mine")
    (project.folder / "penstock.toml").unlink()
    result = project("init", "--no-archive")
    assert result.exit_code == exits.USAGE
    assert "trades.py" in result.stderr
    assert (project.folder / "trades.py").read_text() == "mine"
    assert not (project.folder / "penstock.toml").exists()


def test_the_file_that_init_writes_says_the_defaults(project: Cli, monkeypatch: object) -> None:
    settings = project.json("config", "show")["settings"]
    assert settings["run.partition_rows"] == {"value": 500, "origin": "penstock.toml"}
    text = (project.folder / "penstock.toml").read_text()
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    (project.folder / "penstock.toml").write_text(
        "\n".join(line for line in lines if "=" in line or "[" in line[:1])
    )
    again = project.json("config", "show")["settings"]
    assert {k: v["value"] for k, v in again.items() if k in settings} == {
        k: v["value"] for k, v in settings.items()
    }


def test_secrets_are_not_shown(project: Cli) -> None:
    (project.folder / "penstock.toml").write_text('[spark.conf]\n"spark.hadoop.fs.s3a.secret.key" = "hush"\n')
    result = project("config", "show")
    assert "secret.key" in result.stdout
    assert "hush" not in result.stdout


def test_a_flag_wins_over_the_file(project: Cli) -> None:
    settings = project.json("config", "show", "--storage", "elsewhere")["settings"]
    assert settings["storage"] == {"value": str(project.folder / "elsewhere"), "origin": "flag"}


def test_plan_of_a_pipeline_that_never_ran(project: Cli) -> None:
    plan = project.json("plan", "trades.py")
    assert plan["run"] is None
    assert [[t["name"] for t in s["transforms"]] for s in plan["pipeline"]["stages"]] == [
        ["validate"],
        ["value"],
        ["volumes"],
    ]
    assert [s["checkpoint"] for s in plan["pipeline"]["stages"]] == [True, False, False]
    assert [(p["cut"], p["stages"]) for p in plan["pipeline"]["phases"]] == [
        ("rows of trades", [0, 1]),
        ("keys trades.symbol", [2]),
    ]
    text = project("plan", "trades.py", "--checkpoint", "every:2").stdout
    assert "checkpoint:" not in text
    assert "because volumes: brings rows together by trades.symbol" in text
    assert "exchange to phase 1: trades(notional, symbol) by symbol" in text
    assert "trades.py:" in text
    assert not (project.folder / ".penstock").exists()


def test_plan_of_a_run_in_progress(run: Cli) -> None:
    plan = run.json("plan", "trades.py")["run"]
    assert plan["untouched"] == 1
    # The run was begun before anything was exchanged, and its input is small.
    assert "rows were cut by row ranges alone, and are by everything" in plan["code_changed"][0]
    assert plan["code_changed"][1] == "code of stage 0 (validate) changed"
    assert {p["state"] for p in plan["partitions"]} == {"completed", "poisoned", "claimed"}
    text = run("plan", "trades.py").stdout
    assert "1 partition not begun" in text
    assert "recompute" in text


def test_runs(run: Cli) -> None:
    (listed,) = run.json("runs", "ls")
    assert listed["run"] == "trades"
    assert listed["state"] == "running"
    assert listed["partitions"]["completed"] == {"partitions": 1, "rows": 500}
    assert run.json("runs", "show", "trades")["owners"] == {"a": 1}
    text = run("runs", "show", "trades").stdout
    assert "500 of 2,000 done" in text
    assert run("runs", "ls").stdout.splitlines()[0].split()[:3] == ["run", "pipeline", "state"]


def test_addresses_of_a_run_are_shown_without_secrets(run: Cli) -> None:
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        record = replace(
            runs.load(store, "trades"),
            output="s3://key:hush@bucket/out",
            storage="s3://bucket/work?secret_key=hush",
        )
        document = store.get("runs/trades/run")
        assert document is not None
        store.cas(document.key, document.version, runs.RUN.encode(record))
        row = TABLES["runs"].row(views.one(store, "trades"))
        assert row["output"] == "s3://key:***@bucket/out"
        wanted = replace(record, output="elsewhere", storage="elsewhere")
        with pytest.raises(RunMismatch) as caught:
            runs.start(store, wanted, max_failures=5, accept_changed_code=False)
    assert "s3://key:***@bucket/out" in caught.value.what and "hush" not in caught.value.what
    (listed,) = run.json("runs", "ls")
    shown = run.json("runs", "show", "trades")
    for each in listed, shown:
        assert each["output"] == "s3://key:***@bucket/out"
        assert each["storage"] == "s3://bucket/work?secret_key=***"
    text = run("runs", "show", "trades").stdout
    assert "key:***@bucket" in text and "hush" not in text


def test_addresses_of_an_input_are_shown_without_secrets(run: Cli) -> None:
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        document = store.get("inputs/trades.trades")
        assert document is not None
        secret = "s3://key:hush@bucket/x"
        found = replace(REGISTRATION.decode("k", document.value), source=secret, storage=secret)
        store.cas(document.key, document.version, REGISTRATION.encode(found))
        elsewhere = replace(found, name="far", details="inputs/far/files.json")
        store.cas("inputs/far", 0, REGISTRATION.encode(elsewhere))
    for each in run.json("inputs", "ls"):
        assert (each["source"], each["storage"]) == ("s3://key:***@bucket/x",) * 2
    for said in run("inputs", "ls"), run("inputs", "ls", "--json"), run("inputs", "show", "trades.trades"):
        assert "***" in said.stdout and "hush" not in said.stdout
    far = run("inputs", "show", "far")
    assert "***" in far.stderr and "hush" not in far.stderr


def test_no_runs_is_an_empty_answer(project: Cli) -> None:
    assert project.json("runs", "ls") == []
    assert project.json("inputs", "ls") == []
    assert not (project.folder / ".penstock").exists()


def test_verify_of_a_run_that_is_not_done_fails(run: Cli) -> None:
    result = run("runs", "verify", "trades", "--json")
    assert result.exit_code == exits.UNVERIFIED
    assert json.loads(result.stdout)["ok"] is False
    assert "NOT VERIFIED" in run("runs", "verify", "trades").stdout


def test_export_of_a_run_that_is_not_done_is_refused(run: Cli) -> None:
    result = run("runs", "export", "trades", "out")
    assert result.exit_code == exits.FAILED
    assert "--partial" in result.stderr


def test_resume_without_a_file_says_what_to_give(run: Cli) -> None:
    (run.folder / "trades.py").rename(run.folder / "moved.py")
    result = run("runs", "resume", "trades")
    assert result.exit_code == exits.USAGE
    assert "there is no file" in result.stderr


def test_a_run_at_work_is_not_dropped(run: Cli) -> None:
    result = run("runs", "gc", "trades", "--drop")
    assert result.exit_code == exits.FAILED
    assert run("partitions", "release", "trades", "1000-1500").exit_code == 0
    assert run("runs", "gc", "trades", "--drop", "--dry-run").exit_code == 0
    assert len(run.json("runs", "ls")) == 1
    assert run("runs", "gc", "trades", "--drop").exit_code == 0
    assert run.json("runs", "ls") == []


def test_drop_needs_a_name(run: Cli) -> None:
    assert run("runs", "gc", "--drop").exit_code == exits.USAGE


def test_partitions(run: Cli) -> None:
    states = [p["state"] for p in run.json("partitions", "ls", "trades")]
    assert states == ["completed", "poisoned", "claimed", "pending"]
    (poisoned,) = run.json("partitions", "ls", "trades", "--state", "poisoned")
    assert poisoned["range"] == "500-1000"
    short = run("partitions", "ls", "trades", "--limit", "1")
    assert len(short.stdout.splitlines()) == 2
    assert "--from 500" in short.stderr


def test_release_and_retry(run: Cli) -> None:
    assert run.json("partitions", "release", "trades", "1000-1500")["pending"] == ["1000-1500"]
    result = run("partitions", "retry", "trades", "--all")
    assert result.exit_code == 0
    assert "penstock runs resume trades" in result.stderr
    assert [p["state"] for p in run.json("partitions", "ls", "trades")] == ["completed", *["pending"] * 3]


def test_wrong_partitions(run: Cli) -> None:
    unknown = run("partitions", "release", "trades", "3-4")
    assert unknown.exit_code == exits.FAILED
    assert "penstock partitions ls trades" in unknown.stderr
    assert run("partitions", "release", "trades", "x").exit_code == exits.USAGE
    assert run("partitions", "retry", "trades").exit_code == exits.USAGE
    assert run("partitions", "retry", "trades", "500-1000", "--all").exit_code == exits.USAGE


def test_checkpoints_of_a_run_without_any(run: Cli) -> None:
    assert run.json("checkpoints", "ls", "trades") == []
    assert run("checkpoints", "show", "trades", "0-500").exit_code == exits.FAILED
    assert run("checkpoints", "show", "trades", "0-5").exit_code == exits.FAILED


def test_inputs(run: Cli) -> None:
    (listed,) = run.json("inputs", "ls")
    assert (listed["name"], listed["total_rows"], listed["partitions"]) == ("trades.trades", 2000, 4)
    shown = run.json("inputs", "show", "trades.trades")
    assert shown["runs"] == ["trades"]
    assert shown["changed"] is None
    with (run.folder / "data/trades.csv").open("a") as file:
        file.write("2000,ACME,1.0,1,2026-01-05T10:00:00Z\n")
    assert "size" in run.json("inputs", "show", "trades.trades")["changed"]


def test_inputs_of_another_storage_are_listed_and_left_alone(run: Cli) -> None:
    (listed,) = run.json("inputs", "ls", "--storage", "elsewhere")
    assert (listed["name"], listed["total_rows"]) == ("trades.trades", 2000)
    assert "is registered in the storage" in listed["problem"]
    assert "is registered in the storage" in run("inputs", "ls", "--storage", "elsewhere").stdout
    for command in (("show",), ("drop",)):
        result = run("inputs", *command, "trades.trades", "--storage", "elsewhere")
        assert result.exit_code == exits.FAILED
        assert f"next: name that one, with --storage {listed['storage']}" in result.stderr
    assert run("inputs", "show", "trades.trades").exit_code == 0


def test_an_input_in_use_is_not_dropped(run: Cli) -> None:
    result = run("inputs", "drop", "trades.trades")
    assert result.exit_code == exits.USAGE
    assert "penstock runs resume trades" in result.stderr
    run("partitions", "release", "trades", "1000-1500")
    run("runs", "gc", "trades", "--drop")
    assert run.json("inputs", "ls") == []


def test_doctor(project: Cli) -> None:
    found = project.json("doctor")
    assert found["ok"]
    names = {f["name"]: f for f in found["findings"]}
    assert {"Python", "pyspark", "Java", "class archive", "store", "storage", "free space"} <= names.keys()
    assert not (project.folder / ".penstock").exists()


def test_doctor_says_what_is_broken(project: Cli) -> None:
    (project.folder / "file").write_text("")
    result = project("doctor", "--storage", "file/below", "--json")
    assert result.exit_code == exits.FAILED
    (broken,) = [f for f in json.loads(result.stdout)["findings"] if f["status"] == "broken"]
    assert broken["name"] == "storage"
    assert broken["fix"]
    assert "BROKEN" in project("doctor", "--storage", "file/below").stdout


def test_run_wants_its_inputs(project: Cli) -> None:
    missing = project("run", "trades.py", "--output", "out")
    assert missing.exit_code == exits.USAGE
    assert "next: add --input trades=PATH" in missing.stderr
    unknown = project("run", "trades.py", "--input", "trade=x.csv")
    assert "did you mean 'trades'?" in unknown.stderr
    assert "it wants --input trades=PATH" in unknown.stderr
    bare = project("run", "trades.py", "--input", "data/trades.csv")
    assert "write --input trades=data/trades.csv" in bare.stderr


def test_an_input_that_differs_has_a_way_out(run: Cli) -> None:
    other = Path("other.csv")
    other.write_text((run.folder / "data/trades.csv").read_text())
    result = run("run", "trades.py", "--input", "trades=other.csv")
    assert result.exit_code == exits.FAILED
    assert "was started with other data for trades" in result.stderr
    assert "--run NAME" in result.stderr


def test_a_run_without_a_board_is_not_begun(run: Cli) -> None:
    with open_store(f"sqlite:///{run.folder}/.penstock/store.db") as store:
        key = runs.load(store, "trades").key
        for document in list(store.scan(f"runs/{key}/")):
            store.cas(document.key, document.version, None)
    (listed,) = run.json("runs", "ls")
    assert (listed["state"], listed["partitions"]) == ("not begun", None)
    assert "not begun" in run("runs", "ls").stdout
    shown = run("runs", "show", "trades")
    assert shown.exit_code == 0
    assert "trades (not begun)" in shown.stdout
    assert run("runs", "gc").exit_code == 0
    assert run("runs", "gc", "trades", "--drop").exit_code == 0
    assert run.json("runs", "ls") == []
