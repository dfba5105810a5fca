"""An instance of its own, for tests that kill it: ``python -m tests.control.cluster.child STORE NAME
OPTIONS``.

It takes part until SIGTERM, then leaves and says how that went.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable

from penstock.config import ClusterConfig
from penstock.control.cluster.leader import steady
from penstock.control.cluster.node import Node
from penstock.control.cluster.rules.model import Member
from penstock.core import failpoints
from penstock.store.sqlite import SqliteStore
from tests.control.cluster.support import SCOPE, Counting


def main(path: str, name: str, options: str) -> None:
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    with SqliteStore(path) as store:
        stop = failpoints.ACTIONS["stop"]
        failpoints.ACTIONS["stop"] = lambda: between_writes(store, stop)
        participant = Counting(name)
        config = ClusterConfig(**json.loads(options))
        node = Node(store, Member(name, "", "1"), config, {SCOPE: participant}, {SCOPE: steady(0.05)}).start()
        told.wait()
        left = node.leave()
        sys.stdout.write(json.dumps({"left": left, "log": participant.log}) + "\n")


def between_writes(store: SqliteStore, stop: Callable[[], None]) -> None:
    """Stop this process, but not while another thread of it writes and keeps the store's lock."""
    with store._open().gate._threads:
        stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
