"""The parent of the shadow's PostgreSQL: a program of its own that ends the server when the gateway is gone.

Started by path, isolated and without site-packages, so that it costs little. The gateway holds the other end
of our standard input: however it dies, the kernel closes that end. (A signal on the parent's death alone
would not do: it comes when the *thread* that started the child ends, and a gateway starts things in threads
that come and go.)

usage: guardian.py UID GID MEMORY PROGRAM [ARGUMENT …]     UID and GID are -1 to stay who we are
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_ENDINGS = ((signal.SIGINT, 4.0), (signal.SIGQUIT, 6.0), (signal.SIGKILL, 5.0))
"""PostgreSQL's fast shutdown, its immediate one, and the last resort; each with the seconds that it gets."""


def _before(memory: int) -> Callable[[], None]:
    """What the child does before it becomes PostgreSQL. No thread is alive here, so this is safe."""
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def prepare() -> None:
        # Every backend inherits it: a query that wants more gets PostgreSQL's "out of memory".
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)

    return prepare


def _end(process: subprocess.Popen[bytes]) -> None:
    for how, patience in _ENDINGS:
        process.send_signal(how)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        return


def main(arguments: list[str]) -> int:
    """Run it until it ends, or until nobody holds our standard input."""
    uid, gid, memory = (int(argument) for argument in arguments[:3])
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    ended: list[int] = []
    for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(asked, lambda number, _: ended.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    process = subprocess.Popen(
        arguments[3:],
        stdin=subprocess.DEVNULL,
        preexec_fn=_before(memory),  # noqa: PLW1509  (there are no threads)
        user=None if uid < 0 else uid,
        group=None if gid < 0 else gid,
        extra_groups=None if uid < 0 else [],
    )
    while process.poll() is None:
        readable, _, _ = select.select([0, wake], [], [], 60.0)
        if wake in readable:
            os.read(wake, 4096)
        if ended or (0 in readable and not os.read(0, 4096)):
            _end(process)
            break
    return process.returncode or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
