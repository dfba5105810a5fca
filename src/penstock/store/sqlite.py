"""The embedded store: one SQLite file, for any number of processes on one machine.

Every write is one transaction with one fsync. Writes, checkpoints and closing happen under a file
lock beside the database: waiting there is fair, and no two connections ever write and checkpoint
at once. Reads take no lock. A store that lives through a fork opens itself anew in the child.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from penstock.core import clocks
from penstock.errors import UsageError
from penstock.store.backends import LAST, KeptSession, check_ttl, check_writes, session_lost, survive_forks
from penstock.store.base import Change, Changes, Document, Session, Store, Write
from penstock.store.sqlite_file import Handle, explain, scalar

_POLL = 0.05
_GLANCE = 0.005
_WATCH_LIMIT = 1000
# A watch that lags further behind than this many writes may miss that a document was deleted.
_TOMBSTONES = 10_000

_GET = "SELECT key, value, version FROM documents WHERE key = ? AND value IS NOT NULL"
_CREATE = """INSERT INTO documents (key, value, version) VALUES (?1, ?2, ?3) ON CONFLICT (key)
    DO UPDATE SET value = ?2, version = ?3 WHERE documents.value IS NULL"""
_UPDATE = "UPDATE documents SET value = ?, version = ? WHERE key = ? AND version = ? AND value IS NOT NULL"
_LIST = """SELECT key, value, version FROM documents INDEXED BY documents_living
    WHERE key >= ? AND key > ? AND key < ? AND value IS NOT NULL ORDER BY key LIMIT ?"""
_WATCH = """SELECT key, value, version FROM documents INDEXED BY documents_version
    WHERE version > ? AND key >= ? AND key < ? ORDER BY version LIMIT ?"""
_REVISION = "SELECT coalesce(max(version), 0) FROM documents"
_PRUNE = "DELETE FROM documents WHERE value IS NULL AND version <= ?"
# The last condition unmasks a session of an earlier boot where the system gives no boot id.
_ALIVE = "boot = :boot AND expires > :now AND expires - ttl <= :now"


class SqliteStore(Store):
    """A store in the SQLite file at ``path``; missing directories are made."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._log = self.path.with_name(self.path.name + "-wal")
        self._opening = threading.Lock()
        self._handle: Handle | None = None
        self._closed = False
        self._open()
        survive_forks(self)

    def get(self, key: str) -> Document | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[str]) -> Sequence[Document | None]:
        if len(keys) == 1:
            rows = self._read(_GET, (keys[0],))
        else:
            holes = ",".join("?" * len(keys))
            rows = self._read(_GET.replace("= ?", f"IN ({holes})"), tuple(keys))
        found = {row[0]: Document(*row) for row in rows}
        return [found.get(key) for key in keys]

    def cas(self, key: str, expected: int, value: bytes | None) -> int | None:
        return self.cas_many([Write(key, expected, value)])[0]

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        check_writes(writes)
        outcome = []
        with self._write() as connection:
            revision = start = scalar(connection, _REVISION)
            for write in writes:
                next_version = revision + 1
                if write.expected == 0:
                    connection.execute(_CREATE, (write.key, write.value, next_version))
                else:
                    connection.execute(_UPDATE, (write.value, next_version, write.key, write.expected))
                written = connection.changes() == 1
                revision += written
                outcome.append(revision if written else None)
            # Only now and then: each run looks at an index that holds nothing but tombstones.
            if revision // 256 != start // 256:
                connection.execute(_PRUNE, (revision - _TOMBSTONES,))
        return outcome

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[Document]:
        return [Document(*row) for row in self._read(_LIST, (prefix, after, prefix + LAST, limit))]

    def watch(self, prefix: str, since: int, timeout: float) -> Changes:
        deadline = time.monotonic() + timeout
        seen = since
        while True:
            mark = self._mark()
            revision = self.revision()
            if revision > seen:
                rows = self._read(_WATCH, (since, prefix, prefix + LAST, _WATCH_LIMIT))
                if rows:
                    changes = [Change(*row) for row in rows]
                    return Changes(changes, changes[-1].version)
                seen = revision
            left = deadline - time.monotonic()
            if left <= 0:
                return Changes((), seen)
            self._wait(mark, min(left, _POLL))

    def _wait(self, mark: tuple[int, int], seconds: float) -> None:
        """Wait until somebody seems to have written. Looking at the log's file costs next to nothing."""
        end = time.monotonic() + seconds
        while self._mark() == mark and (left := end - time.monotonic()) > 0:
            time.sleep(min(_GLANCE, left))

    def _mark(self) -> tuple[int, int]:
        """What a write to the log changes, as a rule: times of files are coarse."""
        try:
            found = self._log.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size

    def revision(self) -> int:
        return int(self._read(_REVISION, ())[0][0])

    def session(self, ttl: float) -> Session:
        check_ttl(ttl)
        with self._write() as connection:
            times = _times()
            connection.execute(f"DELETE FROM sessions WHERE NOT ({_ALIVE})", times)
            opened = KeptSession(self, secrets.token_hex(8), ttl)
            values = (opened.id, ttl, times["now"] + ttl, times["boot"])
            connection.execute("INSERT INTO sessions (id, ttl, expires, boot) VALUES (?, ?, ?, ?)", values)
        return opened

    def alive(self, sessions: Collection[str]) -> frozenset[str]:
        if not sessions:
            return frozenset()
        names = {f"s{i}": session for i, session in enumerate(sessions)}
        among = f"id IN ({','.join(f':{name}' for name in names)})"
        query = f"SELECT id, {_ALIVE} FROM sessions WHERE {among}"
        rows = self._read(query, _times() | names)
        if not all(row[1] for row in rows):
            # A keepalive may be on its way to the disk: death is final only once it is written.
            with self._write() as connection:
                connection.execute(f"DELETE FROM sessions WHERE {among} AND NOT ({_ALIVE})", _times() | names)
            rows = self._read(query, _times() | names)
        return frozenset(row[0] for row in rows)

    def close(self) -> None:
        with self._opening:
            self._closed = True
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()

    def extend_session(self, session: str, ttl: float) -> None:
        """What `Session.keepalive` does."""
        with self._write() as connection:
            times = _times() | {"id": session, "ttl": ttl}
            connection.execute(
                f"UPDATE sessions SET expires = :now + :ttl WHERE id = :id AND {_ALIVE}", times
            )
            extended = connection.changes() == 1
        if not extended:
            raise session_lost(ttl)

    def end_session(self, session: str) -> None:
        """What `Session.close` does."""
        with self._write() as connection:
            connection.execute("DELETE FROM sessions WHERE id = ?", (session,))

    def _read(self, query: str, values: Any) -> Any:
        handle = self._open()
        with self._explained(), handle.lock:
            return handle.connection.execute(query, values).fetchall()

    @contextmanager
    def _write(self) -> Iterator[apsw.Connection]:
        handle = self._open()
        with self._explained(), handle.gate.held(), handle.lock:
            connection = handle.connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _open(self) -> Handle:
        handle = self._handle
        if handle is not None:
            return handle
        with self._opening:
            if self._closed:
                raise UsageError(f"{self.url} was closed", hint="open the store again")
            if self._handle is None:
                with self._explained():
                    self._handle = Handle(self.path)
            return self._handle

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            raise explain(self.path, error) from error

    def after_fork(self) -> None:
        """In a forked child: start anew, since neither locks nor connections survive a fork."""
        self._opening = threading.Lock()
        if self._handle is not None:
            self._handle.abandon()
            self._handle = None


def _times() -> dict[str, Any]:
    return {"now": clocks.now(), "boot": clocks.boot()}
