"""Batches on their way into a table of PostgreSQL."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Literal

from penstock.core.failpoints import reach
from penstock.errors import PenstockError, StaleToken, StreamError, StreamMismatch, TransientError
from penstock.sinks.base import Batch, Target, Writer, pass_over, repeats
from penstock.sinks.columns import flow_of
from penstock.sinks.postgres.copy import ATTEMPT, Copied, copy
from penstock.sinks.postgres.errors import connected
from penstock.sinks.postgres.table import PostgresTable

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier
    from pyspark.sql import DataFrame

PROGRESS = "penstock_progress"
"""The table that says which batch of which output is in its table; it stands in the same schema."""

_STAGE = "penstock_stage"
_FENCE_SECONDS = 5
_DROP_SECONDS = 2


class PostgresWriter(Writer):
    """Gathers a batch in a table of its own (a *stage*), and moves it over in one transaction.

    That transaction locks the output's row of the progress, which holds the token of the newest owner and
    the last batch: so it is the one place where owners meet. An owner that was stopped in there is ended by
    the next one, which finds its connections by their name.
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
        application = hashlib.sha256(target.application.encode()).hexdigest()[:12]
        self._stages = f"{_STAGE}_{application}_"
        self._names = f"penstock-{application}-"

    def fence(self) -> None:
        """Put our token beside the progress, so that no earlier owner's batch is taken any more."""
        self._end_earlier()
        with self._connected(_FENCE_SECONDS) as connection:
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

    def _connected(self, lock_seconds: float | None = None) -> AbstractContextManager[Connection]:
        return connected(self._url, f"{self._names}{self._target.token}", lock_seconds=lock_seconds)

    def _end_earlier(self) -> None:
        """End the connections of earlier owners, as far as we may.

        One that was stopped in the middle of a transaction would hold its locks until the server loses
        patience. Whatever it had not committed is repeated by us.
        """
        with self._connected() as connection:
            found = connection.execute(
                "SELECT pid, application_name FROM pg_stat_activity WHERE datname = current_database()"
                " AND starts_with(application_name, %s) AND pg_has_role(usesysid, 'MEMBER')",
                [self._names],
            ).fetchall()
            earlier = [pid for pid, name in found if self._is_earlier(str(name).removeprefix(self._names))]
            connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", [earlier])

    def _is_earlier(self, token: str) -> bool:
        return token.isdecimal() and int(token) < self._target.token

    def clean(self) -> None:
        """Drop the stages that earlier attempts of this output left. One that is in use is spared."""
        with self._connected() as connection:
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
        with self._connected() as connection:
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
        name = f"{self._names}{self._target.token}"
        text = statement.as_string()
        return copy(frame.sparkSession, flow, self._url, name, text, self._keys, self._connections)

    def _move(self, stage: Identifier, copied: Copied, batch: Batch) -> None:
        with self._connected() as connection:
            if not self._has(connection, batch, " FOR UPDATE"):
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

    def _has(self, connection: Connection, batch: Batch, how: Literal["", " FOR UPDATE"] = "") -> bool:
        """Whether the batch is in the table.

        With ``FOR UPDATE``, nobody else can change that before the transaction ends.
        """
        row = connection.execute(
            _sql(f"SELECT batch, epoch, token FROM {{}} WHERE application = %s{how}", self._progress),
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
        with suppress(PenstockError), self._connected() as connection:
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
        with suppress(PenstockError), self._connected(_DROP_SECONDS) as connection:
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
