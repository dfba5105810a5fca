"""Spark's own servers out of the wheel: a master with workers that come and go, and a Connect server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import pyspark

from penstock.spark import java
from servers.ports import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
_PATIENCE = 90


class SparkCluster:
    """A master on this machine, and workers that can be added and killed. Logs and work lie in ``folder``.

    Each has a loopback address of its own: Spark takes them for different machines.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._settings = folder / "spark.conf"
        self._numbers = count(1)
        self._servers = ExitStack()
        [port] = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self._settings.write_text("spark.master.rest.enabled false\n")
        command = self._command("org.apache.spark.deploy.master.Master", "127.0.0.1", "--port", str(port))
        self._start("master", "I have been elected leader", command)

    def add_worker(self, cores: int = 2, memory: str = "1g", prefix: Sequence[str] = ()) -> SparkWorker:
        """One more worker; it has registered when this returns. ``prefix``: what its command begins with."""
        number = next(self._numbers)
        name, host = f"worker{number}", f"127.0.0.{number + 1}"
        work = self._folder / name
        options = ("-c", str(cores), "-m", memory, "-d", str(work), self.url)
        command = [*prefix, *self._command("org.apache.spark.deploy.worker.Worker", host, *options)]
        return SparkWorker(work, self._start(name, "Successfully registered with master", command))

    def close(self) -> None:
        self._servers.close()

    def _command(self, name: str, host: str, *options: str) -> list[str]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, "--host", host]
        command += ["--properties-file", str(self._settings), "--webui-port", str(free_ports(1)[0])]
        return [*command, *options]

    def _start(self, name: str, ready: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return self._servers.enter_context(_running(self._folder / f"{name}.log", ready, command))


class SparkWorker:
    """A worker, and the executors that it started."""

    def __init__(self, work: Path, process: subprocess.Popen[bytes]) -> None:
        self._work = work
        self._process = process

    @property
    def executors(self) -> list[Path]:
        """What the executors of this worker wrote, one file each."""
        return sorted(self._work.glob("app-*/*/stderr"))

    def leave(self) -> None:
        """End it as a shutdown of its machine does: asked first, its executors with it."""
        _stop(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """End it and its executors at once, as a crash of the machine would."""
        _stop(self._process, signal.SIGKILL)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A master without workers."""
    cluster = SparkCluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def spark_connect(folder: Path) -> Iterator[str]:
    """A Spark Connect server with two cores: its address."""
    [port] = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = _submit("org.apache.spark.sql.connect.service.SparkConnectServer", settings)
    with _running(folder / "connect.log", "Spark Connect server started", command):
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def spark_thrift(folder: Path) -> Iterator[str]:
    """Spark's Thrift server, which speaks HiveServer2's protocol, with two cores: its address for JDBC."""
    [port] = free_ports(1)
    settings = {
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:thrift;create=true",
    }
    command = _submit("org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", settings)
    command += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    command += ["--hiveconf", f"hive.server2.thrift.port={port}"]
    with _running(folder / "thrift.log", "HiveThriftServer2 started", command):
        yield f"jdbc:hive2://127.0.0.1:{port}/default"


def _submit(main: str, settings: Mapping[str, str]) -> list[str]:
    """The command that runs a server of Spark's own in this place, with two cores and without a web page."""
    usual = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    command = [str(SPARK_HOME / "bin" / "spark-submit")]
    command += [
        part for key, value in (usual | {**settings}).items() for part in ("--conf", f"{key}={value}")
    ]
    return [*command, "--class", main, "spark-internal"]


@contextmanager
def _running(log: Path, ready: str, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process group of its own, from when it says that it is ready."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find().home),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _PATIENCE
        while ready not in (text := log.read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{log.stem} did not start: {text[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        _stop(process, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    for each in (how, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, each)
            process.wait(20)
            return
