"""The shadow catalog: answers questions about tables, and tells the types of statements."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import PeerUnreachable, PenstockError, SqlError
from penstock.server.base import Relay, TableInfo, User
from penstock.server.shadow import feeding
from penstock.server.shadow.catalog import session_tables
from penstock.server.shadow.catalog.catalog import ShadowCatalog
from penstock.server.shadow.catalog.session_tables import renewed
from penstock.server.shadow.postgres import programs
from penstock.server.shadow.postgres.link import Description, Link, described, quoted
from penstock.server.shadow.postgres.pool import Pool
from penstock.server.shadow.postgres.programs import CannotServe
from penstock.server.shadow.postgres.server import PostgresServer
from penstock.server.shadow.relay import ShadowRelay
from penstock.server.shadow.values import dump
from penstock.types import postgres
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.server.session_settings import Settings

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_REMEMBERED = 2000
_LONG = 1 << 16
"""Statements longer than this are not remembered."""
_RESTARTS = 3
_RESTARTS_WITHIN = 60.0
_TIMEOUT = 300.0
_INDETERMINATE = "42P18"
_UNTYPED = 100
"""So many parameters may have a place that says nothing of their type."""
_NUMBERED = re.compile(r"\$(\d+)")


class Shadow:
    """A PostgreSQL with twins of our tables, empty but for system tables. Thread-safe.

    It is a help and not a need: `start` never fails, and whoever wants to use it looks at `problem` first.
    """

    def __init__(
        self, folder: Path, *, folder_of_programs: Path | None = None, connections: int = 16
    ) -> None:
        self.problem: str | None = "it was not started"
        self.version = 0
        """Grows when relations change."""
        self._folder = folder
        self._programs = folder_of_programs
        self._lock = threading.RLock()
        self._cluster: PostgresServer | None = None
        self._catalog: ShadowCatalog | None = None
        self._pool = Pool(self._connect, connections)
        # Of their own: to describe takes a millisecond, and must not wait for what runs for minutes.
        self._describers = Pool(self._connect, max(2, connections // 2))
        self._synced: tuple[Sequence[TableInfo], Sequence[User], tuple[str, ...]] = ((), (), ())
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)
        # Its own lock, so that nobody who describes waits while tables are made.
        self._remembering = threading.Lock()
        self._described: OrderedDict[tuple[object, ...], Description] = OrderedDict()

    def start(self) -> None:
        """Start it; afterwards `problem` is None, or says why it cannot be used."""
        with self._lock:
            if self._cluster is not None:
                return
            try:
                cluster = PostgresServer(self._folder, programs.find(self._programs))
                self._cluster = cluster
                cluster.start()
                self._catalog = ShadowCatalog(cluster.owner)
                self.problem = None
            except (PenstockError, OSError) as error:
                self._unusable(error)

    def stop(self) -> None:
        with self._lock:
            self.problem = "it was stopped"
            self._clear()
            if self._catalog is not None:
                self._catalog.forget()
                self._catalog = None
            if self._cluster is not None:
                self._cluster.stop()
                self._cluster = None
        self._forget()

    def sync(self, tables: Sequence[TableInfo], users: Sequence[User], schemas: Iterable[str] = ()) -> None:
        """Make twins and roles equal to these, as a whole; ``schemas`` are there even without a table."""
        schemas = tuple(schemas)

        def change() -> tuple[int, set[str]]:
            with self._lock:
                self._synced = (tables, users, schemas)
                return self._usable().sync(tables, users, schemas)

        changed, gone = self._tried(change)
        for role in gone:
            self._clear(role)
        if changed:
            self._forget()

    def describe(self, sql: str, parameters: Sequence[int], user: User, settings: Settings) -> Description:
        """Types of a statement. Raises `SqlError` as PostgreSQL says it.

        A parameter of type 0 gets the type that its place asks for, or else text.
        """
        given = tuple(0 if oid == postgres.UNKNOWN else oid for oid in parameters)
        key = (sql, given, settings.search_path, user, self.version)
        with self._remembering:
            if (known := self._described.get(key)) is not None:
                self._described.move_to_end(key)
                return known
        text = session_tables.queried(renewed(sql))
        described = self._tried(lambda: self._describe(text, given, user, settings))
        if len(sql) <= _LONG:
            with self._remembering:
                self._described[key] = described
                while len(self._described) > _REMEMBERED:
                    self._described.popitem(last=False)
        return described

    def run(
        self,
        sql: str,
        parameters: Sequence[int],
        values: Sequence[object],
        user: User,
        settings: Settings,
        columns: Sequence[Column] | None,
        *,
        exact: bool = False,
        rows: Mapping[tuple[str, str], pa.Table] | None = None,
    ) -> Relay:
        """A query under the user's role. It begins when its rows are asked for.

        ``rows`` are what its system tables hold; raises `TooManyRows`. With ``exact``, batches have the types
        of ``columns`` also where PostgreSQL's types leave them open.
        """
        oids = [postgres.TEXT if oid == postgres.UNKNOWN else oid for oid in parameters]
        oids += [0] * (len(values) - len(oids))
        wanted = _session(settings)
        before = [feeding.statements(rows)] if rows else []
        before.append(session_tables.statements(sql, settings.session_rows))
        return ShadowRelay(
            lambda: self._tried(lambda: self._taken(self._pool, user, wanted)),
            self._returned,
            self._revive,
            (session_tables.queried(renewed(sql)), oids, [dump(value) for value in values]),
            None if columns is None else tuple(columns),
            exact=exact,
            before="; ".join(filter(None, before)),
        )

    # ---------------------------------------------------------------- how

    def _describe(self, sql: str, parameters: tuple[int, ...], user: User, settings: Settings) -> Description:
        link = self._taken(self._describers, user, _session(settings))
        try:
            given = list(parameters)
            for tried in itertools.count():
                try:
                    return described(link.describe(sql, given))
                except SqlError as error:
                    number = _NUMBERED.search(error.what)
                    place = int(number[1]) if number and error.sqlstate == _INDETERMINATE else 0
                    if not 0 < place <= 0xFFFF or (place <= len(given) and given[place - 1]):
                        raise
                    if tried >= _UNTYPED:
                        # PostgreSQL names one at a time, and reads the whole statement for each.
                        error.hint = "Cast the parameters: $1::text."
                        raise
                    given += [0] * (place - len(given))
                    given[place - 1] = postgres.TEXT
            raise AssertionError
        finally:
            self._describers.give(link)

    def _taken(self, pool: Pool, user: User, settings: dict[str, str]) -> Link:
        catalog = self._catalog
        role = catalog.known(user) if catalog is not None else None
        if role is None:
            with self._lock:
                role = self._usable().admit(user)
        link = pool.take(role)
        try:
            link.apply(settings)
        except BaseException:
            pool.drop(link)
            raise
        return link

    def _returned(self, link: Link, fit: bool) -> None:
        if fit:
            # One that is still in a transaction is not taken back.
            with suppress(PenstockError):
                link.leave()
            self._pool.give(link)
        else:
            self._pool.drop(link)

    def _clear(self, role: str | None = None) -> None:
        for pool in (self._pool, self._describers):
            pool.clear(role)

    def _connect(self, role: str) -> Link:
        cluster = self._cluster
        if cluster is None:
            raise self._refused()
        try:
            return cluster.connect(role)
        except CannotServe as error:
            raise PeerUnreachable(error.what) from error

    def _usable(self) -> ShadowCatalog:
        if self._catalog is None or self.problem is not None:
            raise self._refused()
        return self._catalog

    def _tried(self, work: Callable[[], _T]) -> _T:
        """Do it; if the server is gone, start it again and do it once more."""
        if self.problem is not None:
            raise self._refused()
        try:
            return work()
        except (PeerUnreachable, CannotServe):
            self._revive()
        try:
            return work()
        except (PeerUnreachable, CannotServe) as error:
            _LOG.warning("the shadow catalog does not answer: %s", error.what)
            raise SqlError("the catalog does not answer", hint="try again", sqlstate="57P03") from error

    def _revive(self) -> None:
        with self._lock:
            if self._cluster is None or self._catalog is None or self.problem is not None:
                raise self._refused()
            self._clear()
            self._catalog.forget()
            try:
                # It may have been another thread that found it gone, or one connection only that was lost.
                self._cluster.owner().close()
                return
            except CannotServe as error:
                _LOG.warning("the shadow catalog's PostgreSQL is gone (%s): it is started again", error.what)
            now = time.monotonic()
            if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _RESTARTS_WITHIN:
                self.problem = f"PostgreSQL ended {_RESTARTS + 1} times within {_RESTARTS_WITHIN:.0f} seconds"
                _LOG.error("the shadow catalog is switched off: %s", self.problem)
                raise self._refused()
            self._restarts.append(now)
            try:
                self._cluster.start()
                # Its folder may have been made anew.
                self._catalog.sync(*self._synced)
                self._forget()
            except (PenstockError, OSError) as error:
                self._unusable(error)
                raise self._refused() from error

    def _forget(self) -> None:
        """Relations may be others now."""
        with self._remembering:
            self.version += 1
            self._described.clear()

    def _unusable(self, error: Exception) -> None:
        self.problem = str(error.what if isinstance(error, PenstockError) else error)
        _LOG.warning("no shadow catalog: %s", error)
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def _refused(self) -> SqlError:
        return SqlError(f"there is no catalog: {self.problem}", sqlstate="57P03")


def _session(settings: Settings) -> dict[str, str]:
    asked = settings.statement_timeout
    timeout = min(asked, _TIMEOUT) if asked else _TIMEOUT
    return {
        "search_path": ", ".join(quoted(schema) for schema in settings.search_path if schema) or "''",
        "TimeZone": settings.timezone,
        "DateStyle": settings.datestyle,
        "IntervalStyle": settings.intervalstyle,
        "extra_float_digits": str(settings.extra_float_digits),
        "bytea_output": settings.bytea_output,
        "application_name": settings.application_name,
        "statement_timeout": str(max(1, round(timeout * 1000))),
    }
