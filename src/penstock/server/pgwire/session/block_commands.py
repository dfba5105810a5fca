"""Statements about transactions and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.server.pgwire.session.context import SessionContext
from penstock.server.pgwire.session.portals import Portal, done
from penstock.server.pgwire.session.transactions import Warned
from penstock.sql.statements import commands as sql
from penstock.types import postgres as types
from penstock.types.postgres import Column

Handler = Callable[[SessionContext, Any, Sequence[int]], Portal]
"""Carries out a command; it is given the formats in which the client wants rows."""


def _begin(session: SessionContext, command: sql.Begin, _formats: Sequence[int]) -> Portal:
    session.replies.warn(session.transaction.begin())
    for name, value in command.modes:
        session.settings.set(name, value, local=True)
    return done(command.tag)


def _commit(session: SessionContext, command: sql.Commit, _formats: Sequence[int]) -> Portal:
    failed, block = session.transaction.failed, session.transaction.block
    session.replies.warn(session.transaction.commit())
    _ended(session, keep=not failed, chain=command.chain and block)
    return done("ROLLBACK" if failed else command.tag)


def _rollback(session: SessionContext, command: sql.Rollback, _formats: Sequence[int]) -> Portal:
    block = session.transaction.block
    session.replies.warn(session.transaction.rollback())
    _ended(session, keep=False, chain=command.chain and block)
    return done(command.tag)


def _ended(session: SessionContext, *, keep: bool, chain: bool) -> None:
    session.portals.transaction_ended(keep=keep)
    if chain:
        session.transaction.begin()


def _savepoint(session: SessionContext, command: sql.Savepoint, _formats: Sequence[int]) -> Portal:
    session.transaction.savepoint(command.name)
    return done(command.tag)


def _release(session: SessionContext, command: sql.Release, _formats: Sequence[int]) -> Portal:
    session.transaction.release(command.name)
    return done(command.tag)


def _rollback_to(session: SessionContext, command: sql.RollbackTo, _formats: Sequence[int]) -> Portal:
    session.transaction.rollback_to(command.name)
    return done(command.tag)


def _set(session: SessionContext, command: sql.SetVariable, _formats: Sequence[int]) -> Portal:
    if command.local and not session.transaction.block and not session.transaction.several:
        session.replies.warn(Warned("SET LOCAL can only be used in transaction blocks", "25P01"))
    for name, value in ((command.name, command.value), *command.more):
        session.settings.set(name, value, local=command.local)
    return done(command.tag)


def _reset(session: SessionContext, command: sql.Reset, _formats: Sequence[int]) -> Portal:
    session.settings.reset(command.name)
    return done(command.tag)


def _show(session: SessionContext, command: sql.Show, formats: Sequence[int]) -> Portal:
    import pyarrow as pa

    columns = shown(command)
    if command.name == "all":
        values = [list(each) for each in zip(*session.settings.all(), strict=True)]
    else:
        values = [[session.settings.get(command.name)]]
    names = [column.name for column in columns]
    batch = pa.record_batch([pa.array(each, pa.string()) for each in values], names=names)
    return Portal(columns, command.tag, formats=formats, batches=iter([batch]), counted=False)


def shown(command: sql.Show) -> tuple[Column, ...]:
    """The columns that SHOW gives."""
    import pyarrow as pa

    names = ("name", "setting", "description") if command.name == "all" else (_spelled(command.name),)
    return tuple(Column(each, pa.string(), types.TEXT) for each in names)


def _spelled(name: str) -> str:
    """PostgreSQL heads the answer with its own spelling of the name."""
    from penstock.server.setting_names import ALIASES, KNOWN

    known = KNOWN.get(ALIASES.get(name.lower(), name.lower()))
    return known.name if known is not None else name


HANDLERS: Mapping[type[object], Handler] = {
    sql.Begin: _begin,
    sql.Commit: _commit,
    sql.Rollback: _rollback,
    sql.Savepoint: _savepoint,
    sql.Release: _release,
    sql.RollbackTo: _rollback_to,
    sql.SetVariable: _set,
    sql.Reset: _reset,
    sql.Show: _show,
}
