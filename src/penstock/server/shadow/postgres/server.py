"""The folder of a PostgreSQL server, and the server in it.

Below the folder that we are given each process that uses it takes a number, by a lock on ``N.lock`` which
the kernel frees however the process ends. ``N/`` belongs to whoever runs PostgreSQL and is closed to
everybody else: it holds ``data``, ``socket`` and ``log``. Its contents are a cache: what looks wrong is made
anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from penstock.server.shadow.postgres import guardian
from penstock.server.shadow.postgres.link import Link
from penstock.server.shadow.postgres.programs import CannotServe, Programs, reachable
from penstock.server.shadow.postgres.setup import OWNER, SETTINGS, harden, setup_key

_SLOTS = 64
_SOCKET_PATH = 90
"""Longest name of a folder for sockets: the kernel allows 107 bytes for the socket's own."""
_PATIENCE = 30.0
MEMORY = 256 << 20
"""What one backend may allocate."""
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


class PostgresServer:
    """One server. Not thread-safe: its owner holds a lock."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self._programs = programs
        self._folder = folder
        self._lock: IO[bytes] | None = None
        self._slot = folder
        self._sockets = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def connect(self, role: str, options: str = "", database: str = "") -> Link:
        return Link.open(self._sockets, role, options, database)

    def owner(self) -> Link:
        """A connection that may do everything."""
        return self.connect(
            OWNER, "-c default_transaction_read_only=off -c statement_timeout=0 -c work_mem=32MB"
        )

    def start(self) -> None:
        """Start it in what is there, or else from nothing."""
        if self._lock is None:
            self._claim()
        self._end_stale()
        key = setup_key(self._programs.version)
        marker = self._slot / "made"
        if marker.exists() and marker.read_text() == key:
            try:
                self._serve()
            except CannotServe:
                self._end()
            else:
                return
        self._make()
        self._serve()
        marker.write_text(key)

    def stop(self) -> None:
        self._end()
        if self._lock is None:
            return
        # What is not in the folder that we were given is not left lying about.
        for path in (self._sockets, self._slot):
            if self._folder.absolute() not in path.parents:
                shutil.rmtree(path, ignore_errors=True)
        self._lock.close()
        self._lock = None

    # ---------------------------------------------------------------- folders

    def _claim(self) -> None:
        home = self._home()
        for number in range(_SLOTS):
            lock = (home / f"{number}.lock").open("ab")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._lock = lock
            self._slot = self._own(home / str(number))
            break
        else:
            raise CannotServe(
                f"{_SLOTS} processes use {home} already", hint="give each gateway a folder of its own"
            )
        sockets = self._slot / "socket"
        if len(os.fsencode(sockets)) > _SOCKET_PATH:
            sockets = self._short() / f"{number}-socket"
        self._sockets = self._own(sockets)

    def _home(self) -> Path:
        folder, account = self._folder.absolute(), self._programs.account
        folder.mkdir(mode=0o700 if account is None else 0o711, parents=True, exist_ok=True)
        if account is None:
            return folder
        # As root another user must reach it. We open no doors for that: if one is shut, we go elsewhere.
        if reachable(folder / "0", account):
            return folder
        return self._short()

    def _short(self) -> Path:
        """A folder with a short name that is always the same, so that nothing piles up in /tmp."""
        name = hashlib.sha256(os.fsencode(self._folder.absolute())).hexdigest()[:12]
        path = Path(tempfile.gettempdir()) / f"penstock-{os.geteuid()}-{name}"
        path.mkdir(mode=0o711, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise CannotServe(f"{path} is not ours alone", hint=f"remove {path}")
        return path

    def _own(self, path: Path) -> Path:
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)
        if self._programs.account is not None:
            os.chown(path, self._programs.account.uid, self._programs.account.gid)
        return path

    # ---------------------------------------------------------------- the server

    def _make(self) -> None:
        data = self._slot / "data"
        (self._slot / "made").unlink(missing_ok=True)
        if data.exists():
            shutil.rmtree(data)
        self._own(data)
        arguments = [self._programs.initdb, "-D", str(data), "-U", OWNER, "-A", "trust", "-E", "UTF8", "-N"]
        # Sorted by code points, as Spark sorts; segments of the log as small as they get.
        arguments += ["--locale-provider=builtin", "--locale=C.UTF-8", "--wal-segsize=1", "--no-instructions"]
        arguments += ["--no-data-checksums"]
        account = self._programs.account
        try:
            done = subprocess.run(
                arguments,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                env=_ENVIRONMENT,
                cwd="/",
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else [],
            )
        except subprocess.TimeoutExpired as error:
            raise CannotServe("initdb did not end") from error
        if done.returncode != 0:
            raise CannotServe(f"initdb failed: {_last_line(done.stderr or done.stdout)}")
        self._serve(database="template1")
        harden(self.connect, self._programs.version)
        self._end()

    def _serve(self, database: str = "") -> None:
        account = self._programs.account
        arguments = [sys.executable, "-I", "-S", str(Path(guardian.__file__))]
        arguments += [str(account.uid if account else -1), str(account.gid if account else -1), str(MEMORY)]
        arguments += [self._programs.postgres, "-D", str(self._slot / "data")]
        for name, value in {**SETTINGS, "unix_socket_directories": str(self._sockets)}.items():
            arguments += ["-c", f"{name}={value}"]
        with (self._slot / "log").open("wb") as log:
            # A session of its own: what is typed at our terminal is not meant for it.
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                Link.open(self._sockets, OWNER, "", database).close()
            except CannotServe as error:
                if self._process.poll() is not None:
                    raise CannotServe(f"PostgreSQL did not start: {self._told()}") from error
                if time.monotonic() > deadline:
                    raise CannotServe(f"PostgreSQL did not answer: {self._told() or error.what}") from error
                time.sleep(0.01)
            else:
                return

    def _told(self) -> str:
        with suppress(OSError):
            return _last_line((self._slot / "log").read_text(errors="replace"))
        return ""

    def _end(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _end_stale(self) -> None:
        """End the server of a process that is gone. We hold the lock, so there can be no other."""
        self._end()
        data = self._slot / "data"
        try:
            pid = abs(int((data / "postmaster.pid").read_text().split("\n", 1)[0]))
        except (OSError, ValueError):
            return
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            if not _serves(pid, data):
                return
            with suppress(OSError):
                os.kill(pid, how)
            deadline = time.monotonic() + 5
            while _serves(pid, data) and time.monotonic() < deadline:
                time.sleep(0.02)
        # Its children notice and leave, which takes a moment; if one stays, the folder cannot be used again.


def _serves(pid: int, data: Path) -> bool:
    """Whether the process is alive and works in ``data``, as PostgreSQL's do; a number may be used again."""
    if Path("/proc/self/cwd").exists():
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
        except OSError:
            return False
    told = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return str(data) in told.stdout


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
