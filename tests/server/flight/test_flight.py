from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from penstock.server.access import Access, Users
from penstock.server.base import TableInfo
from penstock.server.flight import FlightSqlServer
from penstock.server.flight import flightsql_pb2 as sql
from penstock.server.flight.messages import sealed
from penstock.server.flight.parameters import numbered
from penstock.store.sqlite import SqliteStore
from penstock.types import postgres
from tests.server.stand_in import PEOPLE, Answer, StandIn, StandInExecution, answer, constant
from tests.server.waiting import wait_until


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(SqliteStore(str(tmp_path / "store.db")))


@pytest.fixture
def engine() -> StandIn:
    return StandIn()


@pytest.fixture
def server(engine: StandIn, users: Users) -> Iterator[FlightSqlServer]:
    server = FlightSqlServer(engine, Access(users), host="127.0.0.1", port=0, worker_actions=echo)
    yield server
    server.stop()


def echo(action: str, body: bytes) -> bytes:
    return f"{action} {body.decode()}".encode()


@pytest.fixture
def connection(server: FlightSqlServer) -> Iterator[Any]:
    with adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection:
        yield connection


def test_a_statement_brings_its_rows_as_arrow(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM people")
        assert cursor.fetch_arrow_table() == PEOPLE


def test_columns_keep_their_types_and_nulls(connection: Any, engine: StandIn) -> None:
    table = pa.table(
        {
            "amount": pa.array([Decimal("1.50"), None], pa.decimal128(12, 2)),
            "day": pa.array([date(2026, 1, 5), None]),
            "tags": pa.array([["a", None], []], pa.list_(pa.string())),
            "at": pa.array([1, None], pa.timestamp("us", "UTC")),
        }
    )
    engine.answers["SELECT everything"] = constant(table)
    with connection.cursor() as cursor:
        cursor.execute("SELECT everything")
        assert cursor.fetch_arrow_table() == table


def test_what_was_described_is_what_is_sent(connection: Any, engine: StandIn) -> None:
    described = pa.schema([("n", pa.int64())])
    sent = constant(pa.table({"n": pa.array([7], pa.int32())}))
    engine.answers["SELECT n"] = answer(described, sent.rows)
    with connection.cursor() as cursor:
        cursor.execute("SELECT n")
        assert cursor.fetch_arrow_table().schema == described


def test_a_prepared_statement_takes_parameters(connection: Any, engine: StandIn) -> None:
    def rows(execution: StandInExecution) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"twice": pa.array([2 * int(str(execution.values[0]))], pa.int64())})

    engine.answers["SELECT 2 * $1"] = answer(pa.schema([("twice", pa.int64())]), rows, (postgres.INT8,))
    with connection.cursor() as cursor:
        cursor.execute("SELECT 2 * $1", (21,))
        assert cursor.fetchall() == [(42,)]
        cursor.execute("SELECT 2 * $1", (4,))
        assert cursor.fetchall() == [(8,)]
        with pytest.raises(adbc_driver_manager.Error, match="parameters were bound"):
            cursor.execute("SELECT 2 * $1", (1, 2))


def test_a_statement_without_rows_is_carried_out(connection: Any, engine: StandIn) -> None:
    done = []

    def work(_: StandInExecution) -> Iterator[pa.RecordBatch]:
        done.append("made")
        return iter(())

    engine.answers["CREATE VIEW v AS SELECT 1"] = Answer(work)
    with connection.cursor() as cursor:
        cursor.adbc_statement.set_sql_query("CREATE VIEW v AS SELECT 1")
        cursor.adbc_statement.execute_update()
    assert done == ["made"]


