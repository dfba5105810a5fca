"""All that SQL can name: configured tables, the catalog, outputs of runs and streams, system tables."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.config import TableConfig
from penstock.control.catalog import Catalog, Follower
from penstock.control.catalog.manifest import HEAD
from penstock.errors import PenstockError, SqlError
from penstock.server.base import PUBLIC, TableInfo, User
from penstock.server.relations import checkpoint, columns, naming
from penstock.server.relations.ddl.catalogued import Catalogued, key_of
from penstock.server.relations.ddl.planning import SpecMaker
from penstock.server.relations.entry import TableEntry, broken
from penstock.server.relations.files import formats
from penstock.server.relations.files.paths import Roots, plain
from penstock.server.relations.published import Publications
from penstock.server.relations.relation import Bindings, Key, Provider, Relation
from penstock.server.relations.spark_tables import SparkTables
from penstock.server.relations.spec import TableSpec, ViewSpec
from penstock.storage import Storage
from penstock.store import Store
from penstock.types.spark import nearest_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.sql.statements.commands import CreateSchema, CreateTable, CreateView, Drop, Rename

_log = logging.getLogger(__name__)

_POLL = 1.0
_MEND_EVERY = 10.0
_WATCH_EVERY, _SHARE = 2.0, 20
"""Seconds between two looks at the files of all tables, which may take one part in so many of the time."""


class Tables:
    """Names of SQL, and what they are in Spark. For any thread.

    `create` and `drop` change the catalog in the store; changes that others make there arrive while `follow`
    runs, or with `catch_up`.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        storage: Storage,
        tables: Sequence[TableConfig],
        roots: Sequence[str],
        providers: Sequence[Provider] = (),
    ) -> None:
        self._store, self._storage = store, storage
        self._bindings = Bindings()
        self._spark_tables = SparkTables(spark, self._bindings)
        self._published = Publications(store, storage)
        self._providers: dict[str, list[Provider]] = {}
        for provider in providers:
            self.provide(provider)
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._catalog = Catalog(store)
        self._planner = SpecMaker(self, self._spark_tables, Roots(roots, [storage.root]))
        made = {key_of(table.name): partial(_configured_spec, table) for table in tables}
        self._configured = frozenset(schema for schema, _ in made)
        self._spark_tables.put_files(made)
        self._catalogued = Catalogued(self._spark_tables, self._planner, frozenset(made))
        self._follower = Follower(store, self._catalogued)
        self.catch_up()

    @property
    def version(self) -> int:
        """Grows with everything that `listed` shows."""
        return self._spark_tables.version + self._published.version + self._catalogued.changes

    def provide(self, provider: Provider) -> None:
        """Add system tables."""
        self._providers.setdefault(provider.schema, []).append(provider)

    # finding

    def find(self, path: Sequence[str], search_path: Sequence[str], user: User) -> Relation:
        """The relation that a name means to a user. Raises `SqlError` 42P01 or 42501.

        In a search path, schemas that the user may not read are passed over, as PostgreSQL does.
        """
        schema, name = naming.split(path)
        if schema is not None:
            if not self.readable(schema, user):
                raise SqlError(f"permission denied for schema {schema}", sqlstate="42501")
            candidates = [schema]
        else:
            effective = naming.effective(search_path, user.name)
            candidates = [each for each in effective if self.readable(each, user)]
        for candidate in candidates:
            if found := self.relation((candidate, name), user):
                return found
        raise naming.unknown(path, (key for key in self._keys() if self.readable(key[0], user)))

    def relation(self, key: Key, user: User) -> Relation | None:
        """The relation of this key, whoever may read it."""
        if entry := self._spark_tables.find(key):
            return self._of_entry(entry, user)
        for provider in self._providers.get(key[0], ()):
            schema = provider.tables().get(key[1])
            if schema is not None:
                return self._of_provider(provider, key, schema, user)
        if published := self._published.find(key):
            return self._framed(key, "table", published.columns, published.frame)
        return None

    def system_rows(self, key: Key, user: User) -> pa.Table:
        """What a system table holds now, as far as this user may see it."""
        for provider in self._providers.get(key[0], ()):
            if key[1] in provider.tables():
                return provider.rows(key[1], user)
        raise naming.unknown(key, ())

    def function(self, name: str, arguments: Sequence[str], user: User) -> Relation:
        """What a table function gives for these arguments: ``checkpoint(run, stage[, table])``."""
        if name.lower() != "checkpoint":
            raise SqlError(
                f"function {name}({', '.join(['unknown'] * len(arguments))}) does not exist", sqlstate="42883"
            )
        if arguments and not self.readable(arguments[0], user):
            raise SqlError(f"permission denied for schema {arguments[0]}", sqlstate="42501")
        saved = checkpoint.find(self._store, arguments, lambda run: self.readable(run, user))
        key = ("", f"checkpoint({', '.join(arguments)})")
        relation = self._framed(key, "table", saved.columns, lambda spark: saved.frame(spark, self._store))
        return Relation(
            "",
            "checkpoint",
            "table",
            relation.columns,
            relation.spark_columns,
            relation.binder,
            self._bindings,
        )

    def listed(self, user: User) -> list[TableInfo]:
        """What this user may read, by schema and name. What is broken has the columns that it had, if any."""
        found: dict[Key, TableInfo] = {}
        for key, schema in self._published.listed().items():
            found[key] = TableInfo(*key, "table", schema)
        for name, providers in self._providers.items():
            for provider in providers:
                for table, schema in provider.tables().items():
                    found[name, table] = TableInfo(name, table, "system", schema)
        for entry in self._spark_tables.entries():
            found[entry.key] = _listed(entry)
        return [found[key] for key in sorted(found) if self.readable(key[0], user)]

    def schemas(self, user: User) -> list[str]:
        """The schemas that this user may read, also those without tables."""
        names = {PUBLIC, *self._catalogued.schemas, *self._providers, *self._published.names()}
        names |= {schema for schema, _ in self._keys()}
        return sorted(name for name in names if self.readable(name, user))

    def broken(self) -> Mapping[Key, str]:
        """Tables and views that cannot be read now, and why."""
        return {
            each.key: each.problem.what for each in self._spark_tables.entries() if each.problem is not None
        }

    def readable(self, schema: str, user: User) -> bool:
        # What system tables show is decided row by row.
        return user.may_read(schema) or schema in self._providers

    def kept_from(self, user: User) -> list[str]:
        """Where files are of tables that this user may not read: no way may lead to them."""
        if user.admin or user.schemas is None:
            return []
        hidden = [entry for entry in self._spark_tables.entries() if not self.readable(entry.key[0], user)]
        places = [entry.spec.path for entry in hidden if isinstance(entry.spec, TableSpec)]
        return [*places, *self._published.places(lambda schema: not self.readable(schema, user))]

    def release(self, spark: SparkSession, query: str) -> None:
        """Let go of everything that was bound for a query."""
        self._bindings.release(spark, query)

    # changing

    def create(
        self,
        command: CreateView | CreateTable | CreateSchema,
        *,
        user: User,
        search_path: Sequence[str] = (PUBLIC,),
        columns: Sequence[str] = (),
        dialect: str = "auto",
    ) -> list[str]:
        """Carry out a CREATE and record it in the catalog; what comes back are notices.

        ``columns`` are the names that the columns of a view's query have, where the client knows them
        otherwise than Spark does.
        """
        from penstock.server.relations.ddl.changes import CatalogChanges

        return CatalogChanges(self, self._catalog, self._planner).create(
            command, user, search_path, columns, dialect
        )

    def drop(self, command: Drop, *, user: User, search_path: Sequence[str] = (PUBLIC,)) -> list[str]:
        """Carry out a DROP; files stay. What comes back are notices."""
        from penstock.server.relations.ddl.changes import CatalogChanges

        return CatalogChanges(self, self._catalog, self._planner).drop(command, user, search_path)

    def rename(self, command: Rename, *, user: User, search_path: Sequence[str] = (PUBLIC,)) -> list[str]:
        """Carry out an ALTER … RENAME; views that read it go on reading it. What comes back are notices."""
        from penstock.server.relations.ddl.renaming import Renames

        return Renames(self, self._catalog, self._planner).rename(command, user, search_path)

    # following

    def catch_up(self) -> None:
        """Bring everything to the newest version of the catalog now."""
        with self._lock:
            self._follower.catch_up()

    def follow(self) -> None:
        """Keep up with the catalog, with runs and with streams, in a thread of its own, until `close`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="penstock-tables", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(10)
        self._spark_tables.close()

    def _follow(self) -> None:
        cursor, mended, watched = 0, time.monotonic(), 0.0
        while not self._stopped.is_set():
            try:
                cursor = cursor or self._store.revision()
                self.catch_up()
                self._published.listed()
                if time.monotonic() - mended > _MEND_EVERY:
                    self._spark_tables.mend()
                    mended = time.monotonic()
                if (begin := time.monotonic()) > watched:
                    self._spark_tables.watch()
                    watched = time.monotonic() + max(_WATCH_EVERY, _SHARE * (time.monotonic() - begin))
                _, cursor = self._store.watch(HEAD, cursor, _POLL)
            except PenstockError as error:
                _log.warning("the catalog cannot be followed: %s", error.what)
                cursor = 0
                self._stopped.wait(_POLL)
            except Exception:
                # Whatever it is, tables that are known must stay usable, and the next try may succeed.
                _log.exception("the catalog cannot be followed")
                self._stopped.wait(_POLL)

    # for those who change and build

    def entry(self, key: Key) -> TableEntry | None:
        return self._spark_tables.find(key)

    def entries(self) -> list[TableEntry]:
        return self._spark_tables.entries()

    def schema_statement(self, schema: str) -> str | None:
        """The name in the catalog of a schema that was created by SQL."""
        return self._catalogued.schemas.get(schema)

    def has_schema(self, schema: str) -> bool:
        """Whether a schema is there in which people may have tables."""
        return schema == PUBLIC or schema in self._catalogued.schemas or schema in self._configured

    def is_taken(self, schema: str) -> bool:
        """Whether a schema is there in which nobody can make anything."""
        return schema in self._providers or naming.is_system(schema) or self._published.has_schema(schema)

    def _keys(self) -> Iterator[Key]:
        yield from (entry.key for entry in self._spark_tables.entries())
        yield from self._published.listed()
        for name, providers in self._providers.items():
            yield from ((name, table) for provider in providers for table in provider.tables())

    def _of_entry(self, entry: TableEntry, user: User) -> Relation:
        if entry.problem is not None or entry.columns is None:
            raise broken(entry)

        def bind(spark: SparkSession, query: str) -> str:
            def needed(key: Key) -> str:
                found = self.relation(key, user)
                if found is None:
                    raise SqlError(
                        f"view {naming.shown(entry.key)} reads {naming.shown(key)}, which does not exist now",
                        hint="drop the view, or bring back what it reads",
                        sqlstate="42P01",
                    )
                return found.bind(spark, query)

            return self._spark_tables.bind(entry, spark, query, needed)

        doubt = partial(self._spark_tables.doubt, entry.key)
        return Relation(*entry.key, entry.kind, entry.arrow, entry.types, bind, self._bindings, doubt)

    def _of_provider(self, provider: Provider, key: Key, schema: pa.Schema, user: User) -> Relation:
        simple = nearest_schema(schema)

        def frame(spark: SparkSession) -> DataFrame:
            return spark.createDataFrame(provider.rows(key[1], user).cast(simple), spark_schema(simple))

        return self._framed(key, "system", simple, frame)

    def _framed(
        self, key: Key, kind: str, schema: pa.Schema, frame: Callable[[SparkSession], DataFrame]
    ) -> Relation:
        def bind(spark: SparkSession, query: str) -> str:
            return self._bindings.bind(query, key, lambda: frame(spark))

        types = columns.ddl_types(spark_schema(schema))
        return Relation(*key, kind, schema, types, bind, self._bindings)


def _listed(entry: TableEntry) -> TableInfo:
    info = TableInfo(*entry.key, entry.kind, entry.arrow)
    if not isinstance(entry.spec, ViewSpec):
        return info
    return replace(info, definition=entry.spec.written or entry.spec.query, reads=entry.spec.needs)


def _configured_spec(table: TableConfig) -> TableSpec:
    path = plain(table.path)
    kind, own = formats.known(table.format, path)
    options = {**({"header": "true"} if kind == "csv" else {}), **own, **table.options}
    return TableSpec(path, kind, formats.checked_options(kind, options))
