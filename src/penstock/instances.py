"""Several instances of a run on one machine: child processes, each with its own Spark session.

A child gets its job as the first line of its stdin and tells what happens as JSON lines through a
pipe. Its stdin stays open as long as the supervisor lives: when it ends, however it ends, the child
sees the end of the file, gives its claims back and leaves.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from string import ascii_lowercase
from types import TracebackType
from typing import Any, Literal, Self

from penstock.config import SparkConfig
from penstock.errors import PenstockError
from penstock.job import Job
from penstock.runner.events import Event, Listener, Report, silent
from penstock.spark.session import local_cores

State = Literal["starting", "working", "ended", "died"]
_LEAST_MEMORY_MB = 512
_SPARE_MB = 400  # what a driver takes beside its heap, with its Python workers


class Instance:
    """A child process. ``report`` is what its runner returned, ``error`` why it did not."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.name = job.instance
        self.report: Report | None = None
        self.error: PenstockError | None = None
        self._started = False
        ours, theirs = os.pipe()
        try:
            # A session of its own keeps the terminal's Ctrl-C from the child and its JVM: it is the
            # supervisor that decides, and the claims are given back before anything ends.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "instance", "--events", str(theirs)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else subprocess.DEVNULL,
                pass_fds=[theirs],
                start_new_session=True,
                text=True,
            )
        finally:
            os.close(theirs)
        self._messages = os.fdopen(ours, encoding="utf-8")
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        with suppress(BrokenPipeError):  # it is dead already, which its exit code tells
            print(json.dumps(job.to_json()), file=self._stdin, flush=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, -N after signal N, None while it runs."""
        return self._process.poll()

    @property
    def state(self) -> State:
        if self.code is None:
            return "working" if self._started else "starting"
        return "died" if self.report is None and self.error is None else "ended"

    @property
    def cause(self) -> str:
        """What ended it, in words."""
        code = self.code
        if code is None:
            return "it runs"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def terminate(self) -> None:
        """Ask it to give its claims back and leave."""
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would: its leases run out by themselves."""
        if self.code is None:
            self._process.kill()

    def messages(self) -> Iterator[Event]:
        """What it tells, until it ends; its report and error are kept."""
        with self._messages:
            for line in self._messages:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # cut off in the middle by its death
                if "event" in message:
                    yield Event.from_json(message["event"])
                elif "report" in message:
                    self.report = report_from_json(message["report"])
                elif "error" in message:
                    self.error = error_from_json(message["error"])
                else:
                    self._started = True
        self._process.wait()

    def close(self) -> None:
        """Let go of its stdin, which asks a child that still runs to leave."""
        with suppress(BrokenPipeError):
            self._stdin.close()


class Supervisor:
    """Starts instances and passes on what they tell until all have ended.

    The listener gets every event of every instance, one at a time; ``on_end`` each instance that has
    ended. One that dies is not started again: the others take over what it held when its leases run
    out, and if all die the run can be resumed.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        listener: Listener = silent,
        on_end: Callable[[Instance], None] = lambda _: None,
    ) -> None:
        self._jobs = jobs
        self._listener = listener
        self._on_end = on_end
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self.instances: list[Instance] = []

    def __enter__(self) -> Self:
        for job in self._jobs:
            instance = Instance(job)
            self.instances.append(instance)
            thread = threading.Thread(
                target=self._listen, args=(instance,), name=f"penstock-instance-{job.instance}", daemon=True
            )
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for instance in self.instances:
            instance.close()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """Ask all instances to give their claims back and leave. Safe in a signal handler."""
        self._stopping = True
        for instance in self.instances:
            instance.terminate()

    def kill(self) -> None:
        """End all instances at once."""
        for instance in self.instances:
            instance.kill()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all instances have ended; False if some still run after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while any(thread.is_alive() for thread in self._threads):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def reports(self) -> list[Report]:
        return [i.report for i in self.instances if i.report is not None]

    def _listen(self, instance: Instance) -> None:
        for event in instance.messages():
            with self._lock:
                self._listener(event)
        with self._lock:
            self._on_end(instance)


def share(job: Job, instances: int) -> list[Job]:
    """A job for each of several instances, with the machine's cores, memory and batches divided.

    They are called ``a-3f2c``, ``b-3f2c``, …, alike in what tells them from those of other commands.
    """
    batches = job.settings.max_batches
    if batches is not None:
        instances = min(instances, batches)
    spark = divided(job.spark, instances)
    jobs, family = [], secrets.token_hex(2)
    for n in range(instances):
        part = None if batches is None else batches // instances + (n < batches % instances)
        settings = replace(job.settings, max_batches=part)
        letter = ascii_lowercase[n] if instances <= len(ascii_lowercase) else f"i{n}"
        jobs.append(replace(job, instance=f"{letter}-{family}", settings=settings, spark=spark))
    return jobs


def divided(spark: SparkConfig, instances: int) -> SparkConfig:
    """What one of several sessions on this machine gets of it.

    A master that names its cores means them for each session; ``local[*]`` means the machine's.
    """
    cores = local_cores(spark.master)
    if cores is None or instances == 1:
        return spark
    master = f"local[{max(1, cores // instances)}]" if spark.master == "local[*]" else spark.master
    memory = min(_megabytes(spark.memory), max(_LEAST_MEMORY_MB, _machine_mb() // instances - _SPARE_MB))
    kept = memory == _megabytes(spark.memory)
    return replace(spark, master=master, memory=spark.memory if kept else f"{memory}m")


def report_from_json(value: dict[str, Any]) -> Report:
    """A report as another process wrote it, without its events."""
    error = error_from_json(value["error"]) if value["error"] else None
    return Report(**{**value, "error": error})


def error_from_json(value: dict[str, Any]) -> PenstockError:
    """An error of another process, of the same kind as there."""
    kinds = {kind.code: kind for kind in _kinds(PenstockError)}
    kind = kinds.get(value["code"], PenstockError)
    return kind(value.get("what") or value.get("message"), left=value.get("left"), hint=value.get("next"))


def _kinds(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def _megabytes(text: str) -> int:
    return int(text[:-1]) * (1024 if text[-1] in "gG" else 1)


def _machine_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1 << 20)
    except (ValueError, OSError):
        return 1 << 20


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (OSError, ValueError, AttributeError):
        return False
