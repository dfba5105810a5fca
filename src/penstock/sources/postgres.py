"""Rows of a PostgreSQL table, in the order of a key that grows.

::

    PostgresSource("postgresql://reader@db/shop", "orders", Orders, key="id")
    PostgresSource(dsn, "shop.events", Events, key=("created_at", "id"), parts=4)

The table is one that only grows: rows are not changed or deleted before they are read, and the key of a new
row is greater than those before it. *Greater than before* has a trap: a key is taken when a row is inserted,
and is seen when its transaction commits. A slow transaction shows key 5 long after a quick one showed 6, and
a reader that remembers "read up to 6" never sees 5. (Comparing the xmin of each row with the oldest running
transaction does not help: a transaction may have the older id and the greater key, and may hold a key before
it has an id.)

So a part reads up to a *horizon*: the greatest key that it sees, once all transactions have ended that were
open when it looked. Whatever took a smaller key is visible by then, or rolled back. Nobody is locked out, and
no transaction is held open here meanwhile. ``wait_for`` says whose end counts:

``"transactions"``  all transactions of the database. Right for every key that is taken within the transaction
                    that inserts the row: sequences, identities, ``now()``. A transaction that stays open for
                    hours, even one that only reads, holds the source back that long.
``"writers"``       those that have written to the table, or are about to. Right where the INSERT itself takes
                    the key, as serial and identity columns do; not for ``now()``, nor where a program calls
                    ``nextval`` first and inserts later.
``"nothing"``       none: a single writer, or rows that are all there already.

No choice is right for keys that are taken outside the transaction: in blocks by a program (hi/lo allocators),
by the clocks of several machines, on another server (a subscriber of logical replication), or from a sequence
with a cache, which is refused where it can be seen.
"""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.csv

from penstock.errors import (
    InputError,
    MissingPackage,
    NullInField,
    PenstockError,
    TransientError,
    TypeMismatch,
    UsageError,
)
from penstock.sources.base import Part, StatefulSource

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable

    from penstock.sources.state import State
    from penstock.tables import Field, Table

WaitFor: TypeAlias = Literal["transactions", "writers", "nothing"]
Key: TypeAlias = tuple[Any, ...]
"""The values of the key's columns."""

_log = logging.getLogger(__name__)

_TARGET_BYTES = 8 << 20
_FIRST_ROWS = 1_000
_MOST_ROWS = 100_000
_PATIENCE = 60.0
_SHORT = 0.2
_PAUSE = 0.02
_SETTINGS = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO'; SET client_encoding = 'UTF8'; "
    "SET default_transaction_read_only = on"
)
_DEFAULTS = {"connect_timeout": "10", "tcp_user_timeout": "15000", "application_name": "penstock"}

_KEYS: dict[str, Callable[[str], Any]] = {
    "int2": int,
    "int4": int,
    "int8": int,
    "numeric": Decimal,
    "text": str,
    "varchar": str,
    "uuid": UUID,
    "timestamptz": datetime.fromisoformat,
}
"""Types of PostgreSQL that a key's columns can have, and how their text becomes a state."""

# libpq gives no code for a refused connection, only a text, which the server may have translated. What is not
# recognised counts as passing: it is tried again, with the text in the error.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|not permitted to log in|"
    r"no pg_hba\.conf entry|permission denied"
)

