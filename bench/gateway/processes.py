"""Servers and clients of ours in processes of their own, and how they are reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway import trades
from bench.lab import Lab, Place
from penstock.config import TableConfig

ROOT = Path(__file__).parents[2]
MEMORY = "1g"


@dataclass(frozen=True, slots=True)
class Child:
    """A process that tells JSON, line by line, and ends when its standard input does."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with {self.process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told


@dataclass(frozen=True, slots=True)
class Served:
    """A server of ours that answers."""

    pid: int
    ports: Mapping[str, int]

    @property
    def url(self) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.ports['sql']}/penstock"

    @property
    def rpc(self) -> str:
        return f"grpc://127.0.0.1:{self.ports['rpc']}"


@contextmanager
def child(
    *command: str,
    program: str = sys.executable,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Child]:
    # It finds this package wherever it is started.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        [program, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **(environ or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def stored(lab: Lab, place: Place, kind: str = "ours") -> Iterator[Served]:
    """Rows from memory: by ``ours``, or by ``bare`` Flight; and ours ``idle``, without any."""
    files, work = str(trades.files(lab)), str(place.path)
    with child("-m", "bench.gateway.stored", kind, files, work) as process:
        yield Served(process.pid, process.hear()["ports"])


@contextmanager
def served(lab: Lab, place: Place) -> Iterator[Served]:
    """``penstock serve`` with the trades as its one table."""
    table = TableConfig(trades.TABLE, str(trades.files(lab)))
    (place.path / "penstock.toml").write_text(_settings(table), encoding="utf-8")
    options = ("--port", "0", "--web-port", "0", "--rpc-port", "0", "--json")
    environ = {"PENSTOCK_CACHE": str(place.path / "cache")}
    with child("-m", "penstock", "serve", *options, folder=place.path, environ=environ) as process:
        ports: Mapping[str, int] = {}
        while True:
            told = process.hear()
            ports = told.get("ports", ports)
            if told.get("ready"):
                break
        yield Served(process.pid, ports)


def _settings(table: TableConfig) -> str:
    return f"""
[spark]
master = "local[2]"
memory = "{MEMORY}"

[[tables]]
name = {json.dumps(table.name)}
path = {json.dumps(table.path)}
"""
