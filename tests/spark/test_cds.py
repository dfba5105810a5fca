from __future__ import annotations

import fcntl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.config import SparkConfig
from penstock.errors import TerminalError
from penstock.spark import cds
from penstock.spark.java import Java, find


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return find()


def pretend(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr("sys.executable", program)


def test_there_is_none_before_training(java: Java) -> None:
    assert cds.archive(java) is None


def test_another_java_has_another_archive(java: Java) -> None:
    assert cds._path(java) != cds._path(replace(java, build="other"))
    assert cds._path(java) != cds._path(replace(java, installed=Path("/other")))


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"\0" * 100_000])
def test_a_corrupt_archive_breaks_nothing(java: Java, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.jsa"
    path.write_bytes(content)
    command = [str(java.home / "bin" / "java"), *cds.flags(path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == ""
    assert java.version in done.stderr.splitlines()[0]


def test_a_trainer_leaves_the_work_to_one_that_is_at_it(java: Java) -> None:
    path = cds._path(java)
    path.parent.mkdir(parents=True)
    with path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert cds.train(java) is None


def test_an_archive_is_made_once(java: Java) -> None:
    path = cds._path(java)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"kept")
    assert cds.train(java) == path
    assert path.read_bytes() == b"kept"


def test_a_failed_training_leaves_nothing(
    java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'no room for a JVM' >&2\nexit 3\n")
    program.chmod(0o755)
    pretend(monkeypatch, str(program))
    with pytest.raises(TerminalError, match="no room for a JVM"):
        cds.train(java)
    assert [p.suffix for p in cds._path(java).parent.iterdir()] == [".lock"]


@pytest.mark.soak
def test_training_makes_an_archive_that_the_jvm_accepts(java: Java) -> None:
    path = cds.train(java)
    assert path is not None
    assert path == cds.archive(java)
    config = SparkConfig(master="local[1]", conf={"spark.driver.extraJavaOptions": "-Xlog:class+load:stdout"})
    imports = "from penstock.config import SparkConfig; from penstock.spark import session"
    program = f"{imports}; session.start({config})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("shared objects file (top)") > 5000