_SHAPE = """
SELECT c.relkind::text, a.attname, t.typname, t.typcategory::text, a.attnotnull,
       format_type(a.atttypid, a.atttypmod)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
WHERE c.oid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_IS_UNIQUE = """
SELECT EXISTS (
  SELECT FROM pg_index i WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (SELECT bool_and(a.attname::text = ANY(%s)) FROM generate_series(0, i.indnkeyatts - 1) n
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]))
"""
_CACHED = """
SELECT s.seqrelid::regclass::text FROM pg_sequence s
WHERE s.seqrelid = pg_get_serial_sequence(%s, %s)::regclass AND s.seqcache > 1
"""
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


class PostgresSource(StatefulSource):
    """The rows of ``name``, a table or view (``"orders"``, ``"shop.orders"``), as rows of ``table``.

    ``dsn`` is a URL or a connection string of libpq; its password is never shown. ``key`` is a column, or
    several that are compared one after the other; together they are unique and not null, which is checked
    for tables, and which you vouch for with a view. ``until`` is a key: the source finishes when all rows up
    to it are read. Without it, it never does.

    Fields are columns of the same name. int takes smallint to bigint; float real and double precision; str
    text, varchar, char, uuid, json, jsonb, enums and addresses; Decimal numeric; datetime timestamptz; date,
    bool and bytes their own. Other columns are left alone; cast what you need in a view.

    ``parts`` divides the rows by a hash of the key. Each part looks at all keys that are new and takes its
    own: several parts spread what rows cost on their way here, not the scan. The number belongs to the
    stream: with another one the parts have other names, and begin anew.
    """

    def __init__(
        self,
        dsn: str,
        name: str,
        table: type[Table],
        *,
        key: str | Sequence[str],
        parts: int = 1,
        until: Any = None,
        wait_for: WaitFor = "transactions",
    ) -> None:
        self._dsn = dsn
        self.name = name
        self.table = table
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.parts = parts
        self.until = None if until is None else _as_key(until)
        self.wait_for = wait_for
        self.place = _place(dsn)
        if parts < 1 or not self.key or wait_for not in ("transactions", "writers", "nothing"):
            raise UsageError(
                f"{self!r}: parts={parts!r}, key={key!r}, wait_for={wait_for!r} is not possible",
                hint="parts is 1 or more, key names columns, "
                "wait_for is 'transactions', 'writers' or 'nothing'",
            )
        if self.until is not None and len(self.until) != len(self.key):
            raise UsageError(f"{self!r}: until has {len(self.until)} values for a key of {len(self.key)}")

    def __repr__(self) -> str:
        return f"PostgresSource({self.place}, {self.name})"

    def list_parts(self) -> list[str]:
        return [f"{index}/{self.parts}" for index in range(self.parts)]

    def build_part(self, part: str, state: State) -> PostgresPart:
        if part not in self.list_parts():
            raise UsageError(
                f"{self!r} has no part {part!r}", hint=f"go on with as many parts as before, not {self.parts}"
            )
        return PostgresPart(self, int(part.partition("/")[0]), None if state is None else _as_key(state))

    def connect(self) -> psycopg.Connection[Any]:
        """A connection that never holds a transaction between two statements, and cannot write."""
        package = _psycopg()
        try:
            given = package.conninfo.conninfo_to_dict(self._dsn)
            connection: psycopg.Connection[Any] = package.connect(**{**_DEFAULTS, **given}, autocommit=True)
        except package.OperationalError as error:
            text = str(error)
            if _REFUSED.search(text):
                raise InputError(
                    f"{self!r}: {text}", hint="check user, password and database of the connection string"
                ) from None
            raise TransientError(f"{self!r}: {text}") from None
        connection.execute(_SETTINGS)
        return connection


@dataclass(frozen=True, slots=True)
class _Shape:
    """What was learned about the table when the connection was made."""

    columns: tuple[Composable, ...]
    schema: pa.Schema
    key_types: tuple[str, ...]


@dataclass(slots=True)
class _Pending:
    """A horizon that is not settled: who must end first, and since when it is waited for."""

    key: Key
    is_last: bool
    open: dict[str, int | None]
    prepared: set[str]
    since: float
    told: bool = False


class PostgresPart(Part):
    """State: the greatest key up to which all rows of the part were brought.

    Everything but that, the horizon included, is found anew where the part is built again.
    """

    def __init__(self, source: PostgresSource, index: int, after: Key | None) -> None:
        self._source = source
        self._index = index
        self._after = after
        self._horizon = after
        self._is_last = after is not None and after == source.until
        self._pending: _Pending | None = None
        self._rows = _FIRST_ROWS
        self._connection: psycopg.Connection[Any] | None = None
        self._shape: _Shape | None = None

    def poll(self, limit: int) -> pa.RecordBatch | None:
        with self._told() as connection:
            if self._shape is None:
                self._shape = _shape(self._source, connection)
            while True:
                if self._after != self._horizon:
                    batch = self._fetch(connection, self._shape, min(limit, self._rows))
                    if batch.num_rows:
                        return batch
                if not self._advance(connection):
                    return None

    def is_finished(self) -> bool:
        return self._is_last and self._after == self._horizon

    def snapshot(self) -> State:
        if self._after is None:
            return None
        return self._after[0] if len(self._after) == 1 else list(self._after)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._shape = self._pending = None

    @contextmanager
    def _told(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection; what goes wrong with it is told as what it is, and the next poll makes another."""
        package = _psycopg()
        try:
            self._connection = self._connection or self._source.connect()
            yield self._connection
        except PenstockError:
            self.close()
            raise
        except (package.OperationalError, package.InterfaceError) as error:
            self.close()
            raise TransientError(f"{self._source!r}: {error}") from None
        except package.Error as error:
            self.close()
            raise InputError(f"{self._source!r}: {error}") from error

    # the horizon

    def _advance(self, connection: psycopg.Connection[Any]) -> bool:
        """Move the horizon, if there is a new one and it is settled, now or in a moment."""
        if self._is_last:
            return False
        if self._pending is None:
            self._pending = self._look(connection)
        found, deadline = self._pending, time.monotonic() + _SHORT
        while found is not None and (found.open or found.prepared):
            self._look_again(connection, found)
            if (found.open or found.prepared) and time.monotonic() > deadline:
                self._complain(found)
                return False
            if found.open or found.prepared:
                time.sleep(_PAUSE)
        if found is None:
            return False
        self._pending, self._horizon, self._is_last = None, found.key, found.is_last
        return True

    def _look(self, connection: psycopg.Connection[Any]) -> _Pending | None:
        """The greatest key now, and who is at work. The keys are read first: whoever holds a smaller one by
        then is still at work when that is read, or has ended and is visible from then on.
        """
        source, sql = self._source, _psycopg().sql
        until = source.until
        reached = (
            sql.SQL("{} >= {}").format(_tuple(source.key), _values(until)) if until else sql.SQL("false")
        )
        statement = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {} LIMIT 1").format(
            reached,
            _columns(source.key),
            _relation(source.name),
            sql.SQL(" AND ").join([*self._bounds(), *self._margin()]),
            _descending(source.key),
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
        sql = _psycopg().sql
        # Reading the table takes the locks by which the statement knows what the table consists of.
        touch = sql.SQL("(SELECT FROM {} WHERE {} LIMIT 1)").format(
            _relation(self._source.name), sql.SQL(" AND ").join(self._bounds())
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

    # the rows

    def _fetch(self, connection: psycopg.Connection[Any], shape: _Shape, limit: int) -> pa.RecordBatch:
        """The next rows up to the horizon, which are all there are if they are fewer than ``limit``."""
        source, sql = self._source, _psycopg().sql
        assert self._horizon is not None
        upto = sql.SQL("{} <= {}").format(_tuple(source.key), _values(self._horizon))
        select = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join(shape.columns),
            _columns(source.key),
            _relation(source.name),
            sql.SQL(" AND ").join([*self._bounds(), upto, *self._share()]),
            _columns(source.key),
            sql.Literal(limit),
        )
        copy_out = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)
        with connection.cursor() as cursor, cursor.copy(copy_out) as copy:
            data = b"".join(bytes(each) for each in copy)
        rows = _parsed(source, shape, data)
        batch = _fitted(source, rows.select(shape.schema.names), shape.schema)
        if rows.num_rows:
            fitting = _TARGET_BYTES * rows.num_rows // len(data)
            self._rows = max(1, min(_MOST_ROWS, fitting, 8 * self._rows))
        self._after = self._horizon if rows.num_rows < limit else _last_key(shape, rows)
        return batch

    def _bounds(self) -> list[Composable]:
        """What holds for keys that were not brought yet."""
        sql = _psycopg().sql
        if self._after is None:
            return [sql.SQL("true")]
        return [sql.SQL("{} > {}").format(_tuple(self._source.key), _values(self._after))]

    def _margin(self) -> list[Composable]:
        """now() is read off the clock just before its transaction can be seen: leave that time to appear."""
        assert self._shape is not None
        if self._shape.key_types[0] != "timestamptz" or self._source.wait_for == "nothing":
            return []
        sql = _psycopg().sql
        first = sql.Identifier(self._source.key[0])
        return [sql.SQL("{} < statement_timestamp() - interval '1 second'").format(first)]

    def _share(self) -> list[Composable]:
        """Which rows are the part's own. md5 stays the same in all versions of PostgreSQL; its own hashes
        need not.
        """
        if self._source.parts == 1:
            return []
        sql = _psycopg().sql
        texts = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(each)) for each in self._source.key
        )
        return [
            sql.SQL("('x' || left(md5(concat_ws('/', {})), 8))::bit(32)::bigint % {} = {}").format(
                texts, sql.Literal(self._source.parts), sql.Literal(self._index)
            )
        ]


