"""One writer at a time, among the threads and processes of one machine."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core import failpoints
from penstock.errors import StoreUnavailable


class FileLock:
    """An exclusive ``flock``, which the system drops when its holder dies.

    The wait is bounded, because a holder that is stopped (SIGSTOP, a debugger) keeps the lock. It
    polls at well under a millisecond: that stays fair among a handful of processes, and unlike a
    blocking call it can be interrupted and given up.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._threads = threading.Lock()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # Also for those who forget to close it, as with a file of Python's.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        # Threads may write until the very end, and the system closes it then anyway.
        self._close.atexit = False

    @property
    def descriptor(self) -> int:
        """The open file, for those who keep something in it."""
        return self._descriptor

    def is_at_its_path(self) -> bool:
        """Whether the file was not removed, or replaced by another one."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    @contextmanager
    def held(self, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock for a block. Raises `StoreUnavailable` when it cannot be had in time.

        ``timeout`` is for this block, where it is another one than that of the lock.
        """
        patience = self._timeout if timeout is None else timeout
        if not self._threads.acquire(timeout=patience):
            raise self._given_up(patience)
        try:
            with failpoints.unstopped():
                self._acquire(patience)
                try:
                    yield
                finally:
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        self._close()

    def _acquire(self, timeout: float) -> None:
        deadline: float | None = None
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                deadline = deadline or time.monotonic() + timeout
                if time.monotonic() > deadline:
                    raise self._given_up(timeout) from None
                time.sleep(random.uniform(0.00005, 0.0004))

    def _given_up(self, timeout: float) -> StoreUnavailable:
        holder = self._holder()
        who = f"process {holder}" if holder else "another process"
        return StoreUnavailable(
            f"{who} has held {self._path} for more than {timeout:g} s",
            hint=f"if {who} is stopped, continue it (kill -CONT) or end it; the lock then frees itself",
        )

    def _holder(self) -> int | None:
        """The process that holds the lock, where the system tells."""
        inode = str(os.fstat(self._descriptor).st_ino)
        try:
            for line in Path("/proc/locks").read_text().splitlines():
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                    return int(fields[4])
        except (OSError, IndexError, ValueError):
            pass
        return None
