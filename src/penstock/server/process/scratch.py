"""Folders of one process, for what nobody needs when it has ended. Their names tell whose they are.

::

    <parent>/penstock-spool-3f9c0a1b2c3d-4711-81234567    of process 4711, which began at that tick, there

A process removes its own at its end. What one leaves behind that was killed is removed by the next that
starts on the same machine; on a disk that several machines share, by any of them after a day.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_NAME = re.compile(r"penstock-(?P<kind>[a-z]+)-(?P<place>[0-9a-f]{12})-(?P<pid>\d+)-(?P<tick>\d+)")
_DAY = 86_400.0
_TRIES = 20
_PAUSE = 0.1


def own_name(kind: str) -> str:
    """The name of this process's folder for something."""
    return f"penstock-{kind}-{_place()}-{os.getpid()}-{_tick(os.getpid()) or 0}"


def make(parent: Path, kind: str) -> Path:
    """The folder of this process, after a look for what others have left behind."""
    sweep(parent, kind)
    folder = parent / own_name(kind)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def sweep(parent: Path, kind: str) -> None:
    """Remove the folders of processes that are gone."""
    with suppress(OSError):
        for folder in list(parent.iterdir()):
            if is_left(folder.name, kind) or _is_old(folder, kind):
                shutil.rmtree(folder, ignore_errors=True)


def is_left(name: str, kind: str) -> bool:
    """Whether a folder of this name belongs to a process of this machine that has ended."""
    found = _NAME.fullmatch(name)
    if found is None or found["kind"] != kind or found["place"] != _place():
        return False
    return _tick(int(found["pid"])) != int(found["tick"])


def remove(folder: Path) -> None:
    """Remove it, also while somebody who is about to end still writes there."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE)


def _is_old(folder: Path, kind: str) -> bool:
    """Whether it is of another machine, and nothing was made in it for a day."""
    found = _NAME.fullmatch(folder.name)
    if found is None or found["kind"] != kind or found["place"] == _place():
        return False
    with suppress(OSError):
        return time.time() - folder.stat().st_mtime > _DAY
    return False


@cache
def _place() -> str:
    """What tells this machine, and this container on it, from others: process ids mean nothing elsewhere."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _tick(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None if there is none. 0 where nobody knows."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[19])
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0
