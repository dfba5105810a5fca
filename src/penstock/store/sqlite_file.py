"""One process's hold on the SQLite file of a store: how it is made, opened, locked and let go."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import apsw

from penstock.errors import CorruptFile, PenstockError, StorageFull, StoreUnavailable, UsageError
from penstock.store.filelock import FileLock

_APPLICATION = 0x50454E53
_FORMAT = 1
_LOCK_TIMEOUT = 5.0

# Not part of the format: a store of an earlier release gets it when it is opened, and that release keeps it.
_LIVING = "CREATE INDEX IF NOT EXISTS documents_living ON documents (key) WHERE value IS NOT NULL"
_SCHEMA = f"""
CREATE TABLE documents (key TEXT NOT NULL UNIQUE, value BLOB, version INTEGER NOT NULL);
CREATE UNIQUE INDEX documents_version ON documents (version);
CREATE INDEX documents_deleted ON documents (version) WHERE value IS NULL;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, ttl REAL NOT NULL, expires REAL NOT NULL, boot TEXT NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMAT};
"""


class Handle:
    """What one process holds of a store: a connection, its lock, and the lock among processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.gate = FileLock(path.with_name(path.name + ".lock"), _LOCK_TIMEOUT)
        try:
            with self.gate.held():
                self.connection = _connect(path)
        except BaseException:
            self.gate.close()
            raise

    def close(self) -> None:
        try:
            with self.gate.held(), self.lock:
                self.connection.close()
        except StoreUnavailable:
            _abandoned.append(self.connection)
        self.gate.close()

    def abandon(self) -> None:
        """In a forked child: leave the parent's connection alone, and give up its file lock."""
        self.gate.close()
        _abandoned.append(self.connection)


def _connect(path: Path) -> apsw.Connection:
    # A new one is for its owner alone, and so are the files that SQLite puts beside it: tokens and what
    # passwords are checked with stand in it. Who shares a store with others on this machine opens it to them.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = apsw.Connection(str(path))
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: apsw.Connection, path: Path) -> None:
    connection.set_busy_timeout(int(_LOCK_TIMEOUT * 1000))
    application = scalar(connection, "PRAGMA application_id")
    if application != _APPLICATION:
        if scalar(connection, "SELECT count(*) FROM sqlite_schema"):
            raise UsageError(f"{path} is the database of another program", hint="choose another store URL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT")
    elif (found := scalar(connection, "PRAGMA user_version")) != _FORMAT:
        raise UsageError(
            f"{path} has store format {found}, and this version of Penstock knows format {_FORMAT}",
            hint="upgrade Penstock, or choose another store URL",
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_LIVING)


def scalar(connection: apsw.Connection, query: str) -> int:
    """The one number that ``query`` gives."""
    value: Any = connection.execute(query).fetchall()[0][0]
    return int(value)


def explain(path: Path, error: Exception) -> PenstockError:
    """What a fault of SQLite or the system means to the user of the store at ``path``."""
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return CorruptFile(
            f"{path} is not a readable store: {error}",
            left="the file was not changed",
            hint="restore it from a backup, or move it away (with its -wal and -shm files) to start anew",
        )
    if isinstance(error, apsw.FullError) or _is_full(path, error):
        return StorageFull(
            f"no space left for the store {path}",
            left="everything that was committed is kept; this write was not made",
            hint="free some space, then run the same command again",
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | PermissionError | NotADirectoryError):
        return UsageError(
            f"cannot open the store {path} for writing: {error}", hint="check path and permissions"
        )
    return StoreUnavailable(f"the store {path} did not answer: {error}", hint="try again")


def _is_full(path: Path, error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if not isinstance(error, apsw.IOError):
        return False
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < 1 << 16


# Connections that must not be closed here: that could checkpoint under somebody else's feet.
_abandoned: list[apsw.Connection] = []
