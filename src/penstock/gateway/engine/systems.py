"""Queries of system tables alone: which they are, how the shadow catalog reads them, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.dialect.analysis import Analysis, is_catalog
from penstock.dialect.quoting import as_columns
from penstock.errors import SqlError
from penstock.gateway.engine.calls import OURS
from penstock.gateway.engine.plans import Path, SparkPlan, SystemPlan
from penstock.gateway.engine.relaying import Rows, SystemRelay

if TYPE_CHECKING:
    from penstock.gateway.base import Execution, Prepared, Relay, User
    from penstock.gateway.shadow import Description
    from penstock.gateway.tables import Relation, Tables


def named(
    analysis: Analysis, tables: Tables, search_path: Sequence[str], user: User
) -> dict[Path, Relation] | None:
    """The system tables that a query names; None if it names others, or none but the catalog's."""
    if analysis.dialect != "postgres" or not analysis.table_functions.isdisjoint(OURS):
        return None
    return found((ref.path for ref in analysis.relations), tables, search_path, user)


def found(
    paths: Iterable[Path], tables: Tables, search_path: Sequence[str], user: User
) -> dict[Path, Relation] | None:
    """The system tables that these names mean now; None if one of them means another."""
    relations: dict[Path, Relation] = {}
    for path in paths:
        if is_catalog(path):
            continue
        try:
            relation = tables.find(path, search_path, user)
        except SqlError:
            return None
        if relation.kind != "system":
            return None
        relations[path] = relation
    return relations or None


def described(
    sql: str, relations: Mapping[Path, Relation], describe: Callable[[str], Description]
) -> tuple[str, Description]:
    """The query as PostgreSQL must read it, and what it says about it."""
    columns = {name for relation in relations.values() for name in relation.columns.names}
    text = as_columns(sql, columns)
    try:
        return text.text, describe(text.text)
    except SqlError as error:
        if error.position is not None:
            error.position = text.before(error.position)
        raise


def relayed(
    plan: SystemPlan,
    prepared: Prepared,
    tables: Tables,
    user: User,
    ask: Callable[[Rows], Relay],
    compute: Callable[[Callable[[SparkPlan], SparkPlan]], Execution],
    timeout: float | None,
) -> SystemRelay:
    """The query at work: each table is read once, for this user, whoever answers in the end.

    ``compute`` has Spark do it, and is told how to put the rows that were read into its plan.
    """
    keys = {path: (relation.schema, relation.name) for path, relation in plan.tables.items()}

    def read() -> Rows:
        return {key: tables.system_rows(key, user) for key in dict.fromkeys(keys.values())}

    def computed(rows: Rows) -> Execution:
        def given(old: SparkPlan) -> SparkPlan:
            held = {path: tables.system_table(key, rows[key]) for path, key in keys.items()}
            return replace(old, relations=held)

        return compute(given)

    return SystemRelay(prepared, read, ask, None if plan.spark is None else computed, timeout)