def _last_key(shape: _Shape, rows: pa.Table) -> Key:
    last = rows.slice(rows.num_rows - 1).to_pylist()[0]
    return tuple(_KEYS[kind](last[f"key {n}"]) for n, kind in enumerate(shape.key_types))


def _shape(source: PostgresSource, connection: psycopg.Connection[Any]) -> _Shape:
    """Check that the table can be read as it was declared."""
    name = _relation(source.name).as_string(connection)
    found = connection.execute(_SHAPE, [name]).fetchall()
    if not found:
        raise InputError(
            f"{source!r}: there is no table {source.name}, or this user cannot see it",
            hint="give the schema too, as in 'shop.orders'",
        )
    columns = {column: (kind, category, full) for _, column, kind, category, _, full in found}
    for wanted in [*source.key, *source.table.input_schema().names]:
        if wanted not in columns:
            raise InputError(
                f"{source!r}: {source.name} has no column {wanted!r}",
                hint=f"columns of {source.name}: {', '.join(columns)}",
            )
    fields = [each for each in source.table.__fields__.values() if not each.derived]
    selected = tuple(_selected(source, field, *columns[field.name]) for field in fields)
    _check_key(source, connection, name, found)
    types = tuple(columns[each][0] for each in source.key)
    return _Shape(selected, source.table.input_schema(), types)


