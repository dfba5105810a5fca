"""What one client of the Flight port can use up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.errors import SqlError
from penstock.server.access import Access, Users
from penstock.server.base import Prepared, User
from penstock.server.flight import FlightSqlServer, open_statements, parameters
from penstock.server.flight.open_statements import OpenStatements
from penstock.server.flight.parameters import received, rows_of
from penstock.server.flight.server import _first_field
from penstock.store.memory import MemoryStore
from penstock.types import postgres
from tests.server.stand_in import StandIn


@dataclass
class Chunk:
    data: pa.RecordBatch


class Endless:
    """A client that never stops sending."""

    def __init__(self, rows: int) -> None:
        self.batch = pa.record_batch({"$1": pa.array(["x" * 1_000] * rows)})
        self.schema = self.batch.schema

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            yield Chunk(self.batch)


def test_parameters_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SqlError, match="rows of parameters"):
        received(Endless(300))
    monkeypatch.setattr(parameters, "_MOST_BYTES", 100_000)
    with pytest.raises(SqlError, match="MiB") as caught:
        received(Endless(10))
    assert caught.value.sqlstate == "54000"


def test_one_user_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_statements, "_MOST", 6)
    orders, ann, bob = OpenStatements(StandIn()), User("ann"), User("bob")
    handles = [orders.prepare("SELECT * FROM people", ann, "", kept=True)[0] for _ in range(3)]
    with pytest.raises(SqlError, match="3 statements of yours") as caught:
        orders.prepare("SELECT * FROM people", ann, "", kept=True)
    assert caught.value.sqlstate == "53400"
    orders.prepare("SELECT * FROM people", bob, "", kept=True)
    orders.close(handles[0], ann)
    orders.prepare("SELECT * FROM people", ann, "", kept=True)


def test_a_length_that_never_ends_is_not_read() -> None:
    assert _first_field(b"\x0a" + b"\xff" * 1_000_000)[:1] == b"\xff"
    assert _first_field(b"\x0a\x03abc") == b"abc"


def test_what_is_not_served_is_refused_without_a_trace() -> None:
    server = FlightSqlServer(StandIn(), Access(Users(MemoryStore())), host="127.0.0.1", port=0)
    try:
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
            for ask in (lambda: list(client.list_flights()), lambda: exchanged(client)):
                with pytest.raises(flight.FlightServerError, match="0A000") as caught:
                    ask()
                assert "Traceback" not in str(caught.value)
    finally:
        server.stop()


def exchanged(client: flight.FlightClient) -> None:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"x"))
    with writer:
        reader.read_chunk()


def test_a_decimal_keeps_the_digits_that_it_came_with() -> None:
    prepared = Prepared("", "SELECT", (postgres.NUMERIC, postgres.NUMERIC))
    bound = pa.table({"a": pa.array([Decimal("1.50")]), "b": pa.array([2], pa.int32())})
    [(first, second)] = rows_of(bound, prepared)
    assert str(first) == "1.50" and second == 2
