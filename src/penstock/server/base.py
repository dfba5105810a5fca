"""What the protocols ask of the engine, and what they get.

Everything here blocks, because Spark does: an asynchronous server calls it from threads. A result is pulled,
batch by batch, so whoever reads slowly slows the query and fills no memory.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.types.postgres import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.server.session_settings import Settings
    from penstock.sql.statements.commands import Command

DATABASE = "penstock"
"""The one database that clients see."""
PUBLIC = "public"
"""The schema of tables that name none."""


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, and what that person may do. ``schemas`` None means every one.

    ``writes`` allows to create and drop views, tables and schemas. An ``admin`` may do everything, and sees
    and cancels the queries of others.
    """

    name: str
    admin: bool = False
    writes: bool = False
    schemas: frozenset[str] | None = None

    def may_read(self, schema: str) -> bool:
        return self.admin or self.schemas is None or schema in self.schemas

    def may_write(self, schema: str) -> bool:
        return self.admin or (self.writes and self.may_read(schema))


@dataclass(frozen=True, slots=True)
class Client:
    """One connection as others see it. ``protocol`` is ``pgwire``, ``flight`` or ``http``."""

    user: User
    protocol: str
    address: str = ""
    application: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that was understood but not run.

    ``parameters`` are the type oids of ``$1``, ``$2`` …; ``columns`` is None for one that gives no rows.
    ``tag`` is what PostgreSQL says when it is done, without counts: ``SELECT``, ``CREATE VIEW``.
    """

    sql: str
    tag: str
    parameters: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None
    plan: object = field(default=None, repr=False, compare=False)
    """What the engine wants to remember about it; nobody else looks at it."""


class QueryState(enum.StrEnum):
    """Where a query is. The last three are final."""

    QUEUED = "QUEUED"
    PLANNING = "PLANNING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class Execution(ABC):
    """A statement at work. One thread pulls `batches`; `cancel` may be called by any."""

    id: str
    tag: str
    columns: tuple[Column, ...] | None
    """As described: names, ``oid`` and ``typmod`` never change. Batches have exactly these types.

    Where PostgreSQL's type leaves Arrow's open (numeric without a precision), ``type`` is known for sure only
    when the first batch was pulled, or there is none; before, it is the prepared statement's.
    """
    notices: Sequence[str] = ()
    """What the client should be told besides the result, known when all batches were pulled."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, once, in order; nothing for a statement without rows.

        Work that has no rows (a CREATE VIEW) is done when this is exhausted, not before. Raises `SqlError`;
        after `cancel` one with sqlstate 57014.
        """

    @abstractmethod
    def cancel(self, why: str = "canceling statement due to user request") -> None:
        """Stop it now, also its jobs on Spark. Harmless when repeated or late."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything: files, the place among the running. What still runs is cancelled."""


class Relay(Execution):
    """A result of the shadow catalog: a PostgreSQL client can have its bytes as they are."""

    @abstractmethod
    def rows(self, *, binary: bool) -> Iterator[Sequence[Sequence[bytes | None]] | pa.RecordBatch]:
        """The rows in PostgreSQL's own text or binary format, in chunks: instead of `batches`.

        Where another has to answer in the end, batches as `batches` gives them.
        """


class Connection(ABC):
    """One client at the engine. For one thread at a time, but for cancelling."""

    client: Client
    settings: Settings

    @abstractmethod
    def prepare(
        self,
        sql: str,
        parameters: Sequence[int] = (),
        *,
        exact: bool = False,
        command: Command | None = None,
    ) -> Prepared:
        """Understand one statement. ``parameters`` are oids that the client gave, 0 where it gave none.

        With ``exact``, batches will have exactly the types of its columns, which takes longer to find out.
        ``command`` is what `classify` said of the statement, if the caller has asked.

        Raises `SqlError` with the place of the fault. Statements about the protocol's own things
        (transactions, cursors, prepared statements, settings, COPY) do not come here.
        """

    @abstractmethod
    def execute(self, prepared: Prepared, parameters: Sequence[object] = ()) -> Execution:
        """Begin to run it, with values as Python has them: None, bool, int, float, Decimal, str, bytes, date,
        time, datetime, timedelta, `Parts` of an interval, UUID, and lists of these.

        Returns at once, before the statement is admitted; waiting happens in `Execution.batches`. The setting
        ``statement_timeout`` of the connection counts from here.
        """

    @abstractmethod
    def close(self) -> None:
        """The client is gone: what it runs is cancelled."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table or view as catalogs list it. ``kind`` is ``table``, ``view`` or ``system``."""

    schema: str
    name: str
    kind: str
    columns: pa.Schema
    definition: str = ""
    """The query of a view, as its author wrote it."""
    reads: tuple[tuple[str, str], ...] = ()
    """Schemas and names of what a view reads."""


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A query as ``sys.queries`` and the HTTP interface tell it. Times are seconds since 1970."""

    id: str
    user: str
    protocol: str
    address: str
    application: str
    sql: str
    state: QueryState
    submitted: float
    started: float | None = None
    ended: float | None = None
    rows: int = 0
    bytes: int = 0
    error: str | None = None
    sqlstate: str | None = None


class Engine(ABC):
    """Answers statements. One for a process."""

    @abstractmethod
    def connect(self, client: Client, settings: Settings) -> Connection:
        """Begin to serve a client."""

    @abstractmethod
    def tables(self, user: User) -> Sequence[TableInfo]:
        """What this user may read, by schema and name."""

    @abstractmethod
    def queries(self, user: User) -> Sequence[QueryInfo]:
        """Queries that wait or run, and the last that ended, newest first: a user's own, an admin's all."""

    @abstractmethod
    def cancel(self, query: str, user: User) -> bool:
        """Cancel a query by its id; whether one of this user's (any, for an admin) was there to cancel."""

    @abstractmethod
    def ready(self) -> str | None:
        """None if statements can be answered now, else why not."""
