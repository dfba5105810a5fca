"""What each message of a client does: the simple and the extended query protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import SqlError
from penstock.server.pgwire.decode.values import decode
from penstock.server.pgwire.protocol import messages, requests
from penstock.server.pgwire.session.commands import described, open_portal
from penstock.server.pgwire.session.context import SessionContext
from penstock.server.pgwire.session.names import BoundStatement
from penstock.server.pgwire.session.running import copy, send
from penstock.server.pgwire.session.statements import ParsedStatement, pieces, placed, understand
from penstock.sql.statements import commands as sql

_VALUE = 2
"""What a value takes in memory, at most so many times what it takes in a message."""
_EMPTY = ParsedStatement("", 0, sql.Empty())


def act(session: SessionContext, message: requests.Message) -> None:
    """Answer a message, but for the ReadyForQuery at the end."""
    action = _ACTIONS.get(type(message))
    if action is None:
        raise requests.ProtocolError("this message cannot come here", fatal=True)
    action(session, message)


# simple


def _query(session: SessionContext, message: requests.Query) -> None:
    session.portals.unbind("")
    session.statements.forget("")
    found = pieces(message.sql)
    session.transaction.several = len(found) > 1
    for piece, command in found:
        session.transaction.allow(command)
        statement = understand(piece, command, session.connection)
        with placed(piece.offset):
            _answer(session, statement)
    if not found:
        session.replies.put(messages.EMPTY_QUERY_RESPONSE)


def _answer(session: SessionContext, statement: ParsedStatement) -> None:
    if isinstance(statement.command, sql.CopyOut):
        copy(session, statement.command)
        return
    if statement.parameters:
        raise SqlError("there is no parameter $1", sqlstate="42P02")
    portal = open_portal(session, statement, (), ())
    try:
        if portal.columns is not None:
            session.replies.put(messages.row_description(portal.columns, portal.formats))
        send(session, portal, None)
    finally:
        portal.close()


# extended


def _parse(session: SessionContext, message: requests.Parse) -> None:
    found = pieces(message.sql)
    if len(found) > 1:
        raise SqlError("cannot insert multiple commands into a prepared statement", sqlstate="42601")
    statement = _EMPTY
    if found:
        piece, command = found[0]
        session.transaction.allow(command)
        session.transaction.enter()
        statement = understand(piece, command, session.connection, message.types)
    session.statements.keep(message.name, statement)
    session.replies.put(messages.PARSE_COMPLETE)


def _bind(session: SessionContext, message: requests.Bind) -> None:
    statement = session.statements.find(message.statement)
    if not isinstance(statement.command, sql.Empty):
        session.transaction.allow(statement.command)
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
    columns = described(session, statement)
    formats = message.result_formats
    if columns is not None:
        formats = tuple(messages.spread(formats, len(columns)))
    session.transaction.enter()
    size = _VALUE * sum(len(data or b"") for data in message.parameters)
    session.portals.bind(message.portal, BoundStatement(statement, values, formats, size=size))
    session.replies.put(messages.BIND_COMPLETE)


def _describe(session: SessionContext, message: requests.Describe) -> None:
    formats: Sequence[int] = ()
    if message.kind == "S":
        statement = session.statements.find(message.name)
        session.replies.put(messages.parameter_description(statement.parameters))
    else:
        bound = session.portals.find(message.name)
        statement, formats = bound.statement, bound.formats
    columns = described(session, statement)
    told = messages.NO_DATA if columns is None else messages.row_description(columns, formats)
    session.replies.put(told)


def _execute(session: SessionContext, message: requests.Execute) -> None:
    bound = session.portals.find(message.portal)
    command = bound.statement.command
    if isinstance(command, sql.Empty):
        session.replies.put(messages.EMPTY_QUERY_RESPONSE)
        return
    with placed(bound.statement.offset):
        if isinstance(command, sql.CopyOut):
            session.transaction.allow(command)
            session.transaction.enter()
            copy(session, command)
        else:
            _send(session, bound, message)


def _send(session: SessionContext, bound: BoundStatement, message: requests.Execute) -> None:
    if bound.portal is None:
        bound.portal = open_portal(session, bound.statement, bound.values, bound.formats)
    elif bound.portal.columns is None:
        raise SqlError(f'portal "{message.portal}" cannot be run', sqlstate="55000")
    try:
        send(session, bound.portal, message.limit or None)
    except BaseException:
        # In a transaction it would hold its place among the running until the end of that.
        bound.close()
        raise


def _close(session: SessionContext, message: requests.Close) -> None:
    if message.kind == "S":
        session.statements.forget(message.name)
    else:
        session.portals.unbind(message.name)
    session.replies.put(messages.CLOSE_COMPLETE)


def _function_call(_session: SessionContext, _message: requests.FunctionCall) -> None:
    raise SqlError("function calls by oid are not supported", sqlstate="0A000", hint="Use SELECT.")


def _nothing(_session: SessionContext, _message: requests.Message) -> None:
    pass


_ACTIONS: Mapping[type[object], Callable[[SessionContext, Any], None]] = {
    requests.Query: _query,
    requests.Parse: _parse,
    requests.Bind: _bind,
    requests.Describe: _describe,
    requests.Execute: _execute,
    requests.Close: _close,
    requests.Flush: lambda session, _: session.replies.flush(),
    requests.Sync: _nothing,
    requests.FunctionCall: _function_call,
    # What is left of a COPY that was refused is not answered.
    requests.CopyData: _nothing,
    requests.CopyDone: _nothing,
    requests.CopyFail: _nothing,
}
