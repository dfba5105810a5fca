"""The Flight port: SQL for clients, and the way in for workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from penstock.config.tls import Tls
from penstock.errors import SqlError, UsageError
from penstock.server.access.access import Access, is_loopback
from penstock.server.base import Engine, User
from penstock.server.flight import flightsql_pb2 as sql
from penstock.server.flight import metadata
from penstock.server.flight.faults import tells, tells_untraced, told
from penstock.server.flight.identity import MIDDLEWARE, Identities, NoHandshake, is_open, user_of
from penstock.server.flight.messages import expect, opened, sealed
from penstock.server.flight.open_statements import OpenStatement, OpenStatements, described, fitted
from penstock.server.flight.parameters import parameter_schema, received, rows_of

if TYPE_CHECKING:
    from google.protobuf.message import Message

WorkerActions = Callable[[str, bytes], bytes]
"""What answers workers: from action and body to the answer's body."""

_LONGEST_NUMBER = 11
"""Where a number must have ended that begins a message: it has ten bytes at most."""
_LARGEST_FROM_WORKERS = 64 << 10
_ACTIONS = [
    ("CreatePreparedStatement", "Prepare a statement."),
    ("ClosePreparedStatement", "Close a prepared statement."),
    ("CancelFlightInfo", "Cancel a query that runs."),
    ("CancelQuery", "Cancel a query that runs, as older clients ask for it."),
]


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from its construction on until `stop`. Port 0 takes a free one, which ``port`` tells.

    ``certificates``: every caller must show a certificate of our CA. ``statements`` are those of a server
    whose place it takes.
    """

    def __init__(
        self,
        engine: Engine,
        access: Access,
        *,
        host: str,
        port: int,
        tls: Tls | None = None,
        certificates: bool = False,
        worker_actions: WorkerActions | None = None,
        statements: OpenStatements | None = None,
    ) -> None:
        self._engine = engine
        self._statements = statements or OpenStatements(engine)
        self._worker_actions = worker_actions
        # Without TLS, passwords and the secret of Spark's ports would cross the network for all to read.
        self._workers_welcome = tls is not None or is_loopback(host)
        options: dict[str, Any] = {}
        if tls is not None:
            ca, cert, key = tls.credentials()
            options["tls_certificates"] = [(cert, key)]
            if certificates:
                options |= {"verify_client": True, "root_certificates": ca}
        scheme = "grpc+tls" if tls is not None else "grpc"
        try:
            super().__init__(
                f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}",
                auth_handler=NoHandshake(),
                middleware={MIDDLEWARE: Identities(access)},
                **options,
            )
        except (pa.ArrowException, OSError) as error:
            raise UsageError(
                f"cannot listen on {host}:{port}",
                hint="is another server there? Choose another cluster.rpc_port, or 0 for any",
            ) from error
        self._thread = threading.Thread(target=self.serve, name="penstock-flight", daemon=True)
        self._thread.start()

    @property
    def statements(self) -> OpenStatements:
        """What clients have prepared here."""
        return self._statements

    def stop(self) -> None:
        """End what runs, and listen no more."""
        self._statements.stop()
        self.shutdown()
        self._thread.join(10)

    # queries

    @tells
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        user, command = user_of(context), opened(descriptor.command or b"")
        if isinstance(command, sql.CommandStatementQuery):
            handle, order = self._statements.prepare(command.query, user, context.peer(), kept=False)
            return self._ordered(handle, order, descriptor, sql.TicketStatementQuery(statement_handle=handle))
        if isinstance(command, sql.CommandPreparedStatementQuery):
            handle = command.prepared_statement_handle
            return self._ordered(handle, self._statements.find(handle, user), descriptor, command)
        return _info(self._about(command, user).schema, descriptor, command)

    def _ordered(self, handle: bytes, order: OpenStatement, descriptor: Any, ticket: Message) -> Any:
        """Where the rows are. What has none is done here: clients do not wait for rows that never come."""
        if order.prepared.columns is None:
            self._carry_out(handle, order)
            return _info(described(order.prepared), descriptor)
        return _info(described(order.prepared), descriptor, ticket)

    @tells_untraced
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        user, command = user_of(context), opened(descriptor.command or b"")
        if isinstance(command, sql.CommandStatementQuery):
            handle, order = self._statements.prepare(command.query, user, context.peer(), kept=False)
            self._statements.close(handle, user)
            return flight.SchemaResult(described(order.prepared))
        if isinstance(command, sql.CommandPreparedStatementQuery):
            order = self._statements.find(command.prepared_statement_handle, user)
            return flight.SchemaResult(described(order.prepared))
        return flight.SchemaResult(self._about(command, user).schema)

    @tells
    def do_get(self, context: Any, ticket: Any) -> Any:
        user, command = user_of(context), opened(ticket.ticket)
        if isinstance(command, sql.TicketStatementQuery):
            handle = command.statement_handle
        elif isinstance(command, sql.CommandPreparedStatementQuery):
            handle = command.prepared_statement_handle
        else:
            return flight.RecordBatchStream(self._about(command, user))
        order = self._statements.find(handle, user)
        schema = described(order.prepared)
        batches = fitted(self._statements.run(handle, order), schema)
        return flight.GeneratorStream(schema, _watched(batches, context))

    @tells
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        user, command = user_of(context), opened(descriptor.command or b"")
        if isinstance(command, sql.CommandPreparedStatementQuery):
            order = self._statements.find(command.prepared_statement_handle, user)
            order.rows = rows_of(received(reader), order.prepared)
            result: Message = sql.DoPutPreparedStatementResult(
                prepared_statement_handle=command.prepared_statement_handle
            )
        elif isinstance(command, sql.CommandStatementUpdate):
            handle, order = self._statements.prepare(command.query, user, context.peer(), kept=False)
            result = sql.DoPutUpdateResult(record_count=self._carry_out(handle, order))
        elif isinstance(command, sql.CommandPreparedStatementUpdate):
            order = self._statements.find(command.prepared_statement_handle, user)
            bound = received(reader)
            if bound.num_columns:
                order.rows = rows_of(bound, order.prepared)
            count = self._carry_out(command.prepared_statement_handle, order)
            result = sql.DoPutUpdateResult(record_count=count)
        else:
            raise SqlError("rows cannot be written here: pipelines and streams do that", sqlstate="0A000")
        writer.write(pa.py_buffer(result.SerializeToString()))

    # What a server need not have is refused by us, since Flight's own refusal is a trace.

    @tells
    def list_flights(self, context: Any, criteria: Any) -> Iterator[Any]:  # noqa: ARG002
        user_of(context)
        raise SqlError("flights are not listed here", sqlstate="0A000", hint="ask for tables with Flight SQL")

    @tells
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        user_of(context)
        raise SqlError("nothing is exchanged here", sqlstate="0A000", hint="prepare a statement and run it")

    def _carry_out(self, handle: bytes, order: OpenStatement) -> int:
        """Run a statement that is not asked for its rows; -1: nobody knows how many it touched."""
        for _ in self._statements.run(handle, order):
            pass
        return -1

    def _about(self, command: Message, user: User) -> pa.Table:
        found = metadata.answer(command, lambda: self._engine.tables(user))
        if found is None:
            raise SqlError(f"{command.DESCRIPTOR.name} cannot be asked for here", sqlstate="0A000")
        return found

    # actions

    def list_actions(self, context: Any) -> Sequence[Any]:  # noqa: ARG002
        return [flight.ActionType(name, text) for name, text in _ACTIONS]

    @tells
    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        # What strangers send is in memory once: no copy of it is made before it is known to be wanted.
        if is_open(action.type):
            if action.body.size > _LARGEST_FROM_WORKERS:
                raise SqlError("no worker has so much to say", sqlstate="54000")
            answered = self._worker(action.type, action.body.to_pybytes())
            return iter([flight.Result(pa.py_buffer(answered))])
        user = user_of(context)
        answer = self._act(user, action.type, action.body.to_pybytes(), context.peer())
        return iter([] if answer is None else [flight.Result(pa.py_buffer(answer))])

    def _worker(self, action: str, body: bytes) -> bytes:
        if self._worker_actions is None:
            raise SqlError("this server takes no workers: it is no coordinator", sqlstate="0A000")
        if not self._workers_welcome:
            raise SqlError("workers come in over TLS only", sqlstate="28000", hint="configure [tls]")
        return self._worker_actions(action, body)

    def _act(self, user: User, action: str, body: bytes, peer: str) -> bytes | None:
        if action == "CreatePreparedStatement":
            asked = expect(body, sql.ActionCreatePreparedStatementRequest)
            handle, order = self._statements.prepare(asked.query, user, peer, kept=True)
            return sealed(
                sql.ActionCreatePreparedStatementResult(
                    prepared_statement_handle=handle,
                    dataset_schema=described(order.prepared).serialize().to_pybytes(),
                    parameter_schema=parameter_schema(order.prepared).serialize().to_pybytes(),
                )
            )
        if action == "ClosePreparedStatement":
            closing = expect(body, sql.ActionClosePreparedStatementRequest)
            self._statements.close(closing.prepared_statement_handle, user)
            return None
        if action == "CancelFlightInfo":
            # The request has the FlightInfo as its first field, the answer its status: 1 is cancelled,
            # 3 not cancellable.
            return bytes([0x08, 1 if self._cancel(_first_field(body), user) else 3])
        if action == "CancelQuery":
            done = self._cancel(expect(body, sql.ActionCancelQueryRequest).info, user)
            kinds = sql.ActionCancelQueryResult
            result = kinds.CANCEL_RESULT_CANCELLED if done else kinds.CANCEL_RESULT_NOT_CANCELLABLE
            return sealed(kinds(result=result))
        raise SqlError(f"there is no action {action[:100]}", sqlstate="0A000")

    def _cancel(self, info: bytes, user: User) -> bool:
        try:
            found = flight.FlightInfo.deserialize(info)
        except (pa.ArrowException, ValueError):
            raise SqlError("what should be cancelled is no FlightInfo", sqlstate="08P01") from None
        done = False
        for endpoint in found.endpoints:
            command = opened(endpoint.ticket.ticket)
            if isinstance(command, sql.TicketStatementQuery):
                done |= self._statements.cancel(command.statement_handle, user)
            elif isinstance(command, sql.CommandPreparedStatementQuery):
                done |= self._statements.cancel(command.prepared_statement_handle, user)
        return done


def _info(schema: pa.Schema, descriptor: Any, *tickets: Message) -> Any:
    endpoints = [flight.FlightEndpoint(flight.Ticket(sealed(ticket)), []) for ticket in tickets]
    return flight.FlightInfo(schema, descriptor, endpoints, -1, -1)


def _watched(batches: Iterator[pa.RecordBatch], context: Any) -> Iterator[pa.RecordBatch]:
    """The batches, with errors that Flight knows, until the client goes away."""
    try:
        with told():
            for batch in batches:
                if context.is_cancelled():
                    return
                yield batch
    finally:
        batches.close()  # type: ignore[attr-defined]


def _first_field(body: bytes) -> bytes:
    """The bytes of field 1 of a message that holds little else."""
    if not body or body[0] != 0x0A:
        raise SqlError("the request to cancel cannot be read", sqlstate="08P01")
    length, shift, at = 0, 0, 1
    while at < min(len(body), _LONGEST_NUMBER):
        length |= (body[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not body[at - 1] & 0x80:
            break
    return body[at : at + length]
