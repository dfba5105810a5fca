"""Running what the engine has prepared, and sending the rows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import SqlError
from penstock.server.base import Prepared
from penstock.server.pgwire.protocol import messages
from penstock.server.pgwire.session.context import SessionContext
from penstock.server.pgwire.session.copying import CopyEncoder
from penstock.server.pgwire.session.portals import Portal
from penstock.server.pgwire.session.statements import placed
from penstock.sql.statements import commands as sql

_READS = ("SELECT", "EXPLAIN", "SHOW", "DESCRIBE", "VALUES")


def run(
    session: SessionContext,
    prepared: Prepared,
    values: Sequence[object],
    formats: Sequence[int],
    *,
    relay: bool = True,
) -> Portal:
    """Begin to run what the engine has prepared."""
    if not prepared.tag.startswith(_READS):
        _check_writes(session, prepared.tag)
    with session.interrupts.during(None):
        execution = session.connection.execute(prepared, values)
    for notice in execution.notices:
        session.replies.notice(notice)
    return Portal(
        prepared.columns,
        prepared.tag,
        formats=formats,
        execution=execution,
        counted=prepared.tag == "SELECT",
        relay=relay,
    )


def send(session: SessionContext, portal: Portal, limit: int | None) -> None:
    """Send rows, up to the limit, and what comes after them."""
    count = 0
    with session.interrupts.during(portal.execution):
        for rows, buffers in portal.encoded(limit, session.settings):
            count += rows
            session.replies.put_all(buffers)
    if limit is not None and count == limit:
        session.replies.put(messages.PORTAL_SUSPENDED)
        return
    portal.close()
    session.replies.put(messages.command_complete(portal.complete(count)))


def copy(session: SessionContext, command: sql.CopyOut) -> None:
    """COPY (query) TO STDOUT."""
    with placed(command.offset):
        prepared = session.connection.prepare(command.query)
    if prepared.columns is None:
        raise SqlError("COPY needs a query that gives rows", sqlstate="0A000")
    portal = run(session, prepared, (), (), relay=False)
    put, count = session.replies.put, 0
    try:
        encoder = CopyEncoder(prepared.columns, command.options, session.settings)
        with session.interrupts.during(portal.execution):
            put(messages.copy_out_response(encoder.binary, len(prepared.columns)))
            put(encoder.begin())
            for part in portal.rows.take():
                count += len(part)
                session.replies.put_all(encoder.encode(part))
            put(encoder.end())
    finally:
        portal.close()
    put(messages.COPY_DONE)
    put(messages.command_complete(f"COPY {count}"))


def _check_writes(session: SessionContext, tag: str) -> None:
    settings = session.settings
    if "on" in (settings.get("transaction_read_only"), settings.get("default_transaction_read_only")):
        raise SqlError(f"cannot execute {tag} in a read-only transaction", sqlstate="25006")
    if session.transaction.block:
        session.replies.notice(
            f"{tag} takes effect at once: ROLLBACK will not undo it", severity="WARNING", sqlstate="01000"
        )
