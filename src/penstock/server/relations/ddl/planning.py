"""From a CREATE to what is made: names resolved, paths checked, the query of a view in Spark SQL."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.errors import SqlError
from penstock.server.base import PUBLIC, User
from penstock.server.relations import columns as shapes
from penstock.server.relations import naming
from penstock.server.relations.ddl import given
from penstock.server.relations.files import files, formats, paths
from penstock.server.relations.files.paths import Roots
from penstock.server.relations.files.summary import summary
from penstock.server.relations.relation import Key, Relation
from penstock.server.relations.spark_tables import SparkTables
from penstock.server.relations.spec import Spec, TableSpec, ViewSpec, reference, resolved
from penstock.sql.statements.commands import CreateTable, CreateView

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.sql.statements.analysis import Analysis


class Finder(Protocol):
    """Finds relations, as `Tables` does."""

    def find(self, path: Sequence[str], search_path: Sequence[str], user: User) -> Relation: ...

    def kept_from(self, user: User) -> Sequence[str]: ...


class SpecMaker:
    """Makes specs of commands."""

    def __init__(self, finder: Finder, spark_tables: SparkTables, roots: Roots) -> None:
        self._finder, self._spark_tables, self._roots = finder, spark_tables, roots

    def table(self, command: CreateTable, user: User) -> TableSpec:
        """An external table, after a look into its files, which must be none of those kept from this user."""
        if not command.location:
            raise SqlError(
                "CREATE TABLE needs USING and LOCATION: tables are made over files that exist",
                hint="CREATE TABLE name USING parquet LOCATION 'folder'",
                sqlstate="0A000",
            )
        path = self._roots.checked(command.location)
        for secret in self._finder.kept_from(user):
            if paths.overlap(path, secret):
                raise SqlError(
                    f'permission denied for path "{command.location}": files of a schema are there that '
                    f"{user.name} may not read",
                    sqlstate="42501",
                )
        kind, own = formats.known(command.using, path)
        options = formats.guarded(kind, path, formats.checked_options(kind, {**own, **command.options}))
        try:
            wanted = given.parsed(command.columns) if command.columns else None
            opened = TableSpec(self._roots.opened(path), kind, options)
            seen = "" if wanted else summary(opened)
            schema = files.look(self._spark_tables.spark, opened, wanted)
        except Exception as error:
            raise files.told(error, f"{command.location} cannot be read as {kind}") from error
        return TableSpec(path, kind, options, shapes.columns_ddl(schema), seen)

    def opened(self, spec: Spec) -> Spec:
        """What the catalog says, ready to be built: what it may read can have changed since it was made."""
        if isinstance(spec, ViewSpec):
            return spec
        return replace(spec, path=self._roots.opened(self._roots.checked(spec.path)))

    def view(
        self, command: CreateView, user: User, search_path: Sequence[str], names: Sequence[str], dialect: str
    ) -> ViewSpec:
        """A view: what its query reads is resolved now, as this user sees it."""
        from penstock.sql.statements.analysis import analyse

        analysis = analyse(command.query, dialect)
        _check_lasting(analysis)
        relations = self._resolved(analysis, command.offset, user, search_path)
        text = _translated(analysis, relations)
        needs = tuple(dict.fromkeys((each.schema, each.name) for each in relations.values()))
        schema = self._analysed(text, list(relations.values()))
        chosen = _column_names(command.columns, names, schema)
        for field, name in zip(schema.fields, chosen, strict=True):
            field.name = name
        schema.names = list(chosen)
        return ViewSpec(text, needs, shapes.columns_ddl(schema), chosen, _written(command))

    def written(self, sql: str, user: User) -> Spec:
        """What a statement says that somebody wrote into the catalog by hand."""
        from penstock.sql.statements.classify import classify

        command = classify(sql)
        if isinstance(command, CreateView):
            return self.view(command, user, (PUBLIC,), (), "auto")
        if isinstance(command, CreateTable):
            return self.table(command, user)
        raise SqlError(
            "the statement makes no view and no external table",
            hint="write CREATE VIEW … AS …, or CREATE TABLE … USING … LOCATION …",
            sqlstate="0A000",
        )

    def _resolved(
        self, analysis: Analysis, offset: int, user: User, search_path: Sequence[str]
    ) -> dict[tuple[str, ...], Relation]:
        found: dict[tuple[str, ...], Relation] = {}
        for each in analysis.relations:
            if len(each.path) > 1 and each.path[-2] in ("pg_catalog", "information_schema"):
                raise SqlError(
                    f"a view cannot read {'.'.join(each.path)}", hint="ask for it directly", sqlstate="0A000"
                )
            try:
                found[each.path] = self._finder.find(each.path, search_path, user)
            except SqlError as error:
                if error.position is None and each.position is not None:
                    error.position = offset + each.position
                raise
        return found

    def _analysed(self, text: str, relations: Sequence[Relation]) -> StructType:
        """The columns of the query, as Spark understands it."""
        spark, query = self._spark_tables.spark, f"create {secrets.token_hex(8)}"
        names: dict[Key, str] = {}
        try:
            for each in relations:
                names[each.schema, each.name] = each.bind(spark, query)
            return spark.sql(resolved(text, names.get)).schema
        except Exception as error:
            raise files.told(error, "the query of the view cannot be carried out") from error
        finally:
            for each in relations:
                each.release(spark, query)


def _translated(analysis: Analysis, relations: dict[tuple[str, ...], Relation]) -> str:
    from penstock.sql.translate import SparkRelation, respell, translate

    def target(path: tuple[str, ...]) -> SparkRelation | None:
        found = relations.get(tuple(path))
        return SparkRelation(reference((found.schema, found.name)), found.spark_columns) if found else None

    spell = translate if analysis.dialect == "postgres" else respell
    return spell(analysis.tree, target=target)


def _written(command: CreateView) -> str:
    """The author's query, under the names that the statement gives to its columns."""
    if not command.columns:
        return command.query
    names = ", ".join(naming.identifier(name) for name in command.columns)
    return f"SELECT * FROM (\n{command.query}\n) AS {naming.identifier(command.name[-1])} ({names})"


def _check_lasting(analysis: Analysis) -> None:
    if analysis.parameters:
        raise SqlError("there is no parameter $1: a view has none", sqlstate="42P02")
    if "checkpoint" in analysis.table_functions:
        raise SqlError(
            "a view cannot read checkpoint(): checkpoints come and go",
            hint="ask for it directly",
            sqlstate="0A000",
        )


def _column_names(listed: Sequence[str], described: Sequence[str], schema: StructType) -> tuple[str, ...]:
    """The names of the view's columns: those that the statement lists, then those that the client knows."""
    width = len(schema.fields)
    if len(listed) > width:
        raise SqlError("CREATE VIEW specifies more column names than columns", sqlstate="42601")
    natural = list(described) if len(described) == width else list(schema.names)
    names = [*listed, *natural[len(listed) :]]
    seen: dict[str, str] = {}
    for name in names:
        if other := seen.get(name.lower()):
            same = other == name
            raise SqlError(
                f'column "{name}" specified more than once',
                hint="give columns other names with AS"
                + ("" if same else f'; Spark does not tell "{other}" from "{name}"'),
                sqlstate="42701",
            )
        seen[name.lower()] = name
    return tuple(names)
