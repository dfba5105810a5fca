"""The same command on a Spark cluster and through Spark Connect: real servers, real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from penstock.spark import java

EXAMPLE = Path(__file__).parents[2] / "examples" / "trades"
ROWS, PARTITION = 20_000, 10_000
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("remote")
    generate = [
        sys.executable,
        str(EXAMPLE / "generate.py"),
        str(path / "trades.parquet"),
        "--rows",
        str(ROWS),
    ]
    subprocess.run(generate, check=True)
    (path / "hidden").mkdir()
    return path


@dataclass(frozen=True)
class Cluster:
    url: str
    applications: Path


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    """A master and a worker with two cores that, like another machine, does not see all our folders."""
    settings = place / "spark.conf"
    settings.write_text("spark.master.rest.enabled false\n")
    common = ("--host", "127.0.0.1", "--properties-file", str(settings), "--webui-port")
    with ExitStack() as servers:
        port = free_port()
        url, work = f"spark://127.0.0.1:{port}", place / "work"
        master = ["org.apache.spark.deploy.master.Master", *common, str(free_port()), "--port", str(port)]
        servers.enter_context(
            server(place / "master.log", "I have been elected leader", spark_class(*master))
        )
        worker = ["org.apache.spark.deploy.worker.Worker", *common, str(free_port()), "-c", "2", "-m", "1g"]
        hidden = apart_from(place / "hidden") if can_hide(place / "hidden") else []
        command = [*hidden, *spark_class(*worker, "-d", str(work), url)]
        servers.enter_context(server(place / "worker.log", "Successfully registered with master", command))
        yield Cluster(url, work)


@pytest.fixture(scope="module")
def connect(place: Path) -> Iterator[str]:
    """A Spark Connect server with two cores."""
    port = free_port()
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit")]
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with server(place / "connect.log", "Spark Connect server started", command):
        yield f"sc://127.0.0.1:{port}"


def test_on_a_cluster(place: Path, cluster: Cluster, tmp_path: Path) -> None:
    assert_exact(run(place, tmp_path, cluster.url), tmp_path)
    executors = list(cluster.applications.glob("app-*/*/stderr"))
    assert executors, "no executor of the worker had a part in it"


def test_a_folder_that_executors_do_not_see(place: Path, cluster: Cluster, tmp_path: Path) -> None:
    if not can_hide(place / "hidden"):
        pytest.skip("hiding a folder from a process needs root")
    done = run(place, tmp_path, cluster.url, "--output", str(place / "hidden" / "output"))
    assert done.returncode == 2, done.stderr
    assert f"does not see what is written to {place}/hidden/output" in done.stderr
    assert "use a directory that all machines share" in done.stderr
    assert not [f for f in (place / "hidden").rglob("*") if f.is_file()]


def test_through_connect(place: Path, connect: str, tmp_path: Path) -> None:
    assert_exact(run(place, tmp_path, connect), tmp_path)


CANCEL = """
import sys, threading, time
from penstock.config import SparkConfig
from penstock.spark import session

spark = session.start(SparkConfig(master=sys.argv[1]))

ended = {}

def work(tag, rows):
    seconds = 120 if tag == "lost" else 3

    def slowly(batches):
        for batch in batches:
            time.sleep(seconds)
            yield batch

    with session.job_tag(spark, tag):
        try:
            ended[tag] = spark.range(0, rows, 1, 1).mapInArrow(slowly, "id long").count()
        except Exception as error:
            ended[tag] = type(error).__name__

lost, kept = (threading.Thread(target=work, args=job) for job in (("lost", 1), ("kept", 5)))
lost.start()
kept.start()
while lost.is_alive():
    session.cancel_tag(spark, "lost")
    lost.join(0.2)
kept.join()
print(ended["lost"], ended["kept"])
"""


def test_a_lost_claim_is_cancelled_through_connect(connect: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CANCEL, connect], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    kind, kept = done.stdout.split()
    assert kind != "1" and kept == "5"


def run(place: Path, folder: Path, master: str, *more: str) -> subprocess.CompletedProcess[str]:
    what = [str(EXAMPLE / "pipeline.py"), "--input", f"trades={place / 'trades.parquet'}"]
    return penstock(folder, "run", *what, "--partition-rows", str(PARTITION), "--master", master, *more)


def assert_exact(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout and "failed" not in done.stdout
    verified = penstock(folder, "runs", "verify", "positions")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"verified: {ROWS:,} rows in" in verified.stdout


def penstock(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def spark_class(*arguments: str) -> list[str]:
    return [str(SPARK_HOME / "bin" / "spark-class"), *arguments]


def apart_from(folder: Path) -> list[str]:
    """The beginning of a command that runs with an empty place instead of ``folder``."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


def can_hide(folder: Path) -> bool:
    """Whether this user may."""
    return subprocess.run([*apart_from(folder), "true"], capture_output=True, check=False).returncode == 0


@contextmanager
def server(log: Path, ready: str, command: Sequence[str]) -> Iterator[None]:
    """A server of Spark's in a process group of its own, from when it says that it is ready."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.find().home),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 90
        while ready not in (text := log.read_text()):
            assert process.poll() is None and time.monotonic() < deadline, text[-2000:]
            time.sleep(0.1)
        yield
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, how)
            process.wait(20)
            return


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
