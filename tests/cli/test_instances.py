from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.batch.runner import Report
from penstock.config import RunConfig, SparkConfig
from penstock.errors import DefinitionError, StorageFull
from penstock.workers import jobs
from penstock.workers.children import error_from_json
from penstock.workers.jobs import divided
from penstock.workers.run_instances import RunChild, RunSupervisor, report_from_json, share
from penstock.workers.run_job import RunJob

if TYPE_CHECKING:
    import pytest

JOB = RunJob("nowhere.py", "r", "x", "sqlite:///store.db", "storage", settings=RunConfig(max_batches=5))


def test_a_job_travels() -> None:
    job = replace(JOB, spark=SparkConfig(conf={"spark.x": "1"}))
    assert RunJob.from_json(json.loads(json.dumps(job.to_json()))) == job


def test_the_machine_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "local_cores", lambda master: 4)
    monkeypatch.setattr(jobs, "_machine_mb", lambda: 4000)
    assert divided(SparkConfig(), 2) == SparkConfig(master="local[2]")
    assert divided(SparkConfig(), 8).master == "local[1]"
    assert divided(SparkConfig(master="local[4]"), 2).master == "local[4]"
    assert divided(SparkConfig(memory="4g"), 2).memory == "1600m"
    assert divided(SparkConfig(memory="4g"), 1).memory == "4g"


def test_batches_are_shared() -> None:
    jobs = share(JOB, 2)
    assert [j.instance.partition("-")[0] for j in jobs] == ["a", "b"]
    assert [j.settings.max_batches for j in jobs] == [3, 2]
    assert len(share(JOB, 9)) == 5
    assert [j.settings.max_batches for j in share(replace(JOB, settings=RunConfig()), 2)] == [None, None]


def test_instances_of_two_commands_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = ["3f2c", "77aa"]
    monkeypatch.setattr("secrets.token_hex", lambda _: suffixes.pop(0))
    names = [j.instance for _ in range(2) for j in share(JOB, 2)]
    assert names == ["a-3f2c", "b-3f2c", "a-77aa", "b-77aa"]


def test_errors_and_reports_travel() -> None:
    error = error_from_json({"code": "storage-full", "what": "no space", "left": "x", "next": "y"})
    assert type(error) is StorageFull
    assert (error.what, error.left, error.hint) == ("no space", "x", "y")
    report = Report("r", "a", "complete", acked=2, rows=7)
    assert report_from_json(report.to_json()) == report


def test_an_instance_tells_why_it_could_not_begin(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    ended: list[RunChild] = []
    job = replace(JOB, source=str(tmp_path / "broken.py"))
    with RunSupervisor([job], on_end=ended.append) as supervisor:
        assert supervisor.wait(60)
    (instance,) = supervisor.instances
    assert ended == [instance]
    assert isinstance(instance.error, DefinitionError)
    assert instance.code == 2
    assert instance.state == "ended"


def test_a_killed_instance_is_reported_with_its_signal(tmp_path: Path) -> None:
    with RunSupervisor([replace(JOB, source=_sleeper(tmp_path))]) as supervisor:
        (instance,) = supervisor.instances
        assert instance.name == "x"
        _wait_for(tmp_path / "pid")
        os.kill(instance.pid, signal.SIGKILL)
        assert supervisor.wait(30)
    assert instance.state == "died"
    assert instance.cause == "killed by SIGKILL"
    assert supervisor.reports == []


def test_instances_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    job = json.dumps(replace(JOB, source=_sleeper(tmp_path)).to_json())
    program = (
        "import json\nfrom penstock.workers.run_instances import RunSupervisor\n"
        "from penstock.workers.run_job import RunJob\n"
        f"with RunSupervisor([RunJob.from_json(json.loads({job!r}))]) as supervisor:\n    supervisor.wait()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    child = int(_wait_for(tmp_path / "pid"))
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while _lives(child):
        assert time.monotonic() < deadline, "the instance still runs"
        time.sleep(0.05)


def _sleeper(folder: Path) -> str:
    """A pipeline file that says who imports it and then takes for ever."""
    text = f"import os, time\nopen({str(folder / 'new')!r}, 'w').write(str(os.getpid()))\n"
    text += f"os.rename({str(folder / 'new')!r}, {str(folder / 'pid')!r})\ntime.sleep(600)\n"
    (folder / "sleeper.py").write_text(text)
    return str(folder / "sleeper.py")


def _wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.05)
    return path.read_text()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A dead process whose new parent has not looked yet counts as dead.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
