"""Child processes that each run one instance with its own Spark session.

A child gets its job as the first line of its stdin and tells what happens as JSON lines through a pipe. Its
stdin stays open as long as the parent lives: when that ends, however it ends, the child sees the end of the
file, gives back what it holds and leaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Generic, Literal, TypeVar

from penstock.errors import PenstockError
from penstock.workers.jobs import Job

ChildState = Literal["starting", "working", "ended", "died"]


class Child:
    """A child process that does a job. ``result`` is what that came to, ``error`` why it came to nothing."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.name = job.name
        self.result: Any = None
        self.error: PenstockError | None = None
        self._started = False
        ours, theirs = os.pipe()
        try:
            # A session of its own keeps the terminal's Ctrl-C from the child and its JVM: it is the
            # parent that decides, and what is held is given back before anything ends.
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
            print(json.dumps(job.order), file=self._stdin, flush=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """The exit code, -N after signal N, None while it runs."""
        return self._process.poll()

    @property
    def state(self) -> ChildState:
        if self.code is None:
            return "working" if self._started else "starting"
        return "died" if self.result is None and self.error is None else "ended"

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
        """Ask it to give back what it holds and leave."""
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would: its leases run out by themselves."""
        if self.code is None:
            self._process.kill()

    def messages(self) -> Iterator[Any]:
        """The events that it tells, until it ends; its result and error are kept."""
        with self._messages:
            for line in self._messages:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # cut off in the middle by its death
                if "event" in message:
                    yield message["event"]
                elif "result" in message:
                    self.result = message["result"]
                elif "error" in message:
                    self.error = error_from_json(message["error"])
                else:
                    self._started = True
        self._process.wait()

    def close(self) -> None:
        """Let go of its stdin, which asks a child that still runs to leave."""
        with suppress(BrokenPipeError):
            self._stdin.close()


C = TypeVar("C", bound=Child)


class Crew(Generic[C]):
    """The children of this process, with a thread for each that passes on what it tells.

    ``on_event`` gets every event of every child, one at a time; ``on_end`` each child that has ended.
    """

    def __init__(self, on_event: Callable[[C, Any], None], on_end: Callable[[C], None]) -> None:
        self.children: list[C] = []
        self._on_event = on_event
        self._on_end = on_end
        self._lock = threading.Lock()
        self._threads: dict[C, threading.Thread] = {}

    def add(self, child: C) -> C:
        """Listen to a child that was just started."""
        thread = threading.Thread(
            target=self._listen, args=(child,), name=f"penstock-instance-{child.name}", daemon=True
        )
        self.children.append(child)
        self._threads[child] = thread
        thread.start()
        return child

    def has_ended(self, child: C) -> bool:
        """Whether a child has ended and all that it told was passed on."""
        return not self._threads[child].is_alive()

    def forget(self, child: C) -> None:
        """Let go of a child that has ended."""
        child.close()
        self.children.remove(child)
        del self._threads[child]

    def terminate(self) -> None:
        """Ask all to leave. Safe in a signal handler."""
        for child in list(self.children):
            child.terminate()

    def kill(self) -> None:
        """End all at once."""
        for child in list(self.children):
            child.kill()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all have ended; False if some still run after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while any(thread.is_alive() for thread in self._threads.values()):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """Let go of all, and wait until they have ended."""
        for child in self.children:
            child.close()
        for thread in self._threads.values():
            thread.join()

    def _listen(self, child: C) -> None:
        for event in child.messages():
            with self._lock:
                self._on_event(child, event)
        with self._lock:
            self._on_end(child)


def error_from_json(value: Mapping[str, Any]) -> PenstockError:
    """An error of another process, of the same kind as there."""
    kinds = {kind.code: kind for kind in _kinds(PenstockError)}
    kind = kinds.get(value["code"], PenstockError)
    return kind(value.get("what") or value.get("message"), left=value.get("left"), hint=value.get("next"))


def _kinds(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def _has_descriptor(stream: Any) -> bool:
    try:
        return isinstance(stream.fileno(), int)
    except (OSError, ValueError, AttributeError):
        return False
