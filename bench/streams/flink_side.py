"""PyFlink beside us: parallelism 2, exactly-once checkpoints to a local folder at every interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.lab import Lab
from bench.streams.flink_cluster import Cluster
from bench.streams.load import Load
from bench.streams.sides import Pauses, Rescaling, Steady
from bench.streams.trace import Commit, Trace, expect_all, newest, polls
from bench.streams.waiting import wait_until
from bench.streams.watch import Watch

WORKERS = 2
# Measured: 1,000 rows are four times as slow, 40,000 no faster.
POLL = 10_000


@dataclass(frozen=True, slots=True)
class Flink:
    """Jobs on a cluster that runs already."""

    lab: Lab
    cluster: Cluster
    name: str = "PyFlink"

    def throughput(self, rows: int, interval: float) -> float:
        with self.lab.place("flink") as place:
            load = Load(str(place.path), rows, POLL, interval, WORKERS)
            job = self._submit(load)
            self.cluster.wait(job)
            # The moment of the last commit is Flink's own; ours would add the time until we asked.
            ended = time.monotonic() - time.time() + self.cluster.ask(f"/jobs/{job}")["end-time"] / 1e3
            expect_all(newest(_counts(path) for path in _files(load)), load)
            return float(ended - min(poll.at for poll in polls(load.folder("polls"))))

    def latency(self, steady: Steady) -> list[float]:
        with self.lab.place("flink") as place:
            load = steady.load(place.path, WORKERS)
            with Watch(lambda: _files(load)) as files:
                job = self._submit(load)
                wait_until(lambda: bool(files.first), "the first commit of Flink", self.cluster.log)
                time.sleep(steady.seconds)
                self.cluster.stop(job)
            return _checked(load, files).latencies()

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        return {
            "savepoint and restart": self._rescaled(rescaling, self._restart),
            "adaptive scheduler": self._rescaled(rescaling, self._in_place),
        }

    def _rescaled(self, rescaling: Rescaling, change: Callable[[Load, str, int], str]) -> Pauses:
        first, *others = rescaling.workers
        with self.lab.place("flink") as place:
            load = rescaling.load(place.path, first)
            with Watch(lambda: _files(load)) as files:
                job = self._submit(load)
                self._settle(load, files, rescaling.seconds)
                requests: list[float] = []
                for workers in others:
                    known = _processes(load)
                    requests.append(time.monotonic())
                    job = change(load, job, workers)
                    self._settle(load, files, rescaling.seconds, known)
                    if (found := self.cluster.parallelism(job)) != workers:
                        raise RuntimeError(f"the parallelism is {found}, not {workers}")
                self.cluster.stop(job)
            trace = _checked(load, files)
            up, down = (trace.resumed(at) - at for at in requests)
            return Pauses(up, down)

    def _settle(
        self, load: Load, files: Watch[Path], seconds: float, known: frozenset[str] = frozenset()
    ) -> None:
        """Wait until processes that were not known have polled and committed, and a while longer."""
        wait_until(lambda: bool(_processes(load) - known), "Flink to poll", self.cluster.log)
        enough = len(files.first) + 4 * load.workers
        wait_until(lambda: len(files.first) > enough, "Flink to commit", self.cluster.log)
        time.sleep(seconds)

    def _restart(self, load: Load, job: str, workers: int) -> str:
        savepoint = self.cluster.stop(job)
        return self._submit(replace(load, workers=workers), savepoint)

    def _in_place(self, load: Load, job: str, workers: int) -> str:
        del load
        self.cluster.rescale(job, workers)
        return job

    def _submit(self, load: Load, restore: str | None = None) -> str:
        task = {"load": str(load), "rest_port": self.cluster.rest_port, "restore": restore}
        return self.cluster.submit(task)


def _checked(load: Load, files: Watch[Path]) -> Trace:
    commits = [Commit(at, _counts(path)) for path, at in files.first.items()]
    trace = Trace(polls(load.folder("polls")), commits)
    trace.check(load)
    return trace


def _processes(load: Load) -> frozenset[str]:
    return frozenset(path.name for path in load.folder("polls").iterdir())


def _files(load: Load) -> list[Path]:
    """Committed ones: others have names that begin with a dot."""
    return list(load.folder("out").glob("*/part-*"))


def _counts(path: Path) -> dict[int, int]:
    """Lines are like ``+U[17, 4]``: a key and its new count."""
    found: dict[int, int] = {}
    for line in path.read_text(encoding="ascii").splitlines():
        key, count = line[3:-1].split(", ")
        found[int(key)] = int(count)
    return found
