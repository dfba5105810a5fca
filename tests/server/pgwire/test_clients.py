"""psql and pgbench, as people install them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from servers.packages import Missing, need
from tests.server.pgwire.serving import Serving


def _program(name: str, package: str) -> str:
    try:
        return need(name, package)
    except Missing as missing:
        pytest.skip(str(missing))


def _run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **environment}
    )


def test_psql(server: Serving) -> None:
    psql = _program("psql", "postgresql-client")
    done = _run(
        psql, "-XAt", server.url,
        "-c", "SELECT 1; SELECT 'two'",
        "-c", "SELECT nope",
        "-c", "\\set FETCH_COUNT 1000",
        "-c", "SELECT * FROM numbers(2500)",
        "-c", "COPY (SELECT * FROM numbers(2)) TO STDOUT CSV",
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:2] == ["1", "two"] and lines[2:2502] == [f"{n}|n{n}" for n in range(2500)]
    assert lines[2502:] == ["0,n0", "1,n1"]
    assert done.stderr.splitlines() == [
        'ERROR:  column "nope" does not exist',
        "LINE 1: SELECT nope",
        "               ^",
    ]


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(server: Serving, tmp_path: Path, mode: str) -> None:
    pgbench = _program("pgbench", "postgresql-contrib")
    script = tmp_path / "script.sql"
    script.write_text("\\set x random(1, 100)\nBEGIN;\nSELECT :x::int;\nSELECT * FROM numbers(5);\nEND;\n")
    if mode == "simple":
        script.write_text("SELECT 1;\nSELECT * FROM numbers(5);\n")
    done = _run(
        pgbench, "-n", "-f", str(script), "-M", mode, "-c", "8", "-j", "2", "-t", "25",
        "-h", "127.0.0.1", "-p", str(server.port), "-U", "someone", "penstock",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "number of transactions actually processed: 200/200" in done.stdout
    assert done.stderr == "" or "ERROR" not in done.stderr
