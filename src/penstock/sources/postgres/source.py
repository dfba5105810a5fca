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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from penstock.errors import InputError, PenstockError, TransientError, UsageError
from penstock.sources.base import Part, StatefulSource
from penstock.sources.postgres.client import (
    Key,
    beyond,
    columns,
    connect,
    key_tuple,
    key_values,
    place,
    psycopg_package,
    relation,
)
from penstock.sources.postgres.horizon import Horizon
from penstock.sources.postgres.rows import fitted, last_key, parsed
from penstock.sources.postgres.shape import PostgresShape, shape_of

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg.sql import Composable

    from penstock.sources.state import State
    from penstock.types.tables import Table

__all__ = ["Key", "PostgresPart", "PostgresSource", "WaitFor"]

WaitFor: TypeAlias = Literal["transactions", "writers", "nothing"]

_TARGET_BYTES = 8 << 20
_FIRST_ROWS = 1_000
_MOST_ROWS = 100_000


class PostgresSource(StatefulSource):
    """The rows of ``name``, a table or view (``"orders"``, ``"shop.orders"``), as rows of ``table``.

    ``dsn`` is a URL or a connection string of libpq; its password is never shown. ``key`` is a column, or
    several that are compared one after the other; together they are unique and not null, which is checked
    for tables, and which you vouch for with a view. ``until`` is a key: the source finishes when all rows up
    to it are read. Without it, it never does.

    Fields are columns of the same name. int takes smallint to bigint; float real and double precision; str
    text, varchar, char, uuid, json, jsonb, enums and addresses; Decimal numeric; datetime timestamptz, and
    timestamp where a `Timestamp` says what it means; date, bool and bytes their own. Other columns are left
    alone; cast what you need in a view.

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
        self.place = place(dsn)
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

    def describe(self) -> dict[str, object]:
        return {
            "database": self.place,
            "table": self.name,
            "key": ", ".join(self.key),
            "parts": self.parts,
        }

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
        return connect(self._dsn, repr(self))


class PostgresPart(Part):
    """State: the greatest key up to which all rows of the part were brought.

    Everything but that, the horizon included, is found anew where the part is built again.
    """

    def __init__(self, source: PostgresSource, index: int, after: Key | None) -> None:
        self._source = source
        self._index = index
        self._after = after
        self._horizon = Horizon(source, after)
        self._rows = _FIRST_ROWS
        self._connection: psycopg.Connection[Any] | None = None
        self._shape: PostgresShape | None = None

    def poll(self, limit: int) -> pa.RecordBatch | None:
        with self._told() as connection:
            if self._shape is None:
                self._shape = shape_of(self._source, connection)
            while True:
                if self._after != self._horizon.key:
                    batch = self._fetch(connection, self._shape, min(limit, self._rows))
                    if batch.num_rows:
                        return batch
                if not self._horizon.advance(connection, self._shape):
                    return None

    def is_finished(self) -> bool:
        return self._horizon.is_last and self._after == self._horizon.key

    def snapshot(self) -> State:
        if self._after is None:
            return None
        return self._after[0] if len(self._after) == 1 else list(self._after)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._shape = None
        self._horizon.forget()

    @contextmanager
    def _told(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection; what goes wrong with it is told as what it is, and the next poll makes another."""
        package = psycopg_package()
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

    def _fetch(self, connection: psycopg.Connection[Any], shape: PostgresShape, limit: int) -> pa.RecordBatch:
        """The next rows up to the horizon, which are all there are if they are fewer than ``limit``."""
        source, sql, upto = self._source, psycopg_package().sql, self._horizon.key
        assert upto is not None
        within = sql.SQL("{} <= {}").format(key_tuple(source.key), key_values(upto))
        select = sql.SQL("SELECT {}, {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join(shape.columns),
            columns(source.key),
            relation(source.name),
            sql.SQL(" AND ").join([beyond(source.key, self._after), within, *self._share()]),
            columns(source.key),
            sql.Literal(limit),
        )
        copy_out = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(select)
        with connection.cursor() as cursor, cursor.copy(copy_out) as copy:
            data = b"".join(bytes(each) for each in copy)
        rows = parsed(source, shape, data)
        batch = fitted(source, rows.select(shape.schema.names), shape.schema)
        if rows.num_rows:
            fitting = _TARGET_BYTES * rows.num_rows // len(data)
            self._rows = max(1, min(_MOST_ROWS, fitting, 8 * self._rows))
        self._after = upto if rows.num_rows < limit else last_key(shape, rows)
        return batch

    def _share(self) -> list[Composable]:
        """Which rows are the part's own. md5 stays the same in all versions of PostgreSQL; its own hashes
        need not.
        """
        if self._source.parts == 1:
            return []
        sql = psycopg_package().sql
        texts = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(each)) for each in self._source.key
        )
        return [
            sql.SQL("('x' || left(md5(concat_ws('/', {})), 8))::bit(32)::bigint % {} = {}").format(
                texts, sql.Literal(self._source.parts), sql.Literal(self._index)
            )
        ]


def _as_key(state: State) -> Key:
    return tuple(state) if isinstance(state, list | tuple) else (state,)
