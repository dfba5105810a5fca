"""System tables for SQL: each is read from the store when it is asked for, and is as true as that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa

from penstock.config import Config
from penstock.errors import SqlError
from penstock.server.base import QueryInfo, User
from penstock.server.relations.relation import Provider
from penstock.server.system import batch, clusters, streaming
from penstock.server.system.shapes import SHAPES, TABLES, Row
from penstock.storage import Storage
from penstock.store.base import Store

MOST_ROWS = 1_000_000
"""A table that would be longer is refused: its rows pass through the memory of this process."""


_NAMES = {
    "runs": "run",
    "partitions": "run",
    "checkpoints": "run",
    "streams": "stream",
    "frontiers": "stream",
}
"""Tables whose rows are each about a run or a stream, and the column that names it: a schema of SQL."""


class SystemTables(Provider):
    """The schema ``sys``. Queries are shown to who asked them, and all to admins.

    The rest is for whoever may read ``sys``. Others see what is about runs and streams that they may read.
    ``queries`` is set by whoever has an engine.
    """

    schema = "sys"

    def __init__(self, store: Store, storage: Storage, config: Config) -> None:
        self.queries: Callable[[User], Sequence[QueryInfo]] = lambda _: ()
        self._rows: Mapping[str, Callable[[], Iterable[Row]]] = {
            "members": lambda: clusters.members(store, config.cluster),
            "leases": lambda: [*clusters.leases(store), *batch.leases(store)],
            "assignments": lambda: clusters.assignments(store),
            "barriers": lambda: clusters.barriers(store, config.cluster),
            "epochs": lambda: clusters.epochs(store, config.cluster),
            "frontiers": lambda: streaming.frontiers(store, storage),
            "runs": lambda: batch.runs(store),
            "partitions": lambda: batch.partitions(store),
            "checkpoints": lambda: batch.checkpoints(store),
            "streams": lambda: streaming.streams(store, storage, config),
        }

    def tables(self) -> Mapping[str, pa.Schema]:
        return SHAPES

    def rows(self, name: str, user: User) -> pa.Table:
        table = TABLES[name]
        found = map(table.row, self.queries(user)) if name == "queries" else self._shown(name, user)
        rows: list[Row] = []
        for row in found:
            if len(rows) == MOST_ROWS:
                raise SqlError(
                    f"sys.{name} has more than {MOST_ROWS:,} rows",
                    sqlstate="54000",
                    hint="look at them with the commands `penstock runs` and `penstock partitions`",
                )
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=table.schema)

    def _shown(self, name: str, user: User) -> Iterable[Row]:
        if user.may_read(self.schema):
            return self._rows[name]()
        if name not in _NAMES:
            raise SqlError(
                f"permission denied for table {name}",
                sqlstate="42501",
                hint=f"an admin gives the right to read schema {self.schema}: `penstock users alter`",
            )
        return (row for row in self._rows[name]() if user.may_read(row[_NAMES[name]]))
