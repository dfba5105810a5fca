"""`penstock serve` as a process, for tests that want the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from penstock.config import cache_directory
from penstock.store.filelock import FileLock

_PATIENCE = 180.0


def _link_what_lasts(cache: Path) -> None:
    """Servers have caches of their own, but the class archive that halves Spark's start is the machine's."""
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("cds", "java"):
        if (lasting := cache_directory() / name).is_dir() and not (cache / name).exists():
            (cache / name).symlink_to(lasting)


class Serve:
    """A server in a folder with a ``penstock.toml``. Ports are free ones, and known when it has told them."""

    def __init__(
        self, folder: Path, *options: str, cache: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self.cache = cache or folder / "cache"
        _link_what_lasts(self.cache)
        self.told: list[dict[str, Any]] = []
        self.log = folder / f"serve-{len(list(folder.glob('serve-*.log')))}.log"
        environment = {**os.environ, "PENSTOCK_CACHE": str(self.cache), **(environ or {})}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--json", *options],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.told.append(json.loads(line))

    @property
    def ports(self) -> Mapping[str, int]:
        self._wait(lambda: any("ports" in each for each in self.told))
        found: Mapping[str, int] = next(each["ports"] for each in self.told if "ports" in each)
        return found

    def wait_for(self, text: str, after: int = 0) -> None:
        """Until it tells something with ``text`` in it."""
        self._wait(lambda: any(text in each["text"] for each in self.told[after:]))

    def _wait(self, told: Callable[[], bool]) -> None:
        """A process that has ended tells nothing more."""
        wait_until(lambda: told() or not self._reader.is_alive(), self.why)
        assert told(), self.why()

    def why(self) -> str:
        code = self.process.poll()
        told = "\n".join(each["text"] for each in self.told)
        return f"exit code {code}\n{told}\n{self.log.read_text()[-4000:]}"

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        settings = {"user": "penstock", "dbname": "penstock", "autocommit": True, **options}
        return psycopg.connect(host="127.0.0.1", port=self.ports["sql"], **settings)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)

    def pause(self, store: Path) -> None:
        """Stop it, but not in the middle of a write to the store, which would block everybody."""
        lock = FileLock(store.with_name(f"{store.name}.lock"), timeout=30)
        with lock.held():
            self.process.send_signal(signal.SIGSTOP)
        lock.close()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._reader.join(5)

    def children(self) -> Sequence[int]:
        """The pids of everything that this process started, directly or not, and that runs now."""
        return descendants(self.process.pid)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(
    condition: Callable[[], bool], why: Callable[[], str] = lambda: "", seconds: float = _PATIENCE
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)
