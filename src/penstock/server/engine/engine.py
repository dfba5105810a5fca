"""`SparkEngine`: statements in, Arrow batches out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SqlError
from penstock.server.base import Client, Engine, Execution, Prepared, QueryInfo, Relay, TableInfo, User
from penstock.server.engine.connection import SparkConnection
from penstock.server.engine.faults import CRASHED, lost
from penstock.server.engine.planning import systems
from penstock.server.engine.planning.explaining import explained
from penstock.server.engine.planning.planner import Planner
from penstock.server.engine.planning.plans import CatalogPlan, ExplainPlan, ShadowPlan, SparkPlan, SystemPlan
from penstock.server.engine.registry import Registry, TrackedQuery
from penstock.server.engine.results.backpressure import Quotas, ResultWatch
from penstock.server.engine.results.spool import ROW
from penstock.server.engine.running.admission import QUEUED, RUNNING, Admission, Turn, Turns
from penstock.server.engine.running.cataloging import CatalogExecution
from penstock.server.engine.running.query import SparkExecution, Workplace
from penstock.server.engine.running.relaying import ListedRelay, Rows, SystemRelay
from penstock.server.engine.running.sessions import SparkSessions, until
from penstock.server.engine.running.trials import Trials
from penstock.server.network.threads import ThreadPool
from penstock.server.shadow import TooManyRows
from penstock.sql.statements.classify import Drop, Rename

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables
    from penstock.server.session_settings import Settings
    from penstock.server.shadow import Shadow
    from penstock.sql.statements.commands import Command

_log = logging.getLogger(__name__)

_ADMIN = User("penstock", admin=True)
_PATIENCE = 2.0
_GRACE = 60.0
"""Seconds without Spark after which the server is not ready any more."""
_TRIES = 3
_QUOTAS = Quotas()


class SparkEngine(Engine):
    """Answers statements with Spark, and those about the catalog and the system with the shadow.

    ``spool`` is a folder or URL that this process and all executors reach; large results pass through it.
    ``users`` tells who the shadow should know. ``current`` gives a user with the rights of now, and raises
    for one who is gone: clients may stay for days. ``timeout`` is the most seconds that a statement may take,
    whatever its session sets, unless its user is an admin. ``quotas`` bound what is in ``spool``, ``row`` is
    the most bytes of a row of a result.
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
        quotas: Quotas = _QUOTAS,
        row: int = ROW,
    ) -> None:
        self._tables = tables
        self._shadow = shadow
        self._users = users
        self._timeout = timeout
        self._current = current
        self._sessions = SparkSessions(spark)
        self._planner = Planner(tables, shadow, self._sessions)
        self._lock = threading.Lock()
        self._admission = Admission(running, queued)
        self._waiting: dict[str, SparkExecution] = {}
        # Not waited for at the end of the process, whatever they are at.
        self._threads = ThreadPool(running, "penstock-query")
        self._registry = Registry()
        self.doubt: Callable[[], None] = lambda: None
        """To be called when Spark seems to be gone: returns when `lose` was called, if it is."""
        self.over: Callable[[], bool] = lambda: False
        """Whether Spark is gone."""
        self._trials = Trials(self._doubted)
        self._turns = Turns()
        self._long = systems.LongTables()
        self.workplace = Workplace(
            self._registry,
            spool,
            self._enter,
            self._leave,
            self._trials.begin,
            self._trials.end,
            lambda: self._sessions.spark is None or self.over(),
            row=row,
            keeper=ResultWatch(quotas, self._wanted_by_others),
        )
        self._refreshing = threading.Lock()
        self._refreshed: tuple[int, tuple[User, ...]] | None = None
        self._stopped = False
        self._lost = 0.0

    def connect(self, client: Client, settings: Settings) -> SparkConnection:
        if self._timeout is not None:
            settings.bound(self._timeout, firm=not client.user.admin)
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
        # Statements wait for a while: who comes now may come in.
        patient = time.monotonic() < self._lost + _GRACE
        return None if self._sessions.spark is not None or patient else "Spark is being started again"

    def lose(self) -> None:
        """Spark has ended. What it ran has failed; statements wait for the next one, or for others' answers.

        What needs no Spark is answered all the same.
        """
        self._lost = time.monotonic()
        try:
            self._sessions.lose()
        finally:
            self._trials.ended()

    def renew(self, spark: SparkSession, tables: Tables) -> None:
        """There is another Spark, with its own tables. Clients stay, and so does what they have prepared."""
        self._tables = tables
        self._planner = Planner(tables, self._shadow, self._sessions)
        self._refreshed = None
        self.refresh()
        self._sessions.renew(spark)

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
            except Exception as error:
                why = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
                _log.warning("the shadow catalog does not know the newest tables: %s", why)

    def stop(self) -> None:
        """Cancel what runs and take no more. Waits a while for what Spark does not give up at once."""
        self._stopped = True
        for info in self._registry.infos(_ADMIN):
            self._registry.cancel(info.id, _ADMIN)
        self._threads.close(0)
        deadline = time.monotonic() + _PATIENCE
        while self.load() != (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        self._sessions.close()

    def now(self, client: Client) -> Client:
        """The client with what its user may do now."""
        user = self._current(client.user)
        return client if user == client.user else replace(client, user=user)

    def prepare(
        self,
        sql: str,
        parameters: Sequence[int],
        client: Client,
        settings: Settings,
        *,
        exact: bool,
        command: Command | None,
    ) -> Prepared:
        """Understand a statement for a client; see `Connection.prepare`."""
        for _ in range(_TRIES):
            if self._refreshed is None or self._refreshed[0] != self._tables.version:
                self.refresh()
            try:
                return self._planner.prepare(
                    sql, parameters, client.user, settings, exact=exact, command=command
                )
            except SqlError as error:
                if error.sqlstate != CRASHED:
                    raise
                # Spark was asked about types only: there is no harm in asking the next one.
                self.doubt()
                self._sessions.wait(until(settings.statement_timeout))
        raise lost()

    def execute(
        self, prepared: Prepared, values: Sequence[object], client: Client, settings: Settings
    ) -> Execution:
        """Begin a statement for a client; see `Connection.execute`."""
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
        query: TrackedQuery | None = None,
    ) -> SparkExecution:
        timezone, timeout = settings.timezone, settings.statement_timeout
        search_path, place = settings.search_path, self.workplace

        def session(wanted: Callable[[], None]) -> SparkSession:
            return self._sessions.of(timezone, wanted)

        def renew(old: SparkPlan) -> SparkPlan:
            return self._planner.renewed(old, client.user, search_path).in_zone(timezone)

        answer = None
        if isinstance(plan, ExplainPlan):
            answer, plan = partial(explained, plan.command), plan.query
        plan = plan.in_zone(timezone)
        return SparkExecution(place, client, prepared, plan, renew, session, values, timeout, query, answer)

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
            query = TrackedQuery(client, prepared.sql, lambda _: None)
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

    def _change(
        self, plan: CatalogPlan, user: User, settings: Settings
    ) -> Callable[[Callable[[], None]], Sequence[str]]:
        command, search_path, dialect = plan.command, settings.search_path, settings.dialect

        def change(check: Callable[[], None]) -> Sequence[str]:
            self._sessions.wait(until(settings.statement_timeout, check))
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

    def _wanted_by_others(self, user: str) -> bool:
        """Whether queries of others wait for what a query of this user holds: its place, or its cores."""
        with self._lock:
            if self._admission.waiting_of_others(user):
                return True
        keeper = self.workplace.keeper
        others = [each for each in self._trials.at_work() if each.client.user.name != user]
        return any(not keeper.is_halted(each.id) and each.waits_for_cores() for each in others)

    def _doubted(self) -> None:
        self.doubt()

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
        self._threads.run(execution.work)
