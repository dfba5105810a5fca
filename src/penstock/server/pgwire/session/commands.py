"""Statements about the session itself: transactions, settings, cursors, prepared statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError
from penstock.server.base import Connection, Prepared
from penstock.server.network.budgets import Purse
from penstock.server.pgwire.protocol.channel import Channel
from penstock.server.pgwire.session.arguments import evaluate, type_oid
from penstock.server.pgwire.session.portals import Portal, fetched, moved, no_cursor
from penstock.server.pgwire.session.session import SessionBase
from penstock.server.pgwire.session.statements import ParsedStatement, placed, session_rows, understand
from penstock.server.pgwire.session.transactions import Warned
from penstock.sql.statements import commands as sql
from penstock.sql.statements.classify import StatementText, classify
from penstock.types import postgres as types
from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.server.session_settings import SessionRows

_MOST_STATEMENTS = 10_000
_MOST_PORTALS = 1_000
_PLAN = 50
"""What a statement that was understood takes in memory, beside its text: so many times as much."""
_READS = ("SELECT", "EXPLAIN", "SHOW", "DESCRIBE", "VALUES")


def _cost(statement: ParsedStatement) -> int:
    planned = statement.prepared is not None or statement.cursor is not None
    return len(statement.text) * (_PLAN if planned else 1)


class BoundStatement:
    """A statement with its values under a name; it runs when rows are first asked for."""

    def __init__(
        self, statement: ParsedStatement, values: Sequence[object], formats: Sequence[int], size: int = 0
    ) -> None:
        """``size`` is how many bytes its values take."""
        self.size = size
        self.statement = statement
        self.values = values
        self.formats = formats
        self.portal: Portal | None = None
        self.hold = False
        self.survives = False
        """Whether a transaction in which it was declared ended well: then no later one undoes it."""

    def close(self) -> None:
        if self.portal is not None:
            self.portal.close()


class Commands(SessionBase):
    """A session with its statements, and its portals, which are also its cursors."""

    def __init__(self, connection: Connection, channel: Channel, purse: Purse | None = None) -> None:
        super().__init__(connection, channel)
        self._purse = purse or Purse()
        self.statements: dict[str, ParsedStatement] = {}
        self.portals: dict[str, BoundStatement] = {}
        self._since: dict[str, tuple[str, bool]] = {}
        """When each statement was prepared, and whether by SQL."""
        connection.settings.session_rows = self._session_rows
        self._own: dict[type[object], Callable[[Any, Sequence[int]], Portal]] = {
            sql.Begin: self._begin,
            sql.Commit: self._commit,
            sql.Rollback: self._rollback,
            sql.Savepoint: self._savepoint,
            sql.Release: self._release,
            sql.RollbackTo: self._rollback_to,
            sql.SetVariable: self._set,
            sql.Reset: self._reset,
            sql.Show: self._show,
            sql.Fetch: self._fetch,
            sql.CloseCursor: self._close_cursor,
            sql.PrepareStatement: self._prepare,
            sql.ExecuteStatement: self._execute,
            sql.Deallocate: self._deallocate,
            sql.Discard: self._discard,
            sql.CopyIn: self._copy_in,
            sql.Listen: self._accepted,
            sql.Unlisten: self._accepted,
            sql.Notify: self._notify,
        }

    # for every way to run statements

    def open(self, statement: ParsedStatement, values: Sequence[object], formats: Sequence[int]) -> Portal:
        """Begin to run a statement; its rows come when they are taken from the portal."""
        self.allow(statement)
        self.transaction.enter()
        if statement.prepared is not None:
            return self.run(statement.prepared, values, formats)
        if isinstance(statement.command, sql.Declare):
            return self._declare(statement, statement.command, values)
        return self._own[type(statement.command)](statement.command, formats)

    def run(
        self, prepared: Prepared, values: Sequence[object], formats: Sequence[int], *, relay: bool = True
    ) -> Portal:
        if not prepared.tag.startswith(_READS):
            self._writes(prepared.tag)
        with self.interruptible(None):
            execution = self.connection.execute(prepared, values)
        for notice in execution.notices:
            self.notice(notice)
        return Portal(
            prepared.columns,
            prepared.tag,
            formats=formats,
            execution=execution,
            counted=prepared.tag == "SELECT",
            relay=relay,
        )

    def allow(self, statement: ParsedStatement) -> None:
        """Raise if this may not run now."""
        if self.transaction.failed and not statement.leaves:
            raise SqlError(
                "current transaction is aborted, commands ignored until end of transaction block",
                sqlstate="25P02",
            )

    def columns(self, statement: ParsedStatement) -> tuple[Column, ...] | None:
        """What its rows will have, as far as can be told now; None if there are none."""
        command = statement.command
        if statement.prepared is not None:
            return statement.prepared.columns
        if isinstance(command, sql.Show):
            return _shown(command.name)
        if isinstance(command, sql.ExecuteStatement) and command.name in self.statements:
            return self.columns(self.statements[command.name])
        if isinstance(command, sql.Fetch) and not command.move and command.name in self.portals:
            return self.columns(self.portals[command.name].statement)
        return None

    def keep(self, name: str, statement: ParsedStatement) -> None:
        """Remember a statement under a name that is free, or under none."""
        if name and name in self.statements:
            raise SqlError(f'prepared statement "{name}" already exists', sqlstate="42P05")
        self.forget(name)
        if len(self.statements) >= _MOST_STATEMENTS:
            raise SqlError("too many prepared statements", sqlstate="53400", hint="DEALLOCATE ALL")
        self._purse.take(_cost(statement), "prepared statements", "close those that you do not need")
        self.statements[name] = statement
        self._since[name] = (datetime.now(UTC).isoformat(), False)

    def _session_rows(self) -> SessionRows:
        prepared = {name: (statement, *self._since[name]) for name, statement in self.statements.items()}
        cursors = {name: (each.statement.text, each.hold) for name, each in self.portals.items()}
        return session_rows(prepared, cursors)

    def forget(self, name: str) -> None:
        statement = self.statements.pop(name, None)
        self._since.pop(name, None)
        if statement is not None:
            self._purse.give(_cost(statement))

    def known(self, name: str) -> ParsedStatement:
        statement = self.statements.get(name)
        if statement is None:
            what = f'prepared statement "{name}" does not exist' if name else "there is no unnamed statement"
            raise SqlError(what, sqlstate="26000")
        return statement

    def bind(self, name: str, bound: BoundStatement) -> None:
        if name and name in self.portals:
            raise SqlError(f'cursor "{name}" already exists', sqlstate="42P03")
        if len(self.portals) >= _MOST_PORTALS:
            raise SqlError("too many open cursors", sqlstate="53400", hint="CLOSE ALL")
        self.unbind(name)
        self._purse.take(bound.size, "values of parameters", "close portals that you do not need")
        self.portals[name] = bound

    def unbind(self, name: str) -> None:
        bound = self.portals.pop(name, None)
        if bound is not None:
            self._purse.give(bound.size)
            bound.close()

    def ended(self, *, keep: bool) -> None:
        for name, bound in list(self.portals.items()):
            if bound.survives or (bound.hold and keep):
                bound.survives = True
            else:
                self.unbind(name)

    def _close(self) -> None:
        for name in list(self.portals):
            self.unbind(name)
        self.statements.clear()
        self._purse.close()
        super()._close()

    # transactions

    def _begin(self, command: sql.Begin, _formats: Sequence[int]) -> Portal:
        self._warn(self.transaction.begin())
        for name, value in command.modes:
            self.settings.set(name, value, local=True)
        return _done(command.tag)

    def _commit(self, command: sql.Commit, _formats: Sequence[int]) -> Portal:
        failed, block = self.transaction.failed, self.transaction.block
        self._warn(self.transaction.commit())
        self.ended(keep=not failed)
        self._chain(command.chain and block)
        return _done("ROLLBACK" if failed else command.tag)

    def _rollback(self, command: sql.Rollback, _formats: Sequence[int]) -> Portal:
        block = self.transaction.block
        self._warn(self.transaction.rollback())
        self.ended(keep=False)
        self._chain(command.chain and block)
        return _done(command.tag)

    def _chain(self, wanted: bool) -> None:
        if wanted:
            self.transaction.begin()

    def _savepoint(self, command: sql.Savepoint, _formats: Sequence[int]) -> Portal:
        self.transaction.savepoint(command.name)
        return _done(command.tag)

    def _release(self, command: sql.Release, _formats: Sequence[int]) -> Portal:
        self.transaction.release(command.name)
        return _done(command.tag)

    def _rollback_to(self, command: sql.RollbackTo, _formats: Sequence[int]) -> Portal:
        self.transaction.rollback_to(command.name)
        return _done(command.tag)

    def _writes(self, tag: str) -> None:
        settings = self.settings
        if "on" in (settings.get("transaction_read_only"), settings.get("default_transaction_read_only")):
            raise SqlError(f"cannot execute {tag} in a read-only transaction", sqlstate="25006")
        if self.transaction.block:
            self.notice(
                f"{tag} takes effect at once: ROLLBACK will not undo it", severity="WARNING", sqlstate="01000"
            )

    def _warn(self, warned: Warned | None) -> None:
        if warned is not None:
            self.notice(warned.what, sqlstate=warned.sqlstate, severity="WARNING")

    # settings

    def _set(self, command: sql.SetVariable, _formats: Sequence[int]) -> Portal:
        if command.local and not self.transaction.block and not self.transaction.several:
            self._warn(Warned("SET LOCAL can only be used in transaction blocks", "25P01"))
        for name, value in ((command.name, command.value), *command.more):
            self.settings.set(name, value, local=command.local)
        return _done(command.tag)

    def _reset(self, command: sql.Reset, _formats: Sequence[int]) -> Portal:
        self.settings.reset(command.name)
        return _done(command.tag)

    def _show(self, command: sql.Show, formats: Sequence[int]) -> Portal:
        import pyarrow as pa

        columns = _shown(command.name)
        if command.name == "all":
            values = [list(each) for each in zip(*self.settings.all(), strict=True)]
        else:
            values = [[self.settings.get(command.name)]]
        names = [column.name for column in columns]
        batch = pa.record_batch([pa.array(each, pa.string()) for each in values], names=names)
        return Portal(columns, command.tag, formats=formats, batches=iter([batch]), counted=False)

    # cursors

    def _declare(self, statement: ParsedStatement, command: sql.Declare, values: Sequence[object]) -> Portal:
        if not command.hold and not self.transaction.several:
            self.transaction.require("DECLARE CURSOR")
        query = statement.cursor
        if query is None or query.columns is None:
            raise SqlError("DECLARE CURSOR needs a query", sqlstate="42601")
        formats = (1,) if command.binary else ()
        bound = BoundStatement(
            ParsedStatement(command.query, 0, sql.QueryStatement(command.query), query), values, formats
        )
        bound.hold = command.hold
        self.bind(command.name, bound)
        bound.portal = self.run(query, values, formats, relay=False)
        return _done(command.tag)

    def _fetch(self, command: sql.Fetch, formats: Sequence[int]) -> Portal:
        bound = self.portals.get(command.name)
        if bound is None:
            raise no_cursor(command.name)
        if bound.portal is None:
            bound.portal = self.open(bound.statement, bound.values, bound.formats)
        portal = bound.portal
        if command.move:
            with self.interruptible(portal.execution):
                return _done(f"MOVE {moved(portal.rows, command)}")
        rows = self._watched(portal, command)
        same = formats or portal.formats
        return Portal(portal.columns, command.tag, formats=same, batches=rows)

    def _watched(self, portal: Portal, command: sql.Fetch) -> Iterator[pa.RecordBatch]:
        with self.interruptible(portal.execution):
            yield from fetched(portal.rows, command)

    def _close_cursor(self, command: sql.CloseCursor, _formats: Sequence[int]) -> Portal:
        if command.name is not None and command.name not in self.portals:
            raise no_cursor(command.name)
        for name in list(self.portals) if command.name is None else [command.name]:
            self.unbind(name)
        return _done(command.tag)

    # prepared statements

    def _prepare(self, command: sql.PrepareStatement, _formats: Sequence[int]) -> Portal:
        given = [type_oid(each) for each in command.types]
        self.keep(command.name, self._inner(command.query, command.offset, given))
        self._since[command.name] = (self._since[command.name][0], True)
        return _done(command.tag)

    def _execute(self, command: sql.ExecuteStatement, formats: Sequence[int]) -> Portal:
        statement = self.known(command.name)
        wanted = statement.parameters
        if len(wanted) != len(command.arguments):
            raise SqlError(
                f'wrong number of parameters for prepared statement "{command.name}"',
                left=f"Expected {len(wanted)} parameters but got {len(command.arguments)}.",
                sqlstate="42601",
            )
        values = [
            evaluate(expression, oid, self.connection)
            for expression, oid in zip(command.arguments, wanted, strict=True)
        ]
        return self.open(statement, values, formats)

    def _deallocate(self, command: sql.Deallocate, _formats: Sequence[int]) -> Portal:
        if command.name is not None:
            self.known(command.name)
        for name in list(self.statements) if command.name is None else [command.name]:
            self.forget(name)
        return _done(command.tag)

    def _inner(self, query: str, offset: int, types: Sequence[int] = ()) -> ParsedStatement:
        """The statement inside of another."""
        with placed(offset):
            return understand(StatementText(query, 0), classify(query), self.connection, types)

    # the rest

    def _discard(self, command: sql.Discard, _formats: Sequence[int]) -> Portal:
        if command.what == "ALL":
            self.transaction.forbid("DISCARD ALL")
            for name in list(self.portals):
                self.unbind(name)
            for name in list(self.statements):
                self.forget(name)
            self.settings.reset()
        return _done(command.tag)

    def _copy_in(self, command: sql.CopyIn, _formats: Sequence[int]) -> Portal:
        raise SqlError(
            f"cannot copy into {'.'.join(command.table)}: COPY FROM is not supported",
            sqlstate="0A000",
            hint="Pipelines write tables; CREATE TABLE ... USING ... LOCATION makes a table of files.",
        )

    def _accepted(self, command: sql.Listen | sql.Unlisten, _formats: Sequence[int]) -> Portal:
        """Nobody ever notifies, so there is nothing to do: many clients listen as a matter of course."""
        return _done(command.tag)

    def _notify(self, _command: sql.Notify, _formats: Sequence[int]) -> Portal:
        raise SqlError("NOTIFY is not supported", sqlstate="0A000")


def _done(tag: str) -> Portal:
    return Portal(None, tag)


def _shown(name: str) -> tuple[Column, ...]:
    import pyarrow as pa

    names = ("name", "setting", "description") if name == "all" else (_spelled(name),)
    return tuple(Column(each, pa.string(), types.TEXT) for each in names)


def _spelled(name: str) -> str:
    """PostgreSQL heads the answer with its own spelling of the name."""
    from penstock.server.setting_names import ALIASES, KNOWN

    known = KNOWN.get(ALIASES.get(name.lower(), name.lower()))
    return known.name if known is not None else name
