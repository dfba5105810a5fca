"""Members of a cluster as real processes, in a project whose cluster has short or long times."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.store import Store, open_store
from penstock.store.filelock import FileLock
from tests.cli.program import Cli

FAST = {"lease_ttl": 2.5, "renew_every": 0.6, "member_ttl": 4.0}
SLOW = {"lease_ttl": 20.0, "renew_every": 5.0, "member_ttl": 20.0}


class Process:
    """The program as a process, whose lines can be waited for."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "penstock", "cluster", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as lines:
            for line in lines:
                self._queue.put(line.rstrip("\n"))

    def wait_for(self, wanted: Callable[[str], object], seconds: float = 20) -> str:
        """The next line that is as wanted."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._queue.get(timeout=left)
            except queue.Empty:
                break
            self.lines.append(line)
            if wanted(line):
                return line
        raise AssertionError("it did not say that:\n" + "\n".join(self.lines))

    def says(self, end: str) -> None:
        """It has told, or will, what ends like this."""
        if not any(line.endswith(end) for line in self.lines):
            self.wait_for(lambda line: line.endswith(end))

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.popen.pid, number)

    def end(self, seconds: float = 20) -> int:
        """Wait for its end; the exit code."""
        code = self.popen.wait(seconds)
        self._reader.join(seconds)
        while not self._queue.empty():
            self.lines.append(self._queue.get())
        return code


class Cluster:
    """A project whose cluster has short times, and the processes that a test started in it."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.folder = cli.folder
        self.processes: list[Process] = []
        self.store_path = self.folder / ".penstock/store.db"

    def configure(self, **values: object) -> None:
        lines = [f"{name} = {value}" for name, value in values.items()]
        (self.folder / "penstock.toml").write_text("[cluster]\n" + "\n".join(lines) + "\n")

    def start(self, *arguments: str) -> Process:
        process = Process(self.folder, arguments)
        self.processes.append(process)
        return process

    def join(self, name: str, *arguments: str) -> Process:
        """A member that has its seat."""
        process = self.start("join", "--id", name, "--barrier-every", "0.5", *arguments)
        process.wait_for(lambda line: "owns" in line and "owns 0 " not in line)
        return process

    def status(self) -> Any:
        return json.loads(self.cli("cluster", "status", "--json").stdout)

    def wait_for(self, wanted: Callable[[Any], object], seconds: float = 20) -> Any:
        """The status as soon as it is as wanted."""
        deadline = time.monotonic() + seconds
        status = self.status()
        while not wanted(status):
            assert time.monotonic() < deadline, f"the status stays {json.dumps(status, indent=1)}"
            time.sleep(0.05)
            status = self.status()
        return status

    @contextmanager
    def store(self) -> Iterator[Store]:
        with open_store(f"sqlite:///{self.store_path}") as store:
            yield store

    def pause(self, process: Process) -> None:
        """Stop a process, but not in the middle of a write, which would block everybody."""
        lock = FileLock(self.store_path.with_name("store.db.lock"), timeout=10)
        with lock.held():
            process.signal(signal.SIGSTOP)
        lock.close()

    def end(self) -> None:
        """Kill what is left."""
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.kill()
            process.end()
