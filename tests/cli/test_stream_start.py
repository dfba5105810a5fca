"""``penstock stream start``: what it refuses, and real instances that run, are killed and leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import exits
from penstock.errors import UsageError
from penstock.project import load, load_stream
from penstock.store import open_store
from penstock.streams import registry
from penstock.streams.supervisors import SupervisorEntry, Supervisors
from tests.cli.program import Cli

TOML = """
[spark]
master = "local[1]"
memory = "512m"
fast_start = true
[cluster]
lease_ttl = "4s"
renew_every = "1s"
member_ttl = "8s"
"""
STREAM = """
from __future__ import annotations
from penstock import Table
from penstock.sources.rate import RateSource, Ticks
from penstock.sinks import ParquetSink
from penstock import Stream
class Counts(Table):
    key: int
    count: int
stream = Stream("ticks")
ticks = stream.source("ticks", RateSource(parts=20, keys=5, {pace}))
stream.output("counts", ticks.key_by(Ticks.key).count(to=Counts), ParquetSink())
"""


@pytest.fixture
def file(cli: Cli) -> Path:
    path = cli.folder / "ticks.py"
    path.write_text(STREAM.format(pace="rows=10"))
    return path


def test_a_stream_is_loaded_by_its_name_or_variable(file: Path) -> None:
    project = load_stream("ticks.py")
    assert (project.stream.name, project.source) == ("ticks", f"{file}:stream")
    assert load_stream("ticks.py:ticks").stream is load_stream(project.source).stream
    with pytest.raises(UsageError, match="no stream 'tocks'") as wrong:
        load_stream("ticks.py:tocks")
    assert "ticks (variable stream)" in (wrong.value.hint or "")
    with pytest.raises(UsageError, match="defines no pipeline"):
        load("ticks.py")


def test_the_plan_of_a_stream(cli: Cli, file: Path) -> None:
    text = cli("stream", "plan", "ticks.py").stdout
    assert "source ticks" in text and "output counts" in text
    assert "02    aggregate  01" in text and "parquet" in text
    assert set(cli.json("stream", "plan", "ticks.py")) == {"sources", "outputs"}


def test_another_definition_is_refused_before_anything_starts(cli: Cli, file: Path) -> None:
    with open_store(f"sqlite:///{cli.folder}/.penstock/store.db") as store:
        made = registry.open_stream(store, "ticks", load_stream("ticks.py").stream.describe())
        file.with_name("later.py").write_text(file.read_text().replace('"counts"', '"sums"'))
        result = cli("stream", "start", "later.py")
        assert result.exit_code == exits.FAILED
        assert "output counts is gone; output sums is new" in result.stderr
        assert "--accept-changes" in result.stderr
        assert registry.load(store, "ticks") == made


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No instance is started: the command ends as if a signal had come at once."""
    seen: list[str] = []

    def leave(*_: object) -> str:
        seen.append("supervised")
        return "left"

    monkeypatch.setattr("penstock.cli.actions.streaming.supervise", leave)
    return seen


def test_starting_lets_a_stopped_stream_run_again(cli: Cli, file: Path, asked_for: list[str]) -> None:
    with open_store(f"sqlite:///{cli.folder}/.penstock/store.db") as store:
        assert cli("stream", "start", "ticks.py").exit_code == exits.COMPLETE
        registry.wish(store, "ticks", wanted="stopped")
        cli("stream", "start", "ticks.py")
        assert registry.load(store, "ticks").wanted == "running"
        registry.wish(store, "ticks", wanted="suspended")
        assert "penstock stream resume ticks" in cli("stream", "start", "ticks.py").stdout
        assert registry.load(store, "ticks").wanted == "suspended"
    assert len(asked_for) == 3


def test_a_number_of_instances_replaces_an_earlier_rescale_unless_others_share_it(
    cli: Cli, file: Path, asked_for: list[str]
) -> None:
    with open_store(f"sqlite:///{cli.folder}/.penstock/store.db") as store:
        cli("stream", "start", "ticks.py")
        record = registry.wish(store, "ticks", instances=3)
        assert "rescaled to 3 instances in all" in cli("stream", "start", "ticks.py").stdout
        cli("stream", "start", "ticks.py", "--instances", "2")
        assert registry.load(store, "ticks").instances is None
        registry.wish(store, "ticks", instances=3)
        other = SupervisorEntry("s", store.session(60).id, "here", 17, 1)
        Supervisors(store, record.layout).enter(other)
        told = cli("stream", "start", "ticks.py", "--instances", "2").stdout
        assert "--instances does not count" in told
        assert registry.load(store, "ticks").instances == 3


