"""The same command on a Spark cluster and through Spark Connect: real servers, real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from servers.ports import free_ports
from servers.sparks import SparkCluster, SparkWorker, spark_cluster, spark_connect
from tests.server.serve import Serve, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "trades"
ROWS, PARTITION = 20_000, 10_000


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


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[SparkCluster]:
    """A master without workers."""
    with spark_cluster(place) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def worker(place: Path, cluster: SparkCluster) -> SparkWorker:
    """A worker with two cores that, like another machine, does not see all our folders."""
    return cluster.add_worker(prefix=apart_from(place / "hidden") if can_hide(place / "hidden") else ())


@pytest.fixture(scope="module")
def connect(place: Path) -> Iterator[str]:
    """A Spark Connect server with two cores."""
    with spark_connect(place) as url:
        yield url


def test_on_a_cluster(place: Path, cluster: SparkCluster, worker: SparkWorker, tmp_path: Path) -> None:
    assert_exact(run(place, tmp_path, cluster.url), tmp_path)
    assert worker.executors, "no executor of the worker had a part in it"


@pytest.mark.usefixtures("worker")
@pytest.mark.soak
def test_a_folder_that_executors_do_not_see(place: Path, cluster: SparkCluster, tmp_path: Path) -> None:
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


def apart_from(folder: Path) -> list[str]:
    """The beginning of a command that runs with an empty place instead of ``folder``."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]


def can_hide(folder: Path) -> bool:
    """Whether this user may."""
    return subprocess.run([*apart_from(folder), "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a table that Spark has to look into."""
    (tmp_path / "items.csv").write_text("id,name\n" + "".join(f"{n},item {n}\n" for n in range(500)))
    (tmp_path / "penstock.toml").write_text('[[tables]]\nname = "items"\npath = "items.csv"\n')
    return tmp_path


FREE = ("--port", "0", "--web-port", "0", "--rpc-port", "0")


def test_sql_through_connect(shop: Path, connect: str) -> None:
    server = Serve(shop, *FREE, "--master", connect)
    try:
        server.wait_for("ready")
        with server.connect() as client:
            assert client.execute("SELECT count(*), max(name) FROM items").fetchall() == [(500, "item 99")]
            with client.cursor().copy("COPY (SELECT * FROM items ORDER BY id) TO STDOUT") as copy:
                assert next(copy.rows()) == ("0", "item 0")
                assert sum(1 for _ in copy.rows()) == 499
            plan = client.execute("EXPLAIN ANALYZE SELECT * FROM items WHERE id < 7").fetchall()
            assert ("Rows: 7",) in plan
            client.execute("SET statement_timeout = '1s'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute(
                    "SELECT count(*) FROM items a, items b, items c, items d WHERE a.id < b.id + d.id"
                )
    finally:
        assert server.stop() == 0


@pytest.mark.soak
def test_a_start_without_workers_can_be_ended(shop: Path, place: Path) -> None:
    folder = place / "lonely"
    folder.mkdir()
    with spark_cluster(folder) as cluster:
        server = Serve(shop, *FREE, "--master", cluster.url)
        try:
            wait_until(
                lambda: any("Registered app" in log.read_text() for log in folder.glob("*.log")), server.why
            )
        finally:
            assert server.stop() == 0


def test_nobody_answers(shop: Path) -> None:
    server = Serve(shop, *FREE, "--master", f"sc://127.0.0.1:{free_ports(1)[0]}")
    assert server.process.wait(60) == 2
    assert "no Spark Connect server answers" in server.log.read_text()
    server.stop()
