"""What each message of a client does: the simple and the extended query protocol."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import SqlError
from penstock.server.base import Connection
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.decode.values import decode
from penstock.server.pgwire.protocol import messages, requests
from penstock.server.pgwire.protocol.channel import Channel
from penstock.server.pgwire.session.commands import BoundStatement, Commands
from penstock.server.pgwire.session.copying import CopyEncoder
from penstock.server.pgwire.session.portals import Portal
from penstock.server.pgwire.session.statements import ParsedStatement, pieces, placed, understand
from penstock.sql.statements import commands as sql

_VALUE = 2
"""What a value takes in memory, at most so many times what it takes in a message."""
_EMPTY = ParsedStatement("", 0, sql.Empty())


class PgSession(Commands):
    """A whole session."""

    def __init__(self, connection: Connection, channel: Channel, purse: Purse | None = None) -> None:
        super().__init__(connection, channel, purse)
        self._actions = {
            requests.Query: self._query,
            requests.Parse: self._parse,
            requests.Bind: self._bind,
            requests.Describe: self._describe,
            requests.Execute: self._run_portal,
            requests.Close: self._close_named,
            requests.Flush: lambda _: self.flush(),
            requests.Sync: lambda _: self.ready(),
            requests.FunctionCall: self._function_call,
            # What is left of a COPY that was refused is not answered.
            requests.CopyData: lambda _: None,
            requests.CopyDone: lambda _: None,
            requests.CopyFail: lambda _: None,
        }

    # simple

    def _query(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Query)
        self.unbind("")
        self.forget("")
        found = pieces(message.sql)
        self.transaction.several = len(found) > 1
        for piece, command in found:
            self.allow(ParsedStatement(piece.text, piece.offset, command))
            statement = understand(piece, command, self.connection)
            with placed(piece.offset):
                self._answer(statement)
        if not found:
            self.put(messages.EMPTY_QUERY_RESPONSE)
        self.ready()

    def _answer(self, statement: ParsedStatement) -> None:
        if isinstance(statement.command, sql.CopyOut):
            self._copy(statement.command)
            return
        if statement.parameters:
            raise SqlError("there is no parameter $1", sqlstate="42P02")
        portal = self.open(statement, (), ())
        try:
            if portal.columns is not None:
                self.put(messages.row_description(portal.columns, portal.formats))
            self._stream(portal, None)
        finally:
            portal.close()

    # extended

    def _parse(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Parse)
        found = pieces(message.sql)
        if len(found) > 1:
            raise SqlError("cannot insert multiple commands into a prepared statement", sqlstate="42601")
        statement = _EMPTY
        if found:
            piece, command = found[0]
            self.allow(ParsedStatement(piece.text, piece.offset, command))
            self.transaction.enter()
            statement = understand(piece, command, self.connection, message.types)
        self.keep(message.name, statement)
        self.put(messages.PARSE_COMPLETE)

    def _bind(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Bind)
        statement = self.known(message.statement)
        if not isinstance(statement.command, sql.Empty):
            self.allow(statement)
        wanted = statement.parameters
        if len(message.parameters) != len(wanted):
            raise requests.ProtocolError(
                f"bind message supplies {len(message.parameters)} parameters, but prepared statement "
                f'"{message.statement}" requires {len(wanted)}'
            )
        values = [
            None if data is None else decode(oid, message.format(number), data)
            for number, (oid, data) in enumerate(zip(wanted, message.parameters, strict=True))
        ]
        columns = self.columns(statement)
        formats = message.result_formats
        if columns is not None:
            formats = tuple(messages.spread(formats, len(columns)))
        self.transaction.enter()
        size = _VALUE * sum(len(data or b"") for data in message.parameters)
        self.bind(message.portal, BoundStatement(statement, values, formats, size))
        self.put(messages.BIND_COMPLETE)

    def _describe(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Describe)
        formats: Sequence[int] = ()
        if message.kind == "S":
            statement = self.known(message.name)
            self.put(messages.parameter_description(statement.parameters))
        else:
            bound = self._portal(message.name)
            statement, formats = bound.statement, bound.formats
        columns = self.columns(statement)
        described = messages.NO_DATA if columns is None else messages.row_description(columns, formats)
        self.put(described)

    def _run_portal(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Execute)
        bound = self._portal(message.portal)
        statement = bound.statement
        if isinstance(statement.command, sql.Empty):
            self.put(messages.EMPTY_QUERY_RESPONSE)
            return
        with placed(statement.offset):
            if isinstance(statement.command, sql.CopyOut):
                self.allow(statement)
                self.transaction.enter()
                self._copy(statement.command)
                return
            if bound.portal is None:
                bound.portal = self.open(statement, bound.values, bound.formats)
            elif bound.portal.columns is None:
                raise SqlError(f'portal "{message.portal}" cannot be run', sqlstate="55000")
            try:
                self._stream(bound.portal, message.limit or None)
            except BaseException:
                # In a transaction it would hold its place among the running until the end of that.
                bound.close()
                raise

    def _close_named(self, message: requests.Message) -> None:
        assert isinstance(message, requests.Close)
        if message.kind == "S":
            self.forget(message.name)
        else:
            self.unbind(message.name)
        self.put(messages.CLOSE_COMPLETE)

    def _portal(self, name: str) -> BoundStatement:
        bound = self.portals.get(name)
        if bound is None:
            raise SqlError(f'portal "{name}" does not exist', sqlstate="34000")
        return bound

    def _function_call(self, _message: requests.Message) -> None:
        raise SqlError("function calls by oid are not supported", sqlstate="0A000", hint="Use SELECT.")

    # rows

    def _stream(self, portal: Portal, limit: int | None) -> None:
        """Send rows, up to the limit, and what comes after them."""
        count = 0
        with self.interruptible(portal.execution):
            for rows, buffers in portal.encoded(limit, self.settings):
                count += rows
                self.put_all(buffers)
        if limit is not None and count == limit:
            self.put(messages.PORTAL_SUSPENDED)
            return
        portal.close()
        self.put(messages.command_complete(portal.complete(count)))

    def _copy(self, command: sql.CopyOut) -> None:
        """COPY (query) TO STDOUT."""
        with placed(command.offset):
            prepared = self.connection.prepare(command.query)
        if prepared.columns is None:
            raise SqlError("COPY needs a query that gives rows", sqlstate="0A000")
        portal = self.run(prepared, (), (), relay=False)
        count = 0
        try:
            encoder = CopyEncoder(prepared.columns, command.options, self.settings)
            binary = command.options.format == "binary"
            with self.interruptible(portal.execution):
                self.put(messages.copy_out_response(binary, len(prepared.columns)))
                self.put(encoder.begin())
                for part in portal.rows.take():
                    count += len(part)
                    self.put_all(encoder.encode(part))
                self.put(encoder.end())
        finally:
            portal.close()
        self.put(messages.COPY_DONE)
        self.put(messages.command_complete(f"COPY {count}"))