def test_a_statement_without_rows_is_carried_out_when_it_is_run_like_a_query(
    connection: Any, engine: StandIn, server: FlightSqlServer
) -> None:
    done = []

    def work(_: StandInExecution) -> Iterator[pa.RecordBatch]:
        done.append("made")
        return iter(())

    engine.answers["CREATE VIEW v AS SELECT 1"] = Answer(work)
    with connection.cursor() as cursor:
        cursor.execute("CREATE VIEW v AS SELECT 1")
        assert done == ["made"], "before anybody asks for rows"
        assert cursor.fetchall() == []
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        command = sealed(sql.CommandStatementQuery(query="CREATE VIEW v AS SELECT 1"))
        client.get_schema(flight.FlightDescriptor.for_command(command))
        assert done == ["made"], "to be described is not to be run"
        client.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert done == ["made"] * 2


def test_tables_are_described_as_queries_bring_them(connection: Any, engine: StandIn) -> None:
    nested = pa.schema([("tiny", pa.int8()), ("pair", pa.struct([("a", pa.int64())]))])
    engine.listed = [TableInfo("public", "nested", "table", nested)]
    assert connection.adbc_get_table_schema("nested") == pa.schema(
        [("tiny", pa.int16()), ("pair", pa.string())]
    )


def test_an_error_has_a_code_and_no_trace(connection: Any) -> None:
    with connection.cursor() as cursor, pytest.raises(adbc_driver_manager.Error) as caught:
        cursor.execute("SELEC 1")
    text = str(caught.value)
    assert "[42601] there is no answer to SELEC 1" in text
    assert "Traceback" not in text and ".py" not in text


def test_an_error_in_the_middle_reaches_the_client(connection: Any, engine: StandIn) -> None:
    def rows(_: StandInExecution) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1], pa.int64())})
        raise ZeroDivisionError("secret of the house")

    engine.answers["SELECT trouble"] = answer(pa.schema([("n", pa.int64())]), rows)
    with connection.cursor() as cursor:
        cursor.execute("SELECT trouble")
        with pytest.raises((adbc_driver_manager.Error, OSError, pa.ArrowException)) as caught:
            cursor.fetch_arrow_table()
    assert "secret" not in str(caught.value) and "Traceback" not in str(caught.value)
    assert engine.running == [], "what failed is let go"


def test_metadata_lists_what_there_is(connection: Any, engine: StandIn) -> None:
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    [catalog] = objects
    assert catalog["catalog_name"] == "penstock"
    [schema] = catalog["catalog_db_schemas"]
    assert schema["db_schema_name"] == "public"
    [table] = schema["db_schema_tables"]
    assert (table["table_name"], table["table_type"]) == ("people", "TABLE")
    assert [column["column_name"] for column in table["table_columns"]] == ["id", "name"]
    assert connection.adbc_get_table_schema("people", db_schema_filter="public") == PEOPLE.schema
    assert sorted(connection.adbc_get_table_types()) == ["SYSTEM TABLE", "TABLE", "VIEW"]
    assert connection.adbc_get_info()["vendor_name"] == "Penstock"


def test_patterns_of_metadata_are_those_of_like(connection: Any) -> None:
    def names(pattern: str) -> list[str]:
        found = connection.adbc_get_objects(depth="tables", table_name_filter=pattern).read_all().to_pylist()
        schemas = [schema for catalog in found for schema in catalog["catalog_db_schemas"]]
        return [table["table_name"] for schema in schemas for table in schema["db_schema_tables"]]

    assert names("peo%") == ["people"]
    assert names("p_ople") == ["people"]
    assert names("p.ople") == []


def test_a_client_that_stops_reading_cancels_its_query(server: FlightSqlServer, engine: StandIn) -> None:
    def endless(_: StandInExecution) -> Iterator[pa.RecordBatch]:
        while True:
            yield pa.record_batch({"n": pa.array(range(10_000), pa.int64())})

    engine.answers["SELECT forever"] = answer(pa.schema([("n", pa.int64())]), endless)
    with adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT forever")
        reader = cursor.fetch_record_batch()
        reader.read_next_batch()
        [running] = engine.running
        cursor.adbc_cancel()
        wait_until(lambda: running.closed)
        cursor.close()


