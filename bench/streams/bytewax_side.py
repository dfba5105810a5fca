"""Bytewax beside us: two workers, and recovery partitions in SQLite with a snapshot at every interval."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab import Lab
from bench.peers import Environment
from bench.streams.bytewax_recovery import Recovery
from bench.streams.load import Load
from bench.streams.sides import Pauses, Rescaling, Steady
from bench.streams.trace import Commit, Trace, expect_all, newest, polls
from bench.streams.waiting import wait_until
from bench.streams.watch import Watch
from servers.ports import free_ports

ENVIRONMENT = Environment("bytewax", ("bytewax==0.21.1", "numpy==2.4.6"))
ROOT = Path(__file__).parents[2]
RECOVERY_PARTITIONS = 2
# Measured: batches of 1,000 and 10,000 rows are slower.
POLL = 100_000


@dataclass(frozen=True, slots=True)
class Layout:
    """Workers as processes with one thread each, or as threads of one process."""

    processes: int
    threads: int

    @property
    def workers(self) -> int:
        return self.processes * self.threads


@dataclass(slots=True)
class Bytewax:
    """Combined means that each poll is added up with numpy before bytewax sees it."""

    lab: Lab
    combined: bool = False
    name: str = field(init=False)
    _python: Path = field(init=False)

    def __post_init__(self) -> None:
        self.name = "bytewax, polls combined by hand" if self.combined else "bytewax"
        self._python = ENVIRONMENT.python

    def throughput(self, rows: int, interval: float) -> float:
        # Combined, a second worker only costs: there is hardly anything left to share.
        layout = Layout(1, 1) if self.combined else Layout(2, 1)
        with self.lab.place("bytewax") as place:
            load = Load(str(place.path), rows, POLL, interval, layout.workers)
            self._prepare(load)
            with self._cluster(load, layout, 0) as processes:
                wait_until(lambda: _over(processes), "the end of bytewax", lambda: _log(load))
                ended, now = time.monotonic(), time.time()
                if any(process.poll() != 0 for process in processes):
                    raise RuntimeError(f"bytewax failed: {_log(load)}")
            expect_all(newest(_written(load)), load)
            # Without the time that its processes take to leave.
            idle = now - max(path.stat().st_mtime for path in load.folder("out").iterdir())
            return ended - idle - min(poll.at for poll in polls(load.folder("polls")))

    def latency(self, steady: Steady) -> list[float]:
        with self.lab.place("bytewax") as place, ExitStack() as stack:
            load = steady.load(place.path, workers=2)
            self._prepare(load)
            recovery = Recovery(load)
            frontiers = stack.enter_context(Watch(lambda: [recovery.committed()]))
            stack.enter_context(self._cluster(load, Layout(1, 2), 0))
            self._settle(load, recovery, 0, steady.seconds)
            stack.close()
            trace = _trace(load, frontiers)
            trace.check(load)
            return trace.latencies()

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        with self.lab.place("bytewax") as place, ExitStack() as stack:
            load = rescaling.load(place.path, workers=2)
            self._prepare(load)
            recovery = Recovery(load)
            frontiers = stack.enter_context(Watch(lambda: [recovery.committed()]))
            requests: list[float] = []
            for execution, workers in enumerate(rescaling.workers):
                with self._cluster(load, Layout(1, workers), execution):
                    self._settle(load, recovery, execution, rescaling.seconds)
                    requests.append(time.monotonic())
            stack.close()
            trace = _trace(load, frontiers)
            trace.check(load)
            up, down = (trace.resumed(at) - at for at in requests[:-1])
            return {"": Pauses(up, down)}

    def _settle(self, load: Load, recovery: Recovery, number: int, seconds: float) -> None:
        """Wait until the execution of this number has committed epochs of its own, and a while longer."""

        def goes_on() -> bool:
            executions = recovery.executions()
            return len(executions) > number and executions[number].committed > executions[number].resumed + 2

        wait_until(goes_on, "bytewax to commit", lambda: _log(load))
        time.sleep(seconds)

    def _prepare(self, load: Load) -> None:
        made = [str(load.folder("recovery")), str(RECOVERY_PARTITIONS)]
        subprocess.run([self._python, "-m", "bytewax.recovery", *made], check=True)

    @contextmanager
    def _cluster(
        self, load: Load, layout: Layout, execution: int
    ) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
        """Its processes; they are killed at the end, which is how bytewax is stopped."""
        numbers: Sequence[int | None] = range(layout.processes) if layout.processes > 1 else [None]
        addresses = [f"127.0.0.1:{port}" for port in free_ports(layout.processes)]
        running: list[subprocess.Popen[bytes]] = []
        try:
            with Path(load.place, "log").open("ab") as log:
                for number in numbers:
                    task = {
                        "load": str(load),
                        "combined": self.combined,
                        "execution": execution,
                        "threads": layout.threads,
                        "process": number,
                        "addresses": None if number is None else addresses,
                    }
                    running.append(self._start(json.dumps(task), log.fileno()))
            yield running
        finally:
            for process in running:
                process.send_signal(signal.SIGKILL)
            for process in running:
                process.wait()

    def _start(self, task: str, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self._python, "-m", "bench.streams.bytewax_flow", task],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _over(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    """Whether all have ended, or one has failed: the others would wait for it."""
    codes = [process.poll() for process in processes]
    return None not in codes or any(codes)


def _trace(load: Load, frontiers: Watch[int]) -> Trace:
    """Results with the moment at which the frontier had passed their epoch."""
    seen = sorted(frontiers.first.items())
    commits = []
    for epoch, counts in _results(load).items():
        if (at := next((at for frontier, at in seen if frontier > epoch), None)) is not None:
            commits.append(Commit(at, counts))
    return Trace(polls(load.folder("polls")), commits)


def _results(load: Load) -> dict[int, dict[int, int]]:
    """Counts by epoch, without what was lost when an execution was stopped."""
    resumed = [execution.resumed for execution in Recovery(load).executions()]
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for path in load.folder("epochs").iterdir():
        number = int(path.name.partition("-")[0])
        for line in path.read_text(encoding="ascii").splitlines():
            epoch, key, count = (int(word) for word in line.split())
            if all(epoch < later for later in resumed[number + 1 :]):
                found[epoch][key] = max(count, found[epoch].get(key, 0))
    return found


def _written(load: Load) -> Iterator[dict[int, int]]:
    """What stands in the output files."""
    for path in load.folder("out").iterdir():
        lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
        yield newest({int(key): int(count)} for key, count in lines)


def _log(load: Load) -> str:
    return Path(load.place, "log").read_text(encoding="utf-8", errors="replace")[-3_000:]
