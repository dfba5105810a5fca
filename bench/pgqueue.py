"""A peer of the claims: a work queue in PostgreSQL with ``SKIP LOCKED``, as one writes it by hand.

Claims are leased and fenced like ours. A batch is one statement for the claims and one for the acks; each
statement is a transaction, synced before it answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from bench.workqueue import Item

_SCHEMA = """
DROP TABLE IF EXISTS work;
CREATE TABLE work (
  id bigint PRIMARY KEY, state smallint NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0,
  owner text, until timestamptz, digest text
) WITH (fillfactor = 50);
CREATE INDEX free ON work (id) WHERE state = 0;
CREATE INDEX leased ON work (until) WHERE state = 1;
"""
_FILL = "INSERT INTO work (id) SELECT generate_series(0, %s - 1)"
_CLAIM = """
UPDATE work SET state = 1, token = token + 1, owner = %s, until = clock_timestamp() + %s * interval '1 second'
WHERE id IN (
  SELECT id FROM work WHERE state = 0 OR (state = 1 AND until < clock_timestamp())
  ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
) RETURNING id, token
"""
_CLAIM_FREE = _CLAIM.replace(" OR (state = 1 AND until < clock_timestamp())", "")
_ACK = """
UPDATE work SET state = 2, digest = %s FROM unnest(%s::bigint[], %s::bigint[]) AS held (id, token)
WHERE work.id = held.id AND work.token = held.token AND work.owner = %s AND work.state = 1
"""


class PgQueue:
    """A connection to the queue; a process has its own."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)

    def fill(self, count: int) -> None:
        self._connection.execute(_SCHEMA)
        self._connection.execute(_FILL, (count,))
        self._connection.execute("VACUUM ANALYZE work")

    def claim(self, owner: str, ttl: float, count: int) -> list[Item]:
        # Free work first, by its own index; what has expired only where that is not enough.
        found: list[Item] = self._connection.execute(_CLAIM_FREE, (owner, ttl, count)).fetchall()
        if len(found) < count:
            found += self._connection.execute(_CLAIM, (owner, ttl, count - len(found))).fetchall()
        return found

    def ack(self, items: Sequence[Item], owner: str, digest: str) -> None:
        numbers, tokens = [number for number, _ in items], [token for _, token in items]
        done = self._connection.execute(_ACK, (digest, numbers, tokens, owner)).rowcount
        if done != len(items):
            raise RuntimeError(f"{len(items) - done} are not held any more")

    def close(self) -> None:
        self._connection.close()
