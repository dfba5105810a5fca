"""`SparkEngine`: statements in, Arrow batches out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.dialect.statements import Drop, Rename
from penstock.errors import PenstockError, SqlError
from penstock.gateway.base import (
    Client,
    Engine,
    Execution,
    Prepared,
    QueryInfo,
    Relay,
    TableInfo,
    User,
)
from penstock.gateway.engine import systems
from penstock.gateway.engine.admission import QUEUED, RUNNING, Admission
from penstock.gateway.engine.cataloging import CatalogExecution
from penstock.gateway.engine.connection import SparkConnection
from penstock.gateway.engine.explaining import ExplainExecution
from penstock.gateway.engine.planner import Planner
from penstock.gateway.engine.plans import CatalogPlan, ExplainPlan, ShadowPlan, SparkPlan, SystemPlan
from penstock.gateway.engine.registry import Query, Registry
from penstock.gateway.engine.relaying import ListedRelay, Rows, SystemRelay
from penstock.gateway.engine.running import SparkExecution, Workplace
from penstock.gateway.engine.sessions import Sessions
from penstock.gateway.engine.spool import sweep
from penstock.gateway.engine.turns import Turn, Turns
from penstock.gateway.shadow import TooManyRows
from penstock.spark.session import is_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.gateway.settings import Settings
    from penstock.gateway.shadow import Shadow
    from penstock.gateway.tables import Tables

_log = logging.getLogger(__name__)

_ADMIN = User("penstock", admin=True)
_PATIENCE = 10.0


class SparkEngine(Engine):
    """Answers statements with Spark, and those about the catalog and the system with the shadow.

    ``spool`` is a folder or URL that this process and all executors reach; large results pass through it.
    ``users`` tells who the shadow should know. ``current`` gives a user with the rights of now, and raises
    for one who is gone: clients may stay for days. ``timeout`` is the most seconds that a statement may take,
    whatever its session sets.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: Tables,
        *,
        spool: str,
        shadow: Shadow | None = None,
        users: Callable[[], Sequence[User]] = tuple,
        current: Callable[[User], User] = lambda user: user,
        running: int = RUNNING,
        queued: int = QUEUED,
        timeout: float | None = None,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._shadow = shadow
        self._users = users
        self._timeout = timeout
        self._current = current
        self._sessions = Sessions(spark)
        self._planner = Planner(tables, shadow, self._sessions)
        self._lock = threading.Lock()
        self._admission = Admission(running, queued)
        self._waiting: dict[str, SparkExecution] = {}
        self._threads = ThreadPoolExecutor(running, thread_name_prefix="penstock-query")
        self._registry = Registry()
        self._turns = Turns()
        self._long = systems.LongTables()
        self.workplace = Workplace(self._registry, spool, self._enter, self._leave)
        self._refreshing = threading.Lock()
        self._refreshed: tuple[int, tuple[User, ...]] | None = None
        self._stopped = False
        threading.Thread(target=sweep, args=[spool], name="penstock-sweep", daemon=True).start()

    def connect(self, client: Client, settings: Settings) -> SparkConnection:
        if self._timeout is not None:
            settings.bound(self._timeout)
        return SparkConnection(self, client, settings)

    def tables(self, user: User) -> Sequence[TableInfo]:
        return self._tables.listed(user)

    def queries(self, user: User) -> Sequence[QueryInfo]:
        return self._registry.infos(user)

    def cancel(self, query: str, user: User) -> bool:
        return self._registry.cancel(query, user)

    def ready(self) -> str | None:
        if self._stopped:
            return "the engine is stopping"
        return None if is_alive(self._spark) else "Spark does not answer"

    def load(self) -> tuple[int, int]:
        """How many queries run and how many wait."""
        with self._lock:
            return self._admission.running, self._admission.waiting

    def refresh(self) -> None:
        """Tell the shadow what tables and users there are now, if that has changed.

        A shadow that cannot be told is a shadow that knows less: Spark describes what it does not know.
        """
        if self._shadow is None or self._shadow.problem is not None:
            return
        with self._refreshing:
            try:
                now = (self._tables.version, tuple(self._users()))
                if now != self._refreshed:
                    self._shadow.sync(self._tables.listed(_ADMIN), now[1], self._tables.schemas(_ADMIN))
                    self._refreshed = now
            except PenstockError as error:
                _log.warning("the shadow catalog does not know the newest tables: %s", error.what)

    def stop(self) -> None:
        """Cancel what runs and take no more. Waits a while for what Spark does not give up at once."""
        self._stopped = True
        for info in self._registry.infos(_ADMIN):
            self._registry.cancel(info.id, _ADMIN)
        self._threads.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _PATIENCE
        while self.load() != (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._sessions.close()

    def now(self, client: Client) -> Client:
        """The client with what its user may do now."""
        user = self._current(client.user)
        return client if user == client.user else replace(client, user=user)

    def _prepare(
        self, sql: str, parameters: Sequence[int], client: Client, settings: Settings, *, exact: bool
    ) -> Prepared:
        if self._refreshed is None or self._refreshed[0] != self._tables.version:
            self.refresh()
        return self._planner.prepare(sql, parameters, client.user, settings, exact=exact)

    def _execute(
        self, prepared: Prepared, values: Sequence[object], client: Client, settings: Settings
    ) -> Execution:
        plan = prepared.plan
        if isinstance(plan, ShadowPlan):
            assert self._shadow is not None
            relay = self._shadow.run(
                plan.sql, plan.parameters, values, client.user, settings, plan.columns, exact=plan.exact
            )
            # Who comes over HTTP asks for a query by its id. Others would fill the list with what their
            # drivers want to know about the catalog.
            listed = client.protocol == "http"
            return ListedRelay(self._registry, client, prepared, relay) if listed else relay
        if isinstance(plan, CatalogPlan):
            change = self._change(plan, client.user, settings)
            return CatalogExecution(self._registry, client, prepared, change)
        if isinstance(plan, SystemPlan):
            return self._system(plan, prepared, values, client, settings)
        assert isinstance(plan, SparkPlan | ExplainPlan)
        return self._on_spark(plan, prepared, values, client, settings)

    def _on_spark(
        self,
        plan: SparkPlan | ExplainPlan,
        prepared: Prepared,
        values: Sequence[object],
        client: Client,
        settings: Settings,
        query: Query | None = None,
    ) -> SparkExecution:
        spark, timeout = self._sessions.of(settings.timezone), settings.statement_timeout
        search_path, place = settings.search_path, self.workplace

        def renew(old: SparkPlan) -> SparkPlan:
            return self._planner.renewed(old, client.user, search_path)

        if isinstance(plan, ExplainPlan):
            return ExplainExecution(place, client, prepared, plan, renew, spark, values, timeout, query)
        return SparkExecution(place, client, prepared, plan, renew, spark, values, timeout, query)

    def _system(
        self,
        plan: SystemPlan,
        prepared: Prepared,
        values: Sequence[object],
        client: Client,
        settings: Settings,
    ) -> Execution:
        """The shadow answers with rows that we give it, or else Spark does."""
        shadow, tables, user = self._shadow, self._tables, client.user
        assert shadow is not None
        found = systems.found(plan.tables, tables, settings.search_path, user)
        keys = list(dict.fromkeys((each.schema, each.name) for each in plan.tables.values()))
        other = plan.spark
        if found != plan.tables and other is None:
            raise SqlError("a table of the statement has changed", sqlstate="0A000", hint="prepare it again")
        if other is not None and (found != plan.tables or self._long.among(user, keys)):
            return self._on_spark(other, prepared, values, client, settings)

        def ask(rows: Rows) -> Relay:
            try:
                return shadow.run(
                    plan.sql,
                    plan.parameters,
                    values,
                    user,
                    settings,
                    plan.columns,
                    exact=plan.exact,
                    rows=rows,
                )
            except TooManyRows:
                self._long.note(user, rows)
                raise

        def compute() -> Execution:
            assert other is not None
            # It is in the registry as the relay that it helps out.
            query = Query(client, prepared.sql, lambda _: None)
            return self._on_spark(other, prepared, values, client, settings, query)

        relay = SystemRelay(
            prepared,
            Turn(self._turns, user.name),
            lambda: {key: tables.system_rows(key, user) for key in keys},
            ask,
            None if other is None else compute,
            settings.statement_timeout,
        )
        return ListedRelay(self._registry, client, prepared, relay)

    def _change(self, plan: CatalogPlan, user: User, settings: Settings) -> Callable[[], Sequence[str]]:
        command, search_path, dialect = plan.command, settings.search_path, settings.dialect

        def change() -> Sequence[str]:
            if isinstance(command, Drop):
                notices = self._tables.drop(command, user=user, search_path=search_path)
            elif isinstance(command, Rename):
                notices = self._tables.rename(command, user=user, search_path=search_path)
            else:
                notices = self._tables.create(
                    command,
                    user=user,
                    search_path=search_path,
                    columns=plan.columns,
                    dialect=dialect,
                )
            self.refresh()
            return notices

        return change

    def _enter(self, execution: SparkExecution) -> None:
        if self._stopped:
            raise SqlError("the server is shutting down", sqlstate="57P01")
        with self._lock:
            if not self._admission.enter(execution.client.user.name, execution.id):
                self._waiting[execution.id] = execution
                return
        self._begin(execution)

    def _leave(self, execution: SparkExecution) -> None:
        with self._lock:
            self._waiting.pop(execution.id, None)
            admitted = [self._waiting.pop(query) for query in self._admission.leave(execution.id)]
        for each in admitted:
            self._begin(each)

    def _begin(self, execution: SparkExecution) -> None:
        # When the engine stops, what was not begun is cancelled.
        with suppress(RuntimeError):
            self._threads.submit(execution.work)
