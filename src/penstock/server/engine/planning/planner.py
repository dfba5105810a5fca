"""Understanding a statement: who answers it, what it needs and what it gives.

Short statements never reach Spark: constants, questions about the catalog and about the state of the system
are the shadow's, a real PostgreSQL. It also describes queries for Spark in about a millisecond, where it
accepts them; Spark's own analysis is asked where it does not.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import SqlError
from penstock.server.base import DATABASE, Prepared, User
from penstock.server.engine.faults import translated
from penstock.server.engine.planning import systems
from penstock.server.engine.planning.plans import (
    CatalogPlan,
    ExplainPlan,
    Path,
    ShadowPlan,
    SparkPlan,
    SystemPlan,
    TableCall,
    exact_types,
    named_calls,
)
from penstock.server.engine.registry import new_id
from penstock.server.engine.results import shaping
from penstock.server.engine.running.sessions import SparkSessions, until
from penstock.sql.statements.analysis import Analysis, analyse, is_catalog
from penstock.sql.statements.classify import (
    Command,
    CreateSchema,
    CreateTable,
    CreateView,
    Drop,
    Explain,
    QueryStatement,
    Rename,
    Unsupported,
    classify,
)
from penstock.types import postgres as pg
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from penstock.server.relations import Relation, Tables
    from penstock.server.session_settings import Settings
    from penstock.server.shadow import Description, Shadow

_KEPT = 1_000
_LETTERS = 2 << 20
"""All texts of the plans that are kept together; a plan takes some fifty times the memory of its text."""
# What PostgreSQL does not know may be known to Spark: syntax, functions, types, and what it has not built.
_MAYBE_SPARK = frozenset({"42601", "42883", "42704", "0A000", "42804", "42846", "42P18", "22P02", "42809"})
_QUERY_PLAN = Column("QUERY PLAN", pa.string(), pg.TEXT, nullable=False)


class Planner:
    """Makes plans, and keeps those that were used last."""

    def __init__(
        self, tables: Tables, shadow: Shadow | None, sessions: SparkSessions, kept: int = _KEPT
    ) -> None:
        self._tables = tables
        self._shadow = shadow
        self._sessions = sessions
        self._kept = kept
        self._lock = threading.Lock()
        self._plans: OrderedDict[tuple[object, ...], Prepared] = OrderedDict()
        self._letters = 0

    def prepare(
        self,
        sql: str,
        oids: Sequence[int],
        user: User,
        settings: Settings,
        *,
        exact: bool = False,
        command: Command | None = None,
    ) -> Prepared:
        """Understand one statement, or remember that it was understood before."""
        key = (
            sql,
            tuple(oids),
            user,
            settings.search_path,
            settings.dialect,
            settings.timezone,
            self._tables.version,
            self._shadow_usable(),
            exact,
        )
        with self._lock:
            if found := self._plans.get(key):
                self._plans.move_to_end(key)
                return found
        prepared = self._prepared(sql, command or classify(sql), oids, user, settings)
        if exact:
            prepared = exact_types(prepared, lambda plan: self._of_spark(plan, settings))
        self._keep(key, prepared)
        return prepared

    def _keep(self, key: tuple[object, ...], prepared: Prepared) -> None:
        with self._lock:
            if self._plans.setdefault(key, prepared) is prepared:
                self._letters += len(prepared.sql)
            while self._plans and (len(self._plans) > self._kept or self._letters > _LETTERS):
                _, gone = self._plans.popitem(last=False)
                self._letters -= len(gone.sql)

    def _prepared(
        self, sql: str, command: Command, oids: Sequence[int], user: User, settings: Settings
    ) -> Prepared:
        if isinstance(command, QueryStatement):
            plan = self._within(command.offset, command.text, oids, user, settings)
            return Prepared(sql, command.tag, plan.parameters, plan.columns, plan)
        if isinstance(command, Explain):
            return self._explain(sql, command, oids, user, settings)
        if isinstance(command, CreateView):
            names = self._view_columns(command, user, settings)
            return Prepared(sql, command.tag, plan=CatalogPlan(command, names))
        if isinstance(command, (CreateTable, CreateSchema, Drop, Rename)):
            return Prepared(sql, command.tag, plan=CatalogPlan(command))
        if isinstance(command, Unsupported):
            raise command.error()
        raise SqlError(f"{command.tag or 'an empty statement'} cannot be prepared here", sqlstate="0A000")

    def _explain(
        self, sql: str, command: Explain, oids: Sequence[int], user: User, settings: Settings
    ) -> Prepared:
        if command.format not in ("text", "json"):
            raise SqlError(
                f"EXPLAIN in the format {command.format} is not supported",
                sqlstate="0A000",
                hint="use FORMAT TEXT or FORMAT JSON",
            )
        plan = self._within(command.offset, command.query, oids, user, settings)
        if isinstance(plan, SparkPlan):
            return Prepared(sql, command.tag, plan.parameters, (_QUERY_PLAN,), ExplainPlan(command, plan))
        if isinstance(plan, SystemPlan):
            told = self._of_shadow(sql, oids, user, settings)
            spark = ExplainPlan(command, plan.spark) if isinstance(plan.spark, SparkPlan) else None
            plan = SystemPlan(sql, told.parameters, told.columns, plan.tables, spark)
            return Prepared(sql, command.tag, plan.parameters, plan.columns, plan)
        shadowed = self._of_shadow(sql, oids, user, settings)
        return Prepared(sql, command.tag, shadowed.parameters, shadowed.columns, shadowed)

    def _view_columns(self, command: CreateView, user: User, settings: Settings) -> tuple[str, ...]:
        """What the query of a view gives. A wrong one is refused here, and never enters the catalog."""
        plan = self._within(command.offset, command.query, (), user, settings)
        if plan.parameters:
            raise SqlError("a view cannot have parameters", sqlstate="42P02")
        return tuple(column.name for column in plan.columns or ())

    def _within(
        self, offset: int, text: str, oids: Sequence[int], user: User, settings: Settings
    ) -> SparkPlan | ShadowPlan | SystemPlan:
        """A query that stands in a statement: errors tell their place in the whole."""
        try:
            plan = self._query(text, oids, user, settings)
        except SqlError as error:
            if offset and error.position is not None:
                error.position = max(0, error.position + offset)
            raise
        if isinstance(plan, SystemPlan) and isinstance(plan.spark, SparkPlan):
            return replace(plan, spark=replace(plan.spark, offset=offset))
        return replace(plan, offset=offset) if isinstance(plan, SparkPlan) else plan

    def _query(
        self, text: str, oids: Sequence[int], user: User, settings: Settings
    ) -> SparkPlan | ShadowPlan | SystemPlan:
        analysis = analyse(text, settings.dialect)
        catalog = [ref for ref in analysis.relations if is_catalog(ref.path)]
        if analysis.catalog:
            return self._of_catalog(text, oids, user, settings)
        refused: SqlError | None = None
        system = systems.named(analysis, self._tables, settings.search_path, user)
        if system is not None and self._shadow_usable():
            try:
                told = self._of_shadow(text, oids, user, settings)
                plan = SystemPlan(text, told.parameters, told.columns, system, None)
                spark = SparkPlan(text, analysis, system, {}, told.parameters, told.columns or ())
                spark = replace(spark, session=_session(user, settings))
                return plan if catalog else replace(plan, spark=spark)
            except SqlError as error:
                if catalog:
                    raise
                refused = error
        if catalog:
            raise SqlError(
                "tables of the catalog cannot be joined with others: they are answered in different places",
                sqlstate="0A000",
                position=catalog[0].position,
                hint="ask for them in two statements",
            )
        if analysis.constant and analysis.dialect == "postgres" and self._shadow_usable():
            try:
                return self._of_shadow(text, oids, user, settings)
            except SqlError as error:
                if error.sqlstate not in _MAYBE_SPARK:
                    raise
                refused = error
        return self._for_spark(text, analysis, oids, user, settings, refused)

    def _of_catalog(self, text: str, oids: Sequence[int], user: User, settings: Settings) -> ShadowPlan:
        if not self._shadow_usable():
            why = "it is not configured" if self._shadow is None else self._shadow.problem
            raise SqlError(
                f"the catalog cannot be asked, because the shadow catalog does not run: {why}",
                sqlstate="58000",
                hint="queries of tables work all the same",
            )
        return self._of_shadow(text, oids, user, settings)

    def _of_shadow(self, text: str, oids: Sequence[int], user: User, settings: Settings) -> ShadowPlan:
        assert self._shadow is not None
        description = self._shadow.describe(text, oids, user, settings)
        return ShadowPlan(text, tuple(description.parameters), description.columns)

    def _for_spark(
        self,
        text: str,
        analysis: Analysis,
        oids: Sequence[int],
        user: User,
        settings: Settings,
        refused: SqlError | None,
    ) -> SparkPlan:
        calls = named_calls(analysis)
        relations = self._relations(analysis, calls, user, settings.search_path)
        description: Description | None = None
        if refused is None and analysis.dialect == "postgres" and self._shadow_usable():
            assert self._shadow is not None
            try:
                description = self._shadow.describe(text, oids, user, settings)
            except SqlError as error:
                refused = error
        parameters = _parameters(oids, analysis.parameters, description)
        plan = SparkPlan(text, analysis, relations, calls, parameters, session=_session(user, settings))
        if description is not None and description.columns is not None:
            return replace(plan, columns=tuple(description.columns))
        try:
            return replace(plan, columns=self._of_spark(plan, settings))
        except SqlError as error:
            # Both refuse it. PostgreSQL knows the place in the client's own text.
            raise (refused if refused is not None and refused.sqlstate != "42601" else error) from error

    def renewed(self, plan: SparkPlan, user: User, search_path: Sequence[str]) -> SparkPlan:
        """The plan with its relations as they are now, which may be long after it was made."""
        return replace(plan, relations=self._relations(plan.analysis, plan.calls, user, search_path))

    def _relations(
        self, analysis: Analysis, calls: Mapping[Path, TableCall], user: User, search_path: Sequence[str]
    ) -> dict[Path, Relation]:
        found: dict[Path, Relation] = {
            path: self._tables.function(call.name, call.arguments, user) for path, call in calls.items()
        }
        for ref in analysis.relations:
            if ref.path in found:
                continue
            try:
                found[ref.path] = self._tables.find(ref.path, search_path, user)
            except SqlError as error:
                if error.position is None:
                    error.position = ref.position
                raise
        return found

    def _of_spark(self, plan: SparkPlan, settings: Settings) -> tuple[Column, ...]:
        """The columns as Spark's analysis finds them."""
        spark = self._sessions.of(settings.timezone, until(settings.statement_timeout))
        name = new_id()
        try:
            found = shaping.described(plan.frame(spark, name).schema)
            # What numeric parameters make of a column is known with their values.
            return shaping.opened(found) if pg.NUMERIC in plan.parameters else found
        except Exception as error:
            raise translated(error, plan.sql) from error
        finally:
            plan.release(spark, name)

    def _shadow_usable(self) -> bool:
        return self._shadow is not None and self._shadow.problem is None


def _session(user: User, settings: Settings) -> dict[str, str]:
    """What PostgreSQL's words for who asks, and where, mean in a statement."""
    found = {"user": user.name, "database": DATABASE, "timezone": settings.timezone}
    if settings.search_path:
        found["schema"] = settings.search_path[0]
    return found


def _parameters(oids: Sequence[int], count: int, description: Description | None) -> tuple[int, ...]:
    """The type of every parameter: as described, else as the client says, else text."""
    if description is not None:
        return tuple(description.parameters)
    given = [*oids, *[0] * (count - len(oids))]
    return tuple(pg.TEXT if oid in (0, pg.UNKNOWN) else oid for oid in given)
