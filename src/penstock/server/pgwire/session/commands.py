"""Statements of a session: the engine's are run, those about the session itself are answered here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.server.pgwire.session.arguments import evaluate, type_oid
from penstock.server.pgwire.session.block_commands import HANDLERS, Handler, shown
from penstock.server.pgwire.session.context import SessionContext
from penstock.server.pgwire.session.names import BoundStatement
from penstock.server.pgwire.session.portals import Portal, done, fetched, moved
from penstock.server.pgwire.session.running import run
from penstock.server.pgwire.session.statements import ParsedStatement, placed, understand
from penstock.sql.statements import commands as sql
from penstock.sql.statements.classify import StatementText, classify
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa


def open_portal(
    session: SessionContext, statement: ParsedStatement, values: Sequence[object], formats: Sequence[int]
) -> Portal:
    """Begin to run a statement; its rows come when they are taken from the portal."""
    session.transaction.allow(statement.command)
    session.transaction.enter()
    if statement.prepared is not None:
        return run(session, statement.prepared, values, formats)
    if isinstance(statement.command, sql.Declare):
        return _declare(session, statement, statement.command, values)
    return _HANDLERS[type(statement.command)](session, statement.command, formats)


def described(session: SessionContext, statement: ParsedStatement) -> tuple[Column, ...] | None:
    """What its rows will have, as far as can be told now; None if there are none."""
    command = statement.command
    if statement.prepared is not None:
        return statement.prepared.columns
    if isinstance(command, sql.Show):
        return shown(command)
    if isinstance(command, sql.ExecuteStatement) and (named := session.statements.get(command.name)):
        return described(session, named)
    if isinstance(command, sql.Fetch) and not command.move and (cursor := session.portals.get(command.name)):
        return described(session, cursor.statement)
    return None


# cursors


def _declare(
    session: SessionContext, statement: ParsedStatement, command: sql.Declare, values: Sequence[object]
) -> Portal:
    if not command.hold and not session.transaction.several:
        session.transaction.require("DECLARE CURSOR")
    query = statement.cursor
    if query is None or query.columns is None:
        raise SqlError("DECLARE CURSOR needs a query", sqlstate="42601")
    formats = (1,) if command.binary else ()
    inner = ParsedStatement(command.query, 0, sql.QueryStatement(command.query), query)
    bound = BoundStatement(inner, values, formats, hold=command.hold)
    session.portals.bind(command.name, bound)
    bound.portal = run(session, query, values, formats, relay=False)
    return done(command.tag)


def _fetch(session: SessionContext, command: sql.Fetch, formats: Sequence[int]) -> Portal:
    bound = session.portals.find(command.name, "cursor")
    if bound.portal is None:
        bound.portal = open_portal(session, bound.statement, bound.values, bound.formats)
    portal = bound.portal
    if command.move:
        with session.interrupts.during(portal.execution):
            return done(f"MOVE {moved(portal.rows, command)}")
    rows = _watched(session, portal, command)
    same = formats or portal.formats
    return Portal(portal.columns, command.tag, formats=same, batches=rows)


def _watched(session: SessionContext, portal: Portal, command: sql.Fetch) -> Iterator[pa.RecordBatch]:
    with session.interrupts.during(portal.execution):
        yield from fetched(portal.rows, command)


def _close_cursor(session: SessionContext, command: sql.CloseCursor, _formats: Sequence[int]) -> Portal:
    if command.name is None:
        session.portals.clear()
    else:
        session.portals.find(command.name, "cursor")
        session.portals.unbind(command.name)
    return done(command.tag)


# prepared statements


def _prepare(session: SessionContext, command: sql.PrepareStatement, _formats: Sequence[int]) -> Portal:
    given = [type_oid(each) for each in command.types]
    inner = StatementText(command.query, 0)
    with placed(command.offset):
        statement = understand(inner, classify(command.query), session.connection, given)
    session.statements.keep(command.name, statement, by_sql=True)
    return done(command.tag)


def _execute(session: SessionContext, command: sql.ExecuteStatement, formats: Sequence[int]) -> Portal:
    statement = session.statements.find(command.name)
    wanted = statement.parameters
    if len(wanted) != len(command.arguments):
        raise SqlError(
            f'wrong number of parameters for prepared statement "{command.name}"',
            left=f"Expected {len(wanted)} parameters but got {len(command.arguments)}.",
            sqlstate="42601",
        )
    values = [
        evaluate(expression, oid, session.connection)
        for expression, oid in zip(command.arguments, wanted, strict=True)
    ]
    return open_portal(session, statement, values, formats)


def _deallocate(session: SessionContext, command: sql.Deallocate, _formats: Sequence[int]) -> Portal:
    if command.name is None:
        session.statements.clear()
    else:
        session.statements.find(command.name)
        session.statements.forget(command.name)
    return done(command.tag)


def _discard(session: SessionContext, command: sql.Discard, _formats: Sequence[int]) -> Portal:
    if command.what == "ALL":
        session.transaction.forbid("DISCARD ALL")
        session.portals.clear()
        session.statements.clear()
        session.settings.reset()
    return done(command.tag)


def _copy_in(_session: SessionContext, command: sql.CopyIn, _formats: Sequence[int]) -> Portal:
    raise SqlError(
        f"cannot copy into {'.'.join(command.table)}: COPY FROM is not supported",
        sqlstate="0A000",
        hint="Pipelines write tables; CREATE TABLE ... USING ... LOCATION makes a table of files.",
    )


def _accepted(
    _session: SessionContext, command: sql.Listen | sql.Unlisten, _formats: Sequence[int]
) -> Portal:
    """Nobody ever notifies, so there is nothing to do: many clients listen as a matter of course."""
    return done(command.tag)


def _notify(_session: SessionContext, _command: sql.Notify, _formats: Sequence[int]) -> Portal:
    raise SqlError("NOTIFY is not supported", sqlstate="0A000")


_HANDLERS: Mapping[type[object], Handler] = {
    **HANDLERS,
    sql.Fetch: _fetch,
    sql.CloseCursor: _close_cursor,
    sql.PrepareStatement: _prepare,
    sql.ExecuteStatement: _execute,
    sql.Deallocate: _deallocate,
    sql.Discard: _discard,
    sql.CopyIn: _copy_in,
    sql.Listen: _accepted,
    sql.Unlisten: _accepted,
    sql.Notify: _notify,
}
