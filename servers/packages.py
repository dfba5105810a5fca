"""Programs that tests and benchmarks need and that do not come from PyPI."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

_APT = 300.0


class Missing(Exception):
    """A program is not there and cannot be installed here."""


def need(program: str, package: str, folder: Callable[[], Path | None] = lambda: None) -> str:
    """The path of ``program``, after installing the Debian package that brings it if need be.

    ``folder`` names one to look into first, if there is any. Raises `Missing`, with what to do, where the
    program is neither there nor can be installed.
    """
    found = _find(program, folder())
    if found is None:
        _install(package)
        found = _find(program, folder())
    if found is None:
        raise Missing(f"{program} is not installed: apt-get install {package}")
    return found


def _find(program: str, folder: Path | None) -> str | None:
    return shutil.which(program, path=f"{folder}{os.pathsep}{_PATH}" if folder else _PATH)


def _install(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with (Path(tempfile.gettempdir()) / "penstock-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A package that starts its server when it is installed must not do so here.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        for command in (install, ["apt-get", "update", "-qq"], install):
            with suppress(subprocess.TimeoutExpired):
                done = subprocess.run(
                    command, check=False, env=environment, capture_output=True, timeout=_APT
                )
                if command is install and done.returncode == 0:
                    return