def test_a_stranger_is_sent_away_once_there_are_users(server: FlightSqlServer, users: Users) -> None:
    users.add("ann", "secret", admin=True)
    wait_until(lambda: _refused(server, {}))
    assert _refused(server, {"username": "ann", "password": "wrong"})
    assert _refused(server, {DatabaseOptions.AUTHORIZATION_HEADER.value: "Bearer nonsense"})
    with (
        adbc.connect(
            f"grpc://127.0.0.1:{server.port}",
            db_kwargs={"username": "ann", "password": "secret"},
            autocommit=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT * FROM people")
        assert cursor.fetch_arrow_table().num_rows == 3


def test_a_login_gives_a_token(server: FlightSqlServer, users: Users) -> None:
    users.add("ann", "secret", admin=True)
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    wait_until(lambda: _refused(server, {}))
    name, value = client.authenticate_basic_token("ann", "secret")
    options = flight.FlightCallOptions(headers=[(name, value)])
    assert [action.type for action in client.list_actions(options)]
    header = {DatabaseOptions.AUTHORIZATION_HEADER.value: value.decode()}
    assert not _refused(server, header)


def test_another_users_statement_does_not_exist(server: FlightSqlServer, users: Users) -> None:
    users.add("ann", "secret", admin=True)
    users.add("bob", "secret", admin=True)
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    wait_until(lambda: _refused(server, {}))
    ann, bob = (
        flight.FlightCallOptions(headers=[client.authenticate_basic_token(name, "secret")])
        for name in ("ann", "bob")
    )
    from penstock.server.flight import flightsql_pb2 as sql
    from penstock.server.flight.messages import sealed

    command = sealed(sql.CommandStatementQuery(query="SELECT * FROM people"))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command), ann)
    with pytest.raises(flight.FlightServerError, match="no such statement"):
        client.do_get(info.endpoints[0].ticket, bob).read_all()
    assert client.do_get(info.endpoints[0].ticket, ann).read_all().num_rows == 3


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"\n\x03abc\x12\x02xx", b"\n\x10" + b"x" * 16])
def test_what_is_no_command_is_refused(server: FlightSqlServer, data: bytes) -> None:
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    for call in (
        lambda: client.get_flight_info(flight.FlightDescriptor.for_command(data)),
        lambda: client.do_get(flight.Ticket(data)).read_all(),
        lambda: list(client.do_action(flight.Action("CreatePreparedStatement", data))),
        lambda: list(client.do_action(flight.Action("CancelFlightInfo", data))),
        lambda: list(client.do_action(flight.Action("Nonsense", data))),
    ):
        with pytest.raises(flight.FlightError) as caught:
            call()
        assert "Traceback" not in str(caught.value)


def test_workers_are_answered_without_being_users(server: FlightSqlServer, users: Users) -> None:
    users.add("ann", "secret", admin=True)
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    [answer] = client.do_action(flight.Action("penstock.join", b"hello"))
    assert answer.body.to_pybytes() == b"penstock.join hello"


def _refused(server: FlightSqlServer, options: dict[str, str]) -> bool:
    try:
        with (
            adbc.connect(f"grpc://127.0.0.1:{server.port}", db_kwargs=options, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT * FROM people")
            cursor.fetchall()
    except adbc_driver_manager.Error:
        return True
    return False


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("SELECT ?", "SELECT  $1 "),
        ("SELECT a FROM t WHERE b=? AND c <= ?", "SELECT a FROM t WHERE b= $1  AND c <=  $2 "),
        ("SELECT '?', \"?\" -- ?", "SELECT '?', \"?\" -- ?"),
        ("SELECT $1 ? 'a'", "SELECT $1 ? 'a'"),
        ("SELECT a ?| b", "SELECT a ?| b"),
    ],
)
def test_question_marks_are_parameters_too(sql: str, meant: str) -> None:
    assert numbered(sql) == meant
