"""Up to which key all rows are there. `penstock.sources.postgres.source` says why that takes some waiting."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.sources.postgres.client import (
    Key,
    beyond,
    columns,
    descending,
    key_tuple,
    key_values,
    psycopg_package,
    relation,
)

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable

    from penstock.sources.postgres.shape import PostgresShape
    from penstock.sources.postgres.source import PostgresSource

_log = logging.getLogger(__name__)

_PATIENCE = 60.0
_SHORT = 0.2
_PAUSE = 0.02

# VACUUM can write no row of ours, and may run for hours. A backend is left out only where it is known to work
# in another database: one that came a moment ago may not be in the list of backends yet.
_TRANSACTIONS = """
SELECT l.virtualtransaction, l.pid FROM pg_locks l
WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid()
  AND NOT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_database d ON d.oid = a.datid
                  WHERE a.pid = l.pid AND d.datname <> current_database())
  AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = l.pid)
"""
# The tables are those that this very statement holds locks on: a table with its partitions, or all of a view.
# A lock that is only asked for counts too, since nothing tells whether the key is taken already.
_WRITERS = """
SELECT DISTINCT l.virtualtransaction, l.pid
FROM (SELECT) one LEFT JOIN LATERAL {} touched ON true CROSS JOIN pg_locks l
WHERE l.locktype = 'relation' AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.relation IN (
    SELECT relation FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid()
    UNION SELECT p.relid FROM pg_locks o, pg_partition_ancestors(o.relation::regclass) p
    WHERE o.locktype = 'relation' AND o.pid = pg_backend_pid())
"""
_PREPARED = "SELECT transaction::text FROM pg_prepared_xacts WHERE database = current_database()"


@dataclass(slots=True)
class _Pending:
    """A horizon that is not settled: who must end first, and since when it is waited for."""

    key: Key
    is_last: bool
    open: dict[str, int | None]
    prepared: set[str]
    since: float
    told: bool = False

    def is_settled(self) -> bool:
        return not self.open and not self.prepared


class Horizon:
    """``key``: all rows up to it are there. ``is_last``: it is where the source ends."""

    def __init__(self, source: PostgresSource, after: Key | None) -> None:
        self._source = source
        self._pending: _Pending | None = None
        self.key = after
        self.is_last = after is not None and after == source.until

    def forget(self) -> None:
        """Who is at work is found anew."""
        self._pending = None

    def advance(self, connection: psycopg.Connection[Any], shape: PostgresShape) -> bool:
        """Move on, all rows so far having been brought, if there is more and it is settled, or is soon."""
        if self.is_last:
            return False
        if self._pending is None:
            self._pending = self._look(connection, shape)
        found = self._pending
        if found is None or not self._settles(connection, found):
            return False
        self._pending, self.key, self.is_last = None, found.key, found.is_last
        return True

    def _settles(self, connection: psycopg.Connection[Any], pending: _Pending) -> bool:
        deadline = time.monotonic() + _SHORT
        while not pending.is_settled():
            self._look_again(connection, pending)
            if pending.is_settled():
                break
            if time.monotonic() > deadline:
                self._complain(pending)
                return False
            time.sleep(_PAUSE)
        return True

    def _look(self, connection: psycopg.Connection[Any], shape: PostgresShape) -> _Pending | None:
        """The greatest key now, and who is at work. The keys are read first: whoever holds a smaller one by
        then is still at work when that is read, or has ended and is visible from then on.
        """
        source, sql = self._source, psycopg_package().sql
        until, reached = source.until, sql.SQL("false")
        if until:
            reached = sql.SQL("{} >= {}").format(key_tuple(source.key), key_values(until))
        statement = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {} LIMIT 1").format(
            reached,
            columns(source.key),
            relation(source.name),
            sql.SQL(" AND ").join([beyond(source.key, self.key), *self._margin(shape)]),
            descending(source.key),
        )
        row = connection.execute(statement).fetchone()
        if row is None:
            return None
        is_last, *values = row
        # Rows between the greatest that is seen and the end may still be on their way.
        key = until if is_last and until else tuple(values)
        # The transactions first, as in `_look_again`.
        working = self._working(connection)
        return _Pending(key, is_last, working, self._prepared(connection), time.monotonic())

    def _look_again(self, connection: psycopg.Connection[Any], pending: _Pending) -> None:
        """Drop those who have ended. A transaction that was prepared for a commit in two phases has left the
        list of the open ones and not ended: the prepared ones are therefore read second, and all count.
        """
        had_open = bool(pending.open)
        now = self._working(connection)
        pending.open = {each: pid for each, pid in pending.open.items() if each in now}
        prepared = self._prepared(connection)
        pending.prepared = prepared if had_open else pending.prepared & prepared

    def _working(self, connection: psycopg.Connection[Any]) -> dict[str, int | None]:
        """The open transactions that count, with their backends."""
        if self._source.wait_for == "nothing":
            return {}
        if self._source.wait_for == "transactions":
            return dict(connection.execute(_TRANSACTIONS).fetchall())
        sql = psycopg_package().sql
        # Reading the table takes the locks by which the statement knows what the table consists of.
        touch = sql.SQL("(SELECT FROM {} WHERE {} LIMIT 1)").format(
            relation(self._source.name), beyond(self._source.key, self.key)
        )
        return dict(connection.execute(sql.SQL(_WRITERS).format(touch)).fetchall())

    def _prepared(self, connection: psycopg.Connection[Any]) -> set[str]:
        if self._source.wait_for == "nothing":
            return set()
        return {each for (each,) in connection.execute(_PREPARED)}

    def _complain(self, pending: _Pending) -> None:
        if pending.told or time.monotonic() - pending.since < _PATIENCE:
            return
        pending.told = True
        backends = ", ".join(str(pid) for pid in pending.open.values() if pid is not None)
        _log.warning(
            "%r brings no rows: it waits for open transactions (backends: %s; prepared: %s)",
            self._source,
            backends or "none",
            ", ".join(pending.prepared) or "none",
        )

    def _margin(self, shape: PostgresShape) -> list[Composable]:
        """now() is read off the clock just before its transaction can be seen: leave that time to appear."""
        if shape.key_types[0] != "timestamptz" or self._source.wait_for == "nothing":
            return []
        sql = psycopg_package().sql
        first = sql.Identifier(self._source.key[0])
        return [sql.SQL("{} < statement_timestamp() - interval '1 second'").format(first)]