def _selected(source: PostgresSource, field: Field, kind: str, category: str, full: str) -> Composable:
    """The column as it is fetched, if values of its type fit the field."""
    sql, is_a = _psycopg().sql, pa.types
    column = sql.Identifier(field.name)
    textual = category in ("S", "E", "I") or kind in ("uuid", "json", "jsonb", "xml")
    fits = (
        (is_a.is_integer(field.type) and kind in ("int2", "int4", "int8"))
        or (is_a.is_floating(field.type) and kind in ("float4", "float8"))
        or (is_a.is_decimal(field.type) and kind == "numeric")
        or (is_a.is_string(field.type) and textual)
        or (is_a.is_boolean(field.type) and kind == "bool")
        or (is_a.is_date(field.type) and kind == "date")
        or (is_a.is_timestamp(field.type) and kind == "timestamptz")
        or (is_a.is_binary(field.type) and kind == "bytea")
    )
    if not fits:
        raise TypeMismatch(
            f"{source!r}: column {field.name} is {full} in PostgreSQL, "
            f"and {field} is declared as {field.type}",
            hint="declare the field with the type that fits, or cast the column in a view and read that",
        )
    fetched: Composable = sql.SQL("encode({}, 'hex')").format(column) if kind == "bytea" else column
    return fetched


def _check_key(
    source: PostgresSource, connection: psycopg.Connection[Any], name: str, found: Sequence[Any]
) -> None:
    relation = found[0][0]
    for _, column, kind, _, is_not_null, full in found:
        if column not in source.key:
            continue
        if kind not in _KEYS:
            raise TypeMismatch(
                f"{source!r}: the key {column} is {full}, which cannot be a key",
                hint=f"use a column of type {', '.join(_KEYS)}",
            )
        if relation in ("r", "p") and not is_not_null:
            raise InputError(
                f"{source!r}: the key {column} can be null, and rows without a key are never found",
                hint=f"ALTER TABLE {source.name} ALTER COLUMN {column} SET NOT NULL",
            )
    if relation in ("r", "p") and not _one(connection, _IS_UNIQUE, [name, list(source.key)]):
        raise InputError(
            f"{source!r}: nothing makes the key ({', '.join(source.key)}) unique, "
            "and of rows with equal keys some could be left out",
            hint="add columns to the key until a unique index covers it, such as key=('created_at', 'id')",
        )
    if source.wait_for != "nothing":
        _check_order(source, connection, name, relation)


