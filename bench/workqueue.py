"""The peer of the claims: a work queue in one SQLite table, as one writes it by hand.

Claims are leased and fenced like ours, and as durable: a write-ahead log, synced at every commit.
Writers wait for each other with SQLite's own busy timeout.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

_SCHEMA = """
CREATE TABLE work (
  id INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0, token INTEGER NOT NULL DEFAULT 0,
  owner TEXT, until REAL, digest TEXT
);
CREATE INDEX free ON work (id) WHERE state = 0;
CREATE INDEX leased ON work (until) WHERE state = 1;
"""
_CLAIM = """
UPDATE work SET state = 1, token = token + 1, owner = ?, until = ?
WHERE id IN (SELECT id FROM work WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id, token
"""
_TAKE_OVER = """
UPDATE work SET state = 1, token = token + 1, owner = ?, until = ?
WHERE id IN (SELECT id FROM work WHERE state = 1 AND until < ? LIMIT ?) RETURNING id, token
"""
_ACK = "UPDATE work SET state = 2, digest = ? WHERE id = ? AND token = ? AND owner = ? AND state = 1"

Item = tuple[int, int]
"""The id of a piece of work and the token it is held under."""


class WorkQueue:
    """A connection to the queue; a process has its own."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")

    def fill(self, count: int) -> None:
        self._connection.executescript(_SCHEMA)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO work (id) VALUES (?)", ((i,) for i in range(count)))
        self._connection.execute("COMMIT")

    def claim(self, owner: str, ttl: float, count: int) -> list[Item]:
        now = time.time()
        with_lease = (owner, now + ttl)
        self._connection.execute("BEGIN IMMEDIATE")
        found: list[Item] = self._connection.execute(_CLAIM, (*with_lease, count)).fetchall()
        if len(found) < count:
            found += self._connection.execute(_TAKE_OVER, (*with_lease, now, count - len(found))).fetchall()
        self._connection.execute("COMMIT")
        return found

    def ack(self, items: Sequence[Item], owner: str, digest: str) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for number, token in items:
            if self._connection.execute(_ACK, (digest, number, token, owner)).rowcount != 1:
                raise RuntimeError(f"{number} is not held any more")
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
