"""Who answers a statement, and how it is described."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from penstock.errors import SqlError
from penstock.server.base import QueryState, Relay, User
from penstock.server.engine.engine import SparkEngine
from penstock.types import postgres as pg
from penstock.types.postgres import Column
from tests.server.engine.standins import (
    ANN,
    Description,
    FileTables,
    FixedShadow,
    connected,
    pulled,
    rows,
    text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.server.relations import Tables
    from penstock.server.shadow import Shadow


def test_constants_and_catalog_queries_are_the_shadows(engine: SparkEngine, shadow: FixedShadow) -> None:
    one, catalog = "SELECT 1", "SELECT relname FROM pg_catalog.pg_class"
    shadow.known = {one: Description((), (text("a"),)), catalog: Description((), (text("relname"),))}
    client = connected(engine)
    for sql in (one, catalog):
        prepared = client.prepare(sql)
        assert prepared.columns is not None
        assert isinstance(client.execute(prepared), Relay)
    assert engine.queries(ANN) == []
    assert engine.load() == (0, 0)


def test_without_a_shadow_constants_go_to_spark_and_the_catalog_says_why(
    engine: SparkEngine, shadow: FixedShadow
) -> None:
    shadow.problem = "no disk"
    client = connected(engine)
    assert rows(client, "SELECT 1 AS one, 'x' AS two") == [(1, "x")]
    with pytest.raises(SqlError, match="no disk"):
        client.prepare("SELECT relname FROM pg_catalog.pg_class")


def test_a_constant_that_only_spark_knows_goes_to_spark(engine: SparkEngine, shadow: FixedShadow) -> None:
    sql = "SELECT sha2('a', 256) AS digest"
    shadow.errors[sql] = SqlError("function sha2 does not exist", sqlstate="42883")
    assert rows(connected(engine), sql)[0][0].startswith("ca978112")


def test_catalog_and_tables_in_one_query_are_refused(engine: SparkEngine) -> None:
    with pytest.raises(SqlError) as caught:
        connected(engine).prepare("SELECT * FROM people, pg_catalog.pg_class")
    assert caught.value.sqlstate == "0A000"
    assert caught.value.hint


def test_the_shadows_description_wins_and_rows_are_cast_to_it(
    engine: SparkEngine, shadow: FixedShadow
) -> None:
    sql = "SELECT id, score, id FROM people ORDER BY id"
    shadow.known[sql] = Description(
        (),
        (
            Column("id", pa.int64(), pg.INT8),
            Column("score", pa.decimal128(10, 2), pg.NUMERIC, pg.numeric_typmod(10, 2)),
            Column("id", pa.string(), pg.TEXT),
        ),
    )
    client = connected(engine)
    table = pulled(client.execute(client.prepare(sql)))
    assert table.column_names == ["id", "score", "id"]
    assert table.schema.types == [pa.int64(), pa.decimal128(10, 2), pa.string()]
    assert table.column(2).to_pylist() == ["1", "2", "3", "4"]


def test_what_does_not_fit_its_description_is_out_of_range(engine: SparkEngine, shadow: FixedShadow) -> None:
    sql = "SELECT id * 100000 AS n FROM people"
    shadow.known[sql] = Description((), (Column("n", pa.int16(), pg.INT2),))
    with pytest.raises(SqlError) as caught:
        rows(connected(engine), sql)
    assert caught.value.sqlstate == "22003"


def test_numeric_of_any_precision_keeps_sparks_decimal(engine: SparkEngine, shadow: FixedShadow) -> None:
    sql = "SELECT CAST(score AS DECIMAL(6,2)) AS a, id AS b, score AS c FROM people WHERE id = 1"
    described = tuple(Column(n, pa.decimal128(38, 18), pg.NUMERIC) for n in "abc")
    shadow.known[sql] = Description((), described)
    client = connected(engine)
    execution = client.execute(client.prepare(sql))
    assert execution.columns == described
    table = pulled(execution)
    assert table.schema.types == [pa.decimal128(6, 2), pa.decimal128(19, 0), pa.decimal128(38, 16)]
    assert [c.oid for c in execution.columns or ()] == [pg.NUMERIC] * 3


def test_spark_describes_what_postgres_refuses(engine: SparkEngine) -> None:
    prepared = connected(engine).prepare("SELECT id, name, score FROM people")
    assert [(c.name, c.oid) for c in prepared.columns or ()] == [
        ("id", pg.INT4),
        ("name", pg.TEXT),
        ("score", pg.FLOAT8),
    ]


def test_when_both_refuse_the_place_is_postgress(engine: SparkEngine, shadow: FixedShadow) -> None:
    sql = "SELECT nothing FROM people"
    shadow.errors[sql] = SqlError('column "nothing" does not exist', sqlstate="42703", position=7)
    with pytest.raises(SqlError) as caught:
        connected(engine).prepare(sql)
    assert (caught.value.sqlstate, caught.value.position) == ("42703", 7)


def test_sparks_own_errors_find_their_place(engine: SparkEngine) -> None:
    with pytest.raises(SqlError, match='column "nothing" does not exist') as caught:
        connected(engine).prepare("SELECT nothing FROM people")
    assert (caught.value.sqlstate, caught.value.position) == ("42703", 7)


def test_unknown_and_forbidden_tables(engine: SparkEngine, tables: FileTables) -> None:
    with pytest.raises(SqlError) as caught:
        connected(engine).prepare("SELECT * FROM nothing")
    assert (caught.value.sqlstate, caught.value.position) == ("42P01", 14)
    with pytest.raises(SqlError) as caught:
        connected(engine, User("eve", schemas=frozenset({"other"}))).prepare("SELECT * FROM people")
    assert caught.value.sqlstate == "42501"


def test_plans_are_kept_until_tables_change(
    engine: SparkEngine, shadow: FixedShadow, tables: FileTables
) -> None:
    sql = "SELECT id FROM people"
    shadow.known[sql] = Description((), (Column("id", pa.int32(), pg.INT4),))
    client = connected(engine)
    assert client.prepare(sql) is client.prepare(sql)
    assert shadow.asked == [sql]
    tables.version += 1
    client.prepare(sql)
    assert shadow.asked == [sql, sql]
    assert len(shadow.synced) == 2


def test_parameters_are_typed_by_the_shadow_or_the_client(engine: SparkEngine, shadow: FixedShadow) -> None:
    sql = "SELECT name FROM people WHERE id = $1"
    client = connected(engine)
    assert client.prepare(sql, [pg.INT8]).parameters == (pg.INT8,)
    assert client.prepare("SELECT id FROM people WHERE name = $1").parameters == (pg.TEXT,)
    shadow.known[sql] = Description((pg.INT4,), (text("name"),))
    assert client.prepare(sql, [0]).parameters == (pg.INT4,)
    assert rows(client, sql, 2, oids=[0]) == [("Bob",)]
    assert rows(client, sql, None, oids=[0]) == []


def test_a_checkpoint_is_read_like_a_table(engine: SparkEngine) -> None:
    client = connected(engine)
    assert rows(client, "SELECT max(c.id) FROM checkpoint('people', 'x') AS c") == [(4,)]
    assert rows(client, "SELECT checkpoint.id FROM checkpoint('people', 'x') WHERE id = 1") == [(1,)]
    with pytest.raises(SqlError, match="plain texts"):
        client.prepare("SELECT * FROM checkpoint($1, 'x')")


def test_statements_that_are_not_for_the_engine_are_refused(engine: SparkEngine) -> None:
    client = connected(engine)
    for sql in ("INSERT INTO people VALUES (1)", "BEGIN", "VACUUM"):
        with pytest.raises(SqlError) as caught:
            client.prepare(sql)
        assert caught.value.sqlstate in ("0A000", "25006", "42501")


def test_rights_that_are_taken_away_count_for_what_was_prepared_before(
    spark: SparkSession, tables: FileTables, shadow: FixedShadow, tmp_path: Path
) -> None:
    now = {"ann": ANN}

    def current(user: User) -> User:
        if user.name not in now:
            raise SqlError("gone", sqlstate="28000")
        return now[user.name]

    engine = SparkEngine(
        spark,
        cast("Tables", tables),
        spool=str(tmp_path / "spool"),
        shadow=cast("Shadow", shadow),
        current=current,
    )
    try:
        client = connected(engine)
        prepared = client.prepare("SELECT name FROM people")
        now["ann"] = User("ann", schemas=frozenset({"other"}))
        with pytest.raises(SqlError, match="permission denied"):
            list(client.execute(prepared).batches())
        del now["ann"]
        for refused in (lambda: client.execute(prepared), lambda: client.prepare("SELECT 1")):
            with pytest.raises(SqlError, match="gone"):
                refused()
    finally:
        engine.stop()


def test_what_the_shadow_answers_is_found_by_its_id_over_http(
    engine: SparkEngine, shadow: FixedShadow
) -> None:
    shadow.known["SELECT 1"] = Description((), (Column("answer", pa.string(), pg.TEXT),))
    client = connected(engine, protocol="http")
    execution = client.execute(client.prepare("SELECT 1"))
    assert isinstance(execution, Relay)
    (info,) = (info for info in engine.queries(ANN) if info.id == execution.id)
    assert info.state is QueryState.QUEUED
    assert sum(batch.num_rows for batch in execution.batches()) == 1
    (info,) = (info for info in engine.queries(ANN) if info.id == execution.id)
    assert (info.state, info.rows, info.sql) == (QueryState.FINISHED, 1, "SELECT 1")
    execution.close()
    dropped = client.execute(client.prepare("SELECT 1"))
    assert engine.cancel(dropped.id, ANN)
    assert engine.queries(ANN)[0].state is QueryState.CANCELED