def _check_order(
    source: PostgresSource, connection: psycopg.Connection[Any], name: str, relation: str
) -> None:
    """Refuse where open transactions cannot be seen, or keys are taken without one."""
    vouch = "read the primary server; or wait_for='nothing', if rows are committed in the order of their keys"
    if relation == "f" or _one(connection, "SELECT pg_is_in_recovery()", []):
        raise InputError(
            f"{source!r} is a replica or a foreign table: the transactions that write it cannot be seen",
            hint=vouch,
        )
    for column in source.key if relation in ("r", "p") else ():
        if sequence := _one(connection, _CACHED, [name, column]):
            raise InputError(
                f"{source!r}: sequence {sequence} has a cache, so that sessions take keys out of order",
                hint=f"ALTER SEQUENCE {sequence} CACHE 1",
            )


def _parsed(source: PostgresSource, shape: _Shape, data: bytes) -> pa.Table:
    """The rows of a COPY as CSV, with the key's columns as text at the end."""
    keys = [f"key {n}" for n in range(len(source.key))]
    names = [*shape.schema.names, *keys]
    types = {f.name: pa.string() if pa.types.is_binary(f.type) else f.type for f in shape.schema}
    types |= dict.fromkeys(keys, pa.string())
    if not data:
        return pa.schema([(each, types[each]) for each in names]).empty_table()
    try:
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pyarrow.csv.ParseOptions(newlines_in_values=True),
            pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        at = re.search(r"CSV column #(\d+): (.*)", str(error))
        where = f"column {names[int(at[1])]} ({types[names[int(at[1])]]}): {at[2]}" if at else str(error)
        raise InputError(
            f"{source!r}: a value does not fit: {where}",
            hint="declare the field with enough digits, or leave such values out in a view",
        ) from None


def _fitted(source: PostgresSource, rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = rows.column(field.name).combine_chunks()
        if column.null_count and not field.nullable:
            raise NullInField(
                f"{source!r}: column {field.name} is null in {column.null_count} of {len(column)} rows, "
                "but it is declared without `| None`",
                hint=f"declare {field.name} as nullable, or leave such rows out in a view",
            )
        if pa.types.is_binary(field.type):
            values = [None if each is None else bytes.fromhex(each) for each in column.to_pylist()]
            column = pa.array(values, field.type)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one(connection: psycopg.Connection[Any], statement: str, values: Sequence[Any]) -> Any:
    row = connection.execute(statement, values).fetchone()
    return None if row is None else row[0]


def _relation(name: str) -> Composable:
    identifier: Composable = _psycopg().sql.Identifier(*name.split("."))
    return identifier


def _columns(key: Sequence[str]) -> Composable:
    sql = _psycopg().sql
    listed: Composable = sql.SQL(", ").join(map(sql.Identifier, key))
    return listed


def _descending(key: Sequence[str]) -> Composable:
    sql = _psycopg().sql
    listed: Composable = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(each)) for each in key)
    return listed


def _tuple(key: Sequence[str]) -> Composable:
    tupled: Composable = _psycopg().sql.SQL("({})").format(_columns(key))
    return tupled


def _values(key: Key) -> Composable:
    sql = _psycopg().sql
    listed: Composable = sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))
    return listed


def _as_key(state: State) -> Key:
    return tuple(state) if isinstance(state, list | tuple) else (state,)


def _place(dsn: str) -> str:
    """Server and database of a connection string, and nothing else of it."""
    package = _psycopg()
    try:
        found = package.conninfo.conninfo_to_dict(dsn)
    except package.ProgrammingError:
        found = None
    # A password that is not escaped ends up in pieces where host, port or database should be. Neither those
    # nor the text of the error, which repeats them, may be shown.
    if found is None or "@" in f"{found.get('host')}{found.get('dbname')}" or not _is_port(found.get("port")):
        raise UsageError(
            "the connection string is not one of PostgreSQL",
            hint="postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters written as %XX",
        )
    host, port = found.get("host", "localhost"), found.get("port", 5432)
    return f"postgresql://{host}:{port}/{found.get('dbname', '')}"


def _is_port(port: object) -> bool:
    return port is None or re.fullmatch(r"[0-9,]*", str(port)) is not None


def _psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
        import psycopg.sql
    except ImportError:
        raise MissingPackage(
            "a PostgreSQL source needs psycopg", hint="pip install 'penstock[postgres]'"
        ) from None
    return psycopg
