"""Members in processes of their own, for as long as a measurement takes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

from penstock.config import ClusterConfig
from penstock.control.cluster.node import Node
from penstock.control.cluster.participant import Bystander
from penstock.control.cluster.rules.model import Member
from penstock.store import open_store

SCOPE = "bench"
_PATIENCE = 60.0


def member(name: str, session: str = "") -> Member:
    return Member(name, session, "bench")


@contextmanager
def members(url: str, names: Sequence[str], config: ClusterConfig) -> Iterator[dict[str, BaseProcess]]:
    """Processes by the name of their member; those that are left are killed at the end."""
    context = get_context("spawn")
    running: dict[str, BaseProcess] = {}
    try:
        for name in names:
            running[name] = context.Process(target=_serve, args=(url, name, config), daemon=True)
            running[name].start()
        yield running
    finally:
        for process in running.values():
            kill(process)


def kill(process: BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE:g} s for {what}")
        time.sleep(0.005)


def _serve(url: str, name: str, config: ClusterConfig) -> None:
    with open_store(url) as store:
        Node(store, member(name), config, {SCOPE: Bystander()}, {}).start()
        signal.pause()
