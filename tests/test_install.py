"""The wheel, installed into clean environments: bare, and with each extra.

The environments share their files with uv's cache, so that one takes about a second once that is filled.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

from penstock.cli.app import COMMANDS
from penstock.core.packages import EXTRAS

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
UNREACHABLE = re.compile(
    r"failed to fetch|error sending request|dns error|could not connect|timed out", re.IGNORECASE
)

DEFINITION = """
from penstock import Stream, Table
from penstock.sources import JournalSource, KafkaSource, PostgresSource, RateSource, Ticks
from penstock.sinks import DeltaSink, ParquetSink

class Rows(Table):
    name: str

stream = Stream("rows")
"""
SOURCE = DEFINITION + 'stream.output("rows", stream.source("rows", {}), ParquetSink())\n'
SINK = DEFINITION + 'stream.output("rows", stream.source("rows", RateSource()), {})\n'
STREAMS = {
    "kafka": SOURCE.format('KafkaSource("127.0.0.1:1", "rows", Rows)'),
    "postgres": SOURCE.format('PostgresSource("postgresql://127.0.0.1:1/rows", "rows", Rows, key="name")'),
    "journals": SOURCE.format('JournalSource("journals", Rows, key=["/name"], schema={"type": "object"})'),
    "delta": SINK.format('DeltaSink("rows")'),
}
SQL = """
import penstock.server.process.serving
from penstock.server.flight.server import FlightSqlServer
from penstock.server.pgwire.server import PgServer
from penstock.server.shadow.postgres.programs import find
from penstock.server.http.server import WebServer
print(find().version)
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with the wheel in it, and nothing of the tests' own."""

    folder: Path
    work: Path

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            cwd=self.work,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def penstock(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("penstock", *words, **variables)


Install = Callable[[str], Environment]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that others may read: root does not run the PostgreSQL in it."""
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def install(place: Path) -> Install:
    """The environment with the wheel and an extra, or none."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)], cwd=ROOT, check=True
    )
    (wheel,) = place.glob("*.whl")
    away = ""

    @functools.cache
    def installed(extra: str) -> Environment | str:
        folder, work = place / (extra or "bare"), place / f"{extra or 'bare'}-work"
        work.mkdir()
        _uv("venv", "--python", sys.executable, str(folder))
        package = f"penstock{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
        words = ["pip", "install", "--python", str(folder / "bin" / "python")]
        words += ["--constraint", str(ROOT / "requirements.lock"), package]
        # From the cache, if all is there: the index would be asked again for each package.
        if _uv(*words, "--offline", check=False).returncode:
            done = _uv(*words, check=False)
            if done.returncode and UNREACHABLE.search(done.stderr):
                return f"the package index cannot be reached: {' '.join(done.stderr.split())}"
            assert done.returncode == 0, done.stderr
        return Environment(folder, work)

    def wanted(extra: str) -> Environment:
        nonlocal away
        found = away or installed(extra)
        if isinstance(found, str):
            away = found
            pytest.skip(found)
        return found

    return wanted


def _uv(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [uv.find_uv_bin(), *words, "--quiet"], capture_output=True, text=True, check=check, timeout=1200
    )


def use(environment: Environment, extra: str) -> subprocess.CompletedProcess[str]:
    """Do what the extra is for, up to where a server or Spark would be needed."""
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "x"}
    if extra == "sql":
        return environment.run("python", "-c", SQL)
    if extra == "cluster":
        return environment.penstock("certs", "init", "--dir", str(environment.work / "certs"))
    if extra == "buckets":
        return environment.penstock(
            "catalog", "show", "--store", "s3://b/p", AWS_SECRET_ACCESS_KEY="x", AWS_REGION="x", **nobody
        )
    if extra == "connect":
        pipeline = str(EXAMPLES / "trades" / "pipeline.py")
        return environment.penstock("check", pipeline, PENSTOCK_SPARK_MASTER="sc://127.0.0.1:1")
    # A file each: one that is replaced within a second by one as long is not compiled again.
    (environment.work / f"rows_{extra}.py").write_text(STREAMS[extra])
    return environment.penstock("stream", "plan", f"rows_{extra}.py")


ANSWERS = {
    "sql": (0, "postgres (PostgreSQL)"),
    "cluster": (0, "penstock certs issue"),
    "buckets": (1, "error[store-unavailable]"),
    "connect": (2, "no Spark Connect server answers"),
    **dict.fromkeys(STREAMS, (0, "output rows")),
}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_is_for(install: Install, extra: str) -> None:
    done = use(install(extra), extra)
    code, words = ANSWERS[extra]
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr


@pytest.mark.parametrize("extra", EXTRAS)
def test_without_it_the_command_that_installs_it_is_told(install: Install, extra: str) -> None:
    done = use(install(""), extra)
    assert done.returncode == 1
    assert f"pip install 'penstock[{extra}]'" in done.stderr
    assert "MissingPackage" in done.stderr if extra == "sql" else "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("serve", "sql"),
        ("serve --role worker", "sql"),
        ("cluster status --store etcd://127.0.0.1:1/p", "cluster"),
        ("users list --store etcd://127.0.0.1:1/p", "cluster"),
        ("stream list --store gs://b/p", "buckets"),
        ("cluster join --listen 127.0.0.1:0", "cluster"),
    ],
)
def test_every_command_tells_it(install: Install, command: str, extra: str) -> None:
    done = install("").penstock(*command.split())
    assert done.returncode == 1
    assert re.fullmatch(
        rf"error\[missing-package\]: .+\nnext: pip install 'penstock\[{extra}\]'\n", done.stderr
    ), done.stderr


def test_a_bare_install_has_help_for_every_command(install: Install) -> None:
    bare = install("")
    for command in ([], *([name] for name in COMMANDS)):
        done = bare.penstock(*command, "--help")
        assert done.returncode == 0 and "Usage: penstock" in done.stdout, done.stderr


def test_a_bare_install_plans_and_has_a_store(install: Install) -> None:
    bare = install("")
    for words in (
        ("plan", str(EXAMPLES / "trades" / "pipeline.py")),
        ("stream", "plan", str(EXAMPLES / "words" / "stream.py")),
        ("users", "list"),
        ("catalog", "show"),
        ("runs", "ls"),
    ):
        done = bare.penstock(*words)
        assert done.returncode == 0, done.stderr
    assert (bare.work / ".penstock" / "store.db").is_file()


def test_a_bare_install_runs_on_spark(install: Install) -> None:
    bare = install("")
    done = bare.penstock("check", str(EXAMPLES / "trades" / "pipeline.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok: pipeline ")


def test_all_is_all(install: Install) -> None:
    done = install("all").penstock("doctor", "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert found["extras"]["detail"] == ", ".join(EXTRAS)


def test_the_wheel_has_no_tests_and_no_compiled_code(install: Install) -> None:
    site = next((install("").folder / "lib").glob("python*")) / "site-packages"
    assert shutil.which("penstock", path=str(install("").folder / "bin"))
    assert not (site / "tests").exists()
    assert not [path for path in (site / "penstock").rglob("*") if path.suffix in (".so", ".pyd")]