class Starter:
    """``penstock stream start`` as a process, whose events can be waited for."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "stream", "start", "ticks.py", "--json", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._stderr: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._readers = [
            threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._stderr.extend(lines)

    def told(self, kind: str, text: str = "") -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == kind and text in each["text"]]

    def wait_for(self, ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not ready():
            assert self._process.poll() is None and time.monotonic() < deadline, self.account()
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def children(self) -> list[int]:
        """The pids of its instances, in the order of their start."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        pairs = [line.split() for line in listed.splitlines()]
        return sorted(int(pid) for pid, parent in pairs if parent == str(self._process.pid))

    def end(self) -> int:
        code = self._process.wait(120)
        for reader in self._readers:
            reader.join(20)
        return code

    def account(self) -> str:
        return "\n".join([*(each["text"] for each in self.events), *self._stderr])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.end()


@pytest.fixture
def starter(cli: Cli) -> Iterator[Callable[..., Starter]]:
    (cli.folder / "penstock.toml").write_text(TOML)
    started: list[Starter] = []

    def start(pace: str, *arguments: str) -> Starter:
        (cli.folder / "ticks.py").write_text(STREAM.format(pace=pace))
        started.append(Starter(cli.folder, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_stream_runs_to_its_end(cli: Cli, starter: Callable[..., Starter]) -> None:
    running = starter("rows=100")
    assert running.end() == exits.COMPLETE, running.account()
    assert running.told("joined") and running.told("output") and running.told("ended")
    assert sum(each["rows"] for each in running.told("progress")) == 2000
    counts = cli.json("stream", "show", "ticks", "counts")
    assert len(counts) == 5 and sum(each["count"] for each in counts) == 2000
    assert len(cli.json("stream", "show", "ticks", "ticks", "--limit", "9999")) == 2000
    status = cli.json("stream", "status", "ticks")
    assert (status["state"], status["sources"][0]["finished"]) == ("ended", 20)
    assert status["outputs"][0]["finished"] and status["outputs"][0]["behind_rows"] == 0
    again = starter("rows=100")
    assert again.end() == exits.COMPLETE
    assert [each["event"] for each in again.events] == ["ended"]


def status_of(cli: Cli) -> Any:
    """The status, whether it is a good one or not."""
    return json.loads(cli("stream", "status", "ticks", "--json").stdout)


def test_rescaled_killed_suspended_and_stopped(cli: Cli, starter: Callable[..., Starter]) -> None:
    running = starter("per_second=50")
    running.wait_for(lambda: running.told("joined"))
    assert cli("stream", "rescale", "ticks", "2", "--wait", "120").exit_code == exits.COMPLETE
    running.wait_for(lambda: running.told("rescaled"))
    status = status_of(cli)
    assert sum(each["parts"] for each in status["instances"]) == 20
    assert 0 < running.told("rescaled")[0]["moved"] < 1

    os.kill(running.children()[1], signal.SIGKILL)
    running.wait_for(lambda: running.told("problem", "died (killed by SIGKILL)"))
    running.wait_for(lambda: len(running.told("joined")) >= 3)

    assert cli("stream", "suspend", "ticks", "--wait", "60").exit_code == exits.COMPLETE
    suspended = status_of(cli)
    assert suspended["state"] == "suspended"
    assert cli("stream", "drop", "ticks", "--yes").exit_code == exits.FAILED
    assert cli("stream", "stop", "ticks", "--wait", "60").exit_code == exits.COMPLETE
    assert running.end() == exits.COMPLETE, running.account()
    assert running.told("stopped")
    assert status_of(cli)["rows"] >= suspended["rows"] > 0
    assert cli("stream", "drop", "ticks", "--yes").exit_code == exits.COMPLETE


def test_ctrl_c_leaves_with_everything_committed(cli: Cli, starter: Callable[..., Starter]) -> None:
    running = starter("per_second=50")
    running.wait_for(lambda: sum(each["rows"] for each in running.told("progress")))
    running.signal(signal.SIGINT)
    assert running.end() == exits.COMPLETE, running.account()
    assert running.told("leaving") and running.told("left")
    status = status_of(cli)
    assert (status["state"], status["wanted"], status["instances"]) == ("stopped", "running", [])
    assert status["rows"] == sum(each["rows"] for each in running.told("progress"))
