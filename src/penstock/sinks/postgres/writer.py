"""Batches on their way into a table of PostgreSQL."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, StaleToken, StreamError, StreamMismatch, TransientError
from penstock.failpoints import reach
from penstock.streams.sinks.base import Batch, Target, Writer, pass_over, repeats
from penstock.streams.sinks.postgres_copy import ATTEMPT, Copied, copy
from penstock.streams.sinks.postgres_errors import connected
from penstock.streams.sinks.postgres_table import PostgresTable
from penstock.streams.sinks.shape import flow_of

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql import DataFrame

PROGRESS = "penstock_progress"
"""The table that says which batch of which output is in its table; it stands in the same schema."""

_STAGE = "penstock_stage"
_LOCK_SECONDS = 2


class PostgresWriter(Writer):
    """Gathers a batch in a table of its own (a *stage*), and moves it over in one transaction.

    That transaction locks the output's row of the progress, which holds the token of the newest owner and
    the last batch: so it is the one place where owners meet.
    """

    def __init__(
        self, url: str, target: Target, table: PostgresTable, keys: Sequence[str], connections: int
    ) -> None:
        self._url = url
        self._target = target
        self._table = table
        self._keys = tuple(keys)
        self._connections = connections
        self._fields = tuple(target.table.__fields__)
        self._progress = table.beside(PROGRESS)
        self._stages = f"{_STAGE}_{hashlib.sha256(target.application.encode()).hexdigest()[:12]}_"

    def fence(self, connection: Connection) -> None:
        """Put our token beside the progress, so that no earlier owner's batch is taken any more."""
        connection.execute(
            _sql(
                "CREATE TABLE IF NOT EXISTS {} (application text PRIMARY KEY, batch bigint,"
                " epoch bigint NOT NULL, token bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())",
                self._progress,
            )
        )
        raised = connection.execute(
            _sql(
                "INSERT INTO {} AS p (application, epoch, token) VALUES (%s, 0, %s)"
                " ON CONFLICT (application) DO UPDATE SET token = EXCLUDED.token"
                " WHERE p.token <= EXCLUDED.token RETURNING token",
                self._progress,
            ),
            [self._target.application, self._target.token],
        )
        if raised.fetchone() is None:
            raise self._stale()

    def clean(self) -> None:
        """Drop the stages that earlier attempts of this output left. One that is in use is spared."""
        with connected(self._url) as connection:
            rows = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)",
                [self._table.schema, self._stages],
            ).fetchall()
        for (name,) in rows:
            token = re.match(r"\d+", str(name).removeprefix(self._stages))
            if token and int(token[0]) <= self._target.token:
                self._drop(self._table.beside(str(name)))

    def write(self, frame: DataFrame, batch: Batch) -> None:
        stage = self._prepare(batch)
        if stage is None:
            pass_over(frame)
            return
        reach("sink.postgres.stage")
        try:
            copied = self._copy(frame, stage)
            reach("sink.postgres.rows")
            self._move(stage, copied, batch)
        except Exception:
            self._drop(stage)
            self._check_owner()
            raise
        reach("sink.postgres.committed")

    def _prepare(self, batch: Batch) -> Identifier | None:
        """A new stage; None if the batch is there already.

        It has no log, so that a crash of the server empties it: that is noticed, and the batch comes again.
        """
        name = f"{self._stages}{self._target.token}_{batch.number}_{uuid.uuid4().hex[:8]}"
        stage = self._table.beside(name)
        with connected(self._url) as connection:
            if self._has(connection, batch):
                return None
            connection.execute(
                _sql(
                    "CREATE UNLOGGED TABLE {} AS SELECT 0::bigint AS {}, {} FROM {} WITH NO DATA",
                    stage,
                    ATTEMPT,
                    self._fields,
                    self._table.identifier,
                )
            )
        return stage

    def _copy(self, frame: DataFrame, stage: Identifier) -> Copied:
        flow = flow_of(frame, self._target.table)
        statement = _sql("COPY {} ({}, {}) FROM STDIN (FORMAT csv)", stage, ATTEMPT, self._fields)
        return copy(frame.sparkSession, flow, self._url, statement.as_string(), self._connections)

    def _move(self, stage: Identifier, copied: Copied, batch: Batch) -> None:
        with connected(self._url) as connection:
            if not self._has(connection, batch):
                self._check_complete(connection, stage, copied)
                if self._target.mode == "complete":
                    connection.execute(_sql("DELETE FROM {}", self._table.identifier))
                self._insert(connection, stage, copied)
                connection.execute(
                    _sql(
                        "UPDATE {} SET batch = %s, epoch = greatest(epoch, %s), at = now()"
                        " WHERE application = %s",
                        self._progress,
                    ),
                    [batch.number, batch.epoch, self._target.application],
                )
            connection.execute(_sql("DROP TABLE {}", stage))
            reach("sink.postgres.moved")

    def _has(self, connection: Connection, batch: Batch) -> bool:
        """Whether the batch is in the table; nobody else can change that before the transaction ends."""
        row = connection.execute(
            _sql("SELECT batch, epoch, token FROM {} WHERE application = %s FOR UPDATE", self._progress),
            [self._target.application],
        ).fetchone()
        if row is None:
            raise StreamMismatch(
                f"{PROGRESS} has no row for {self._target.application} any more",
                left="nothing was written",
                hint="restore it from a backup, or give the output a new name",
            )
        last, epoch, token = row
        if token > self._target.token:
            raise self._stale()
        return repeats(batch, last, f"table {self._table}", epoch)

    def _check_owner(self) -> None:
        """Raise `StaleToken` if that is why something failed: the next owner drops our stages."""
        row = None
        with suppress(PenstockError), connected(self._url) as connection:
            row = connection.execute(
                _sql("SELECT token FROM {} WHERE application = %s", self._progress),
                [self._target.application],
            ).fetchone()
        if row is not None and row[0] > self._target.token:
            raise self._stale()

    def _check_complete(self, connection: Connection, stage: Identifier, copied: Copied) -> None:
        counted = connection.execute(
            _sql("SELECT count(*) FROM {} WHERE {} = ANY(%s)", stage, ATTEMPT), [copied.attempts]
        ).fetchone()
        if counted is None or counted[0] != copied.rows:
            raise TransientError(
                f"PostgreSQL was restarted and lost what was gathered for table {self._table}",
                left="nothing of the batch; it comes again",
            )

    def _insert(self, connection: Connection, stage: Identifier, copied: Copied) -> None:
        from psycopg.errors import CardinalityViolation

        statement = _sql(
            "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} = ANY(%s)",
            self._table.identifier,
            self._fields,
            self._fields,
            stage,
            ATTEMPT,
        )
        try:
            connection.execute(statement + self._on_conflict(), [copied.attempts])
        except CardinalityViolation:
            connection.rollback()
            raise self._twice(connection, stage, copied) from None

    def _on_conflict(self) -> Composed:
        """What becomes of a row whose key is there already."""
        if not self._keys:
            return _sql("")
        others = [name for name in self._fields if name not in self._keys]
        if not others:
            return _sql(" ON CONFLICT ({}) DO NOTHING", self._keys)
        values = [f"excluded.{name}" for name in others]
        return _sql(" ON CONFLICT ({}) DO UPDATE SET ({}) = ROW({})", self._keys, others, values)

    def _twice(self, connection: Connection, stage: Identifier, copied: Copied) -> StreamError:
        row = connection.execute(
            _sql(
                "SELECT {} FROM {} WHERE {} = ANY(%s) GROUP BY {} HAVING count(*) > 1 LIMIT 1",
                self._keys,
                stage,
                ATTEMPT,
                self._keys,
            ),
            [copied.attempts],
        ).fetchone()
        example = ", ".join(f"{key} = {value}" for key, value in zip(self._keys, row or (), strict=False))
        return StreamError(
            f"a batch has several rows with the same key for table {self._table} ({example})",
            left="nothing of the batch",
            hint="make them one row before the output, by an aggregation or dropDuplicates",
        )

    def _drop(self, stage: Identifier) -> None:
        """Best effort: what is left is dropped when the output is next opened."""
        with suppress(PenstockError), connected(self._url) as connection:
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
            connection.execute(_sql("DROP TABLE IF EXISTS {}", stage))

    def _stale(self) -> StaleToken:
        return StaleToken(
            f"output {self._target.output} was taken over: token {self._target.token} is not the newest",
            left="nothing of the batch",
        )


def _sql(text: str, *parts: Identifier | str | Sequence[str]) -> Composed:
    """A statement with names in it: a text stands for one, several for a list; `a.b` has a qualifier."""
    from psycopg.sql import SQL, Identifier

    def named(part: Identifier | str | Sequence[str]) -> Composed | Identifier:
        if isinstance(part, Identifier):
            return part
        if isinstance(part, str):
            return Identifier(*part.split(".", 1))
        return SQL(", ").join([Identifier(*name.split(".", 1)) for name in part])

    return SQL(text).format(*map(named, parts))
