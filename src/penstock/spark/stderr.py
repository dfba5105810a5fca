"""What Spark's JVM writes to standard error goes through this process, and ends with it.

When this process is killed, its JVM notices and shuts down by itself. Threads that are at work then die with
traces that no log setting reaches: Java prints them. Nobody is there any more who could use them.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_PIECE = 1 << 16
_one_at_a_time = threading.Lock()


@contextmanager
def relayed() -> Iterator[None]:
    """Children that are started in the block write to standard error as long as this process lives.

    What other threads of this process write meanwhile takes the same way, and arrives.
    """
    with _one_at_a_time:
        try:
            own = os.dup(_STDERR)
        except OSError:  # somebody closed it
            yield
            return
        try:
            _divert(own)
            yield
        finally:
            os.dup2(own, _STDERR)
            os.close(own)


def _divert(own: int) -> None:
    """Make standard error a pipe whose other end a thread passes on to ``own``."""
    source, sink = os.pipe()
    target = os.dup(own)
    threading.Thread(target=_relay, args=(source, target), name="penstock-stderr", daemon=True).start()
    os.dup2(sink, _STDERR)
    os.close(sink)


def _relay(source: int, target: int) -> None:
    """Pass bytes on until every writer has ended. A target that is gone does not stop the writers."""
    while piece := os.read(source, _PIECE):
        with suppress(OSError):
            while piece:
                piece = piece[_write(target, piece) :]
    os.close(source)
    os.close(target)


def _write(target: int, piece: bytes) -> int:
    while True:
        try:
            return os.write(target, piece)
        except BlockingIOError:  # somebody made it non-blocking
            select.select([], [target], [])
