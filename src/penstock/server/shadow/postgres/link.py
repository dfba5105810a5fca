"""One connection to the shadow's PostgreSQL, below psycopg's own cursors: libpq as it is."""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from penstock.errors import PeerUnreachable, SqlError
from penstock.server.base import DATABASE
from penstock.server.shadow.postgres.programs import CannotServe
from penstock.types import postgres
from penstock.types.postgres import Column

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_FINE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)
_CANNOT_CONNECT = ("57P01", "57P02", "57P03")


class Link:
    """A connection under one role. For one thread at a time, but for `cancel`."""

    def __init__(self, conn: PGconn, role: str) -> None:
        self.conn = conn
        self.role = role
        self.generation = 0
        self._applied: dict[str, str] = {}

    @classmethod
    def open(cls, sockets: Path, role: str, options: str = "", database: str = "") -> Link:
        """Log in. Everything that the environment could add is said here, so that it adds nothing."""
        info = make_conninfo(
            host=str(sockets),
            port=5432,
            user=role,
            dbname=database or DATABASE,
            options=options or "-c client_encoding=UTF8",
            client_encoding="UTF8",
            sslmode="disable",
            gssencmode="disable",
            require_auth="none",
            target_session_attrs="any",
            connect_timeout=10,
        )
        conn = pq.PGconn.connect(info.encode())
        if conn.status != pq.ConnStatus.OK:
            why = conn.get_error_message()
            conn.finish()
            raise CannotServe(why.strip().splitlines()[-1] if why.strip() else "no connection")
        return cls(conn, role)

    def close(self) -> None:
        self.conn.finish()

    @property
    def usable(self) -> bool:
        return (
            self.conn.status == pq.ConnStatus.OK
            and self.conn.transaction_status == pq.TransactionStatus.IDLE
            and self.conn.pipeline_status == pq.PipelineStatus.OFF
        )

    @property
    def busy(self) -> bool:
        return self.conn.transaction_status == pq.TransactionStatus.ACTIVE

    def execute(self, sql: str) -> list[list[str | None]]:
        """Run our own statements, several if need be, and give the last one's rows as text."""
        result = self._sent(lambda: self.conn.exec_(sql.encode()))
        return [
            [_text(result.get_value(row, column)) for column in range(result.nfields)]
            for row in range(result.ntuples)
        ]

    def begin(self, statements: str) -> None:
        """Begin a transaction with statements of ours, which may be long; it ends with `leave`."""
        try:
            # A client that reads slowly is not idle, whatever PostgreSQL thinks of this session.
            timeout = "SET LOCAL idle_in_transaction_session_timeout TO 0"
            self.conn.send_query(_bytes(f"BEGIN; {timeout}; {statements}"))
        except psycopg.OperationalError as error:
            raise PeerUnreachable("the shadow catalog went away") from error
        while self.result() is not None:
            pass

    def leave(self) -> None:
        """End a transaction, if there is one, and with it all that was set for it."""
        if self.conn.transaction_status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
            self.execute("ROLLBACK")

    def apply(self, settings: Mapping[str, str]) -> None:
        """Make the session's settings these; ``search_path`` comes as SQL, the others as values."""
        wanted = {name: value for name, value in settings.items() if self._applied.get(name) != value}
        if not wanted:
            return
        try:
            self.execute("; ".join(_set(name, value) for name, value in wanted.items()))
        except SqlError:
            # One that PostgreSQL does not know (a time zone, say) must not keep the others out.
            for name, value in wanted.items():
                try:
                    self.execute(_set(name, value))
                except SqlError:
                    self.execute(f"RESET {name}")
        self._applied.update(wanted)

    def describe(self, sql: str, parameters: Sequence[int]) -> PGresult:
        """Parse and describe in one round trip."""
        conn = self.conn
        try:
            conn.enter_pipeline_mode()
            conn.send_prepare(b"", _bytes(sql), list(parameters))
            conn.send_describe_prepared(b"")
            conn.pipeline_sync()
            failed: PGresult | None = None
            described: PGresult | None = None
            while (result := self._awaited()) is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
                if result is None:
                    self._check()
                elif result.status in _FINE:
                    described = result
                elif failed is None:
                    failed = result
            conn.exit_pipeline_mode()
        except psycopg.OperationalError as error:
            raise PeerUnreachable("the shadow catalog went away") from error
        if failed is not None or described is None:
            raise self.error(failed)
        return described

    def send(
        self, sql: str, values: Sequence[bytes | None], parameters: Sequence[int], binary: bool, chunk: int
    ) -> None:
        """Begin to run a query whose rows come in chunks."""
        try:
            self.conn.send_query_params(
                _bytes(sql), list(values), list(parameters), [0] * len(values), 1 if binary else 0
            )
            if pq.version() >= 170000:
                self.conn.set_chunked_rows_mode(chunk)
            else:
                self.conn.set_single_row_mode()
        except psycopg.OperationalError as error:
            raise PeerUnreachable("the shadow catalog went away") from error

    def result(self) -> PGresult | None:
        """The next chunk of rows, or None; raises what PostgreSQL says."""
        result = self._awaited()
        if result is None:
            self._check()
            return None
        if result.status in _FINE or result.status in (_CHUNK, pq.ExecStatus.SINGLE_TUPLE):
            return result
        error = self.error(result)
        if isinstance(error, SqlError):
            while self._awaited() is not None:
                pass
        raise error

    def cancel(self) -> None:
        """Ask the server to stop what runs here. If there is no server, nothing runs."""
        with suppress(psycopg.OperationalError):
            self.conn.get_cancel().cancel()

    def error(self, result: PGresult | None) -> SqlError | PeerUnreachable:
        """What went wrong, as PostgreSQL tells it."""
        field = pq.DiagnosticField
        state = None if result is None else result.error_field(field.SQLSTATE)
        if result is None or state is None or self.conn.status != pq.ConnStatus.OK:
            return PeerUnreachable("the shadow catalog went away")
        if state.decode() in _CANNOT_CONNECT:
            return PeerUnreachable("the shadow catalog goes down")
        position = result.error_field(field.STATEMENT_POSITION)
        hint = result.error_field(field.MESSAGE_HINT) or result.error_field(field.MESSAGE_DETAIL)
        return SqlError(
            _text(result.error_field(field.MESSAGE_PRIMARY)),
            hint=_text(hint),
            sqlstate=state.decode(),
            position=int(position) - 1 if position else None,
        )

    def _sent(self, send: Callable[[], PGresult]) -> PGresult:
        try:
            result = send()
        except psycopg.OperationalError as error:
            raise PeerUnreachable("the shadow catalog went away") from error
        if result.status not in _FINE:
            raise self.error(result)
        return result

    def _awaited(self) -> PGresult | None:
        """The next result. psycopg would wait for it with all of Python stopped, so we wait before."""
        conn = self.conn
        try:
            if conn.is_busy():
                ready = select.poll()
                ready.register(conn.socket, select.POLLIN)
                while conn.is_busy():
                    ready.poll()
                    conn.consume_input()
            return conn.get_result()
        except psycopg.OperationalError as error:
            raise PeerUnreachable("the shadow catalog went away") from error

    def _check(self) -> None:
        if self.conn.status != pq.ConnStatus.OK:
            raise PeerUnreachable("the shadow catalog went away")


