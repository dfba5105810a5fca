"""Whatever call goes wrong, and however: the client gets a code and a sentence, nothing of our insides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.errors import PeerUnreachable, SqlError
from penstock.server.access import Access, Users
from penstock.server.flight import FlightSqlServer
from penstock.server.flight import flightsql_pb2 as sql
from penstock.server.flight.identity import address_of
from penstock.server.flight.messages import sealed
from penstock.store.memory import MemoryStore
from penstock.types import postgres
from tests.server.stand_in import Answer, StandIn, StandInExecution, answer

NUMBER = pa.schema([("n", pa.int64())])
GARBAGE = [b"", b"\xff\xff\xff", b"\x0a\x05ab", sealed(sql.CommandGetTables())[:-1] + b"\xff"]


def broken_at_once(_: StandInExecution) -> Iterator[pa.RecordBatch]:
    yield from iter([1 // 0])


def broken_in_the_middle(_: StandInExecution) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([1], pa.int64())})
    raise ZeroDivisionError("secret of the house")


def refused_in_the_middle(_: StandInExecution) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array([1], pa.int64())})
    raise SqlError("division by zero", sqlstate="22012")


def of_another_kind(_: StandInExecution) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": [1], "secret": [2]})


def broken_reception(action: str, body: bytes) -> bytes:
    raise PeerUnreachable("the master is gone") if body else ZeroDivisionError("secret of the house")


@pytest.fixture
def users() -> Users:
    return Users(MemoryStore())


@pytest.fixture
def server(users: Users) -> Iterator[FlightSqlServer]:
    engine = StandIn()
    engine.answers |= {
        "at once": answer(NUMBER, broken_at_once),
        "in the middle": answer(NUMBER, broken_in_the_middle),
        "refused": answer(NUMBER, refused_in_the_middle),
        "of another kind": answer(NUMBER, of_another_kind),
        "no rows": Answer(broken_at_once),
        "with one": answer(NUMBER, broken_in_the_middle, (postgres.INT8,)),
    }
    server = FlightSqlServer(engine, Access(users), host="127.0.0.1", port=0, worker_actions=broken_reception)
    yield server
    server.stop()


@pytest.fixture
def client(server: FlightSqlServer) -> Iterator[Any]:
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield client


def statement(text: str) -> Any:
    return flight.FlightDescriptor.for_command(sealed(sql.CommandStatementQuery(query=text)))


def update(text: str) -> Any:
    return flight.FlightDescriptor.for_command(sealed(sql.CommandStatementUpdate(query=text)))


def got(client: Any, text: str) -> None:
    client.do_get(client.get_flight_info(statement(text)).endpoints[0].ticket).read_all()


def put(client: Any, descriptor: Any) -> None:
    writer, reader = client.do_put(descriptor, NUMBER)
    writer.write_table(pa.table({"n": [1]}, NUMBER))
    writer.done_writing()
    reader.read()
    writer.close()


def exchanged(client: Any, data: bytes) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(data))
    with writer:
        writer.done_writing()
        reader.read_all()


def acted(client: Any, action: str, body: bytes) -> None:
    list(client.do_action((action, body)))


def told(call: Callable[[], object]) -> str:
    """What a call says when it fails, which must be nothing of ours."""
    with pytest.raises((pa.ArrowException, flight.FlightError, OSError)) as caught:
        call()
    text = str(caught.value)
    assert "Traceback" not in text and ".py" not in text and "secret" not in text, text
    return text


@pytest.mark.parametrize("data", GARBAGE)
def test_bytes_that_mean_nothing_are_refused_by_every_call(client: Any, data: bytes) -> None:
    descriptor = flight.FlightDescriptor.for_command(data)
    calls: list[Callable[[], object]] = [
        lambda: client.get_flight_info(descriptor),
        lambda: client.get_schema(descriptor),
        lambda: client.do_get(flight.Ticket(data)).read_all(),
        lambda: put(client, descriptor),
        lambda: acted(client, "CreatePreparedStatement", data),
        lambda: acted(client, "ClosePreparedStatement", data),
        lambda: acted(client, "CancelQuery", data),
    ]
    for call in calls:
        assert "[08P01]" in (text := told(call)) or "[0A000]" in text
    assert "[08P01]" in told(lambda: acted(client, "CancelFlightInfo", data))
    assert "[0A000]" in told(lambda: exchanged(client, data))


def test_a_statement_that_is_refused_has_its_code_in_every_call(client: Any) -> None:
    query = sealed(sql.ActionCreatePreparedStatementRequest(query="SELEC"))
    for call in (
        lambda: client.get_flight_info(statement("SELEC")),
        lambda: client.get_schema(statement("SELEC")),
        lambda: put(client, update("SELEC")),
        lambda: acted(client, "CreatePreparedStatement", query),
    ):
        assert "[42601] there is no answer to SELEC (ask another)" in told(call)


@pytest.mark.parametrize("text", ["at once", "in the middle", "of another kind"])
def test_what_nobody_foresaw_says_no_more_than_its_kind(client: Any, text: str) -> None:
    assert "see the server's log" in told(lambda: got(client, text))


def test_a_refusal_in_the_middle_of_the_rows_has_its_code(client: Any) -> None:
    assert "[22012] division by zero" in told(lambda: got(client, "refused"))


def test_what_has_no_rows_fails_where_it_is_carried_out(client: Any) -> None:
    assert "see the server's log" in told(lambda: client.get_flight_info(statement("no rows")))
    assert "see the server's log" in told(lambda: put(client, update("no rows")))


def test_other_kinds_of_descriptors_and_actions_are_refused(client: Any) -> None:
    path = flight.FlightDescriptor.for_path("people", "1")
    for call in (
        lambda: client.get_flight_info(path),
        lambda: client.get_schema(path),
        lambda: put(client, path),
        lambda: list(client.list_flights(b"x")),
        lambda: acted(client, "Nothing", b""),
    ):
        assert "[0A000]" in told(call)
    assert "see the server's log" in told(lambda: acted(client, "penstock.join", b""))
    assert "the master is gone" in told(lambda: acted(client, "penstock.join", b"x"))
    assert len(list(client.list_actions())) == 4


@pytest.mark.parametrize("header", [b"Basic %%%", b"Basic /w==", b"Bearer x", b"Negotiate x", b""])
def test_whoever_does_not_come_in_is_told_so_by_every_call(client: Any, users: Users, header: bytes) -> None:
    users.add("ann", "a long password")
    options = flight.FlightCallOptions(headers=[(b"authorization", header)] if header else [])
    for call in (
        lambda: client.get_flight_info(statement("refused"), options),
        lambda: client.get_schema(statement("refused"), options),
        lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
        lambda: list(client.list_flights(b"", options)),
        lambda: list(client.do_action(("CancelQuery", b""), options)),
    ):
        assert "[28" in (text := told(call)) and "Unauthenticated" in text


@pytest.mark.parametrize("letter", ["x", "ü", "水"])
def test_a_long_message_is_cut_and_keeps_its_code(client: Any, letter: str) -> None:
    # What does not fit into gRPC's headers comes without a code, or as an error about headers.
    with pytest.raises(flight.FlightServerError, match=r"\[42601\].*\(ask another\)") as caught:
        client.get_flight_info(statement(letter * 20_000))
    assert b'"sqlstate": "42601"' in caught.value.extra_info
    assert "[42601]" in told(lambda: client.get_schema(statement(letter * 20_000)))


def test_adbc_tells_the_same(server: FlightSqlServer) -> None:
    def run(text: str, values: Sequence[object] | None = None) -> None:
        with (
            adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(text, values)
            cursor.fetchall()

    for text, values, said in (
        ("SELEC", None, "[42601]"),
        ("refused", None, "[22012]"),
        ("in the middle", None, "see the server's log"),
        ("with one", [1], "see the server's log"),
        ("with one", [1, 2], "[08P01]"),
        ("no rows", None, "see the server's log"),
    ):
        with pytest.raises((adbc_driver_manager.Error, OSError, pa.ArrowException)) as caught:
            run(text, values)
        told_ = str(caught.value)
        assert said in told_ and "Traceback" not in told_ and ".py" not in told_ and "secret" not in told_


def test_guessing_a_password_keeps_its_owner_out_at_the_guessers_address_alone(
    server: FlightSqlServer, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.add("ann", "right")
    where = f"grpc://127.0.0.1:{server.port}"

    def login(password: str) -> Any:
        client = flight.connect(where)
        header = client.authenticate_basic_token("ann", password)
        options = flight.FlightCallOptions(headers=[header])
        info = flight.FlightDescriptor.for_command(sealed(sql.CommandGetCatalogs()))
        return client.get_flight_info(info, options)

    addresses = iter(["10.0.0.1"] * 20 + ["10.0.0.2"] * 2)
    monkeypatch.setattr("penstock.server.flight.identity.address_of", lambda peer: next(addresses))
    said = []
    for _ in range(25):
        with pytest.raises(flight.FlightError) as caught:
            login("wrong")
        said.append(str(caught.value))
    assert "password authentication failed" in said[0]
    assert "too many failed logins" in said[-1]
    assert login("right").schema.names == ["catalog_name"]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", "127.0.0.1"),
        ("ipv6:[::1]:5000", "::1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("unix:", ""),
    ],
)
def test_the_address_of_a_caller(peer: str, address: str) -> None:
    assert address_of(peer) == address