_CHUNK = getattr(pq.ExecStatus, "TUPLES_CHUNK", pq.ExecStatus.SINGLE_TUPLE)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it; standard_conforming_strings is on."""
    return "'" + text.replace("\0", "").replace("'", "''") + "'"


def _set(name: str, value: str) -> str:
    return f"SET {name} TO {value if name == 'search_path' else literal(value)}"


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _bytes(sql: str) -> bytes:
    if "\0" in sql:
        raise SqlError('invalid byte sequence for encoding "UTF8": 0x00', sqlstate="22021")
    return sql.encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Description:
    """Types of a statement's parameters and columns; ``columns`` is None for one that gives no rows."""

    parameters: tuple[int, ...]
    columns: tuple[Column, ...] | None


def described(result: PGresult) -> Description:
    """From the answer to a Describe message."""
    parameters = tuple(
        postgres.TEXT if (oid := result.param_type(number)) in (0, postgres.UNKNOWN) else oid
        for number in range(result.nparams)
    )
    if not result.nfields:
        return Description(parameters, None)
    columns = []
    for number in range(result.nfields):
        oid, typmod = result.ftype(number), result.fmod(number)
        name = (result.fname(number) or b"").decode("utf-8", "replace")
        table, attribute = result.ftable(number), result.ftablecol(number)
        kind = postgres.arrow_type(oid, typmod)
        columns.append(Column(name, kind, oid, typmod, table=table, attribute=attribute))
    return Description(parameters, tuple(columns))
