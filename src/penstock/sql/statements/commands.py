"""What a statement asks for, one class for each kind. ``tag`` is what PostgreSQL says when it is done.

``offset`` is where ``query`` begins in the statement's text, so that a place in the query can be told as a
place in the statement. It can be negative where the query was made longer than what stands in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.errors import SqlError


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing but space and comments."""

    tag: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """``modes`` are settings of this transaction: ``("transaction_read_only", "on")``."""

    modes: tuple[tuple[str, str], ...] = ()
    start: bool = False

    @property
    def tag(self) -> str:
        return "START TRANSACTION" if self.start else "BEGIN"


@dataclass(frozen=True, slots=True)
class Commit:
    tag: ClassVar[str] = "COMMIT"
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    tag: ClassVar[str] = "ROLLBACK"
    chain: bool = False


@dataclass(frozen=True, slots=True)
class Savepoint:
    tag: ClassVar[str] = "SAVEPOINT"
    name: str


@dataclass(frozen=True, slots=True)
class Release:
    tag: ClassVar[str] = "RELEASE"
    name: str


@dataclass(frozen=True, slots=True)
class RollbackTo:
    tag: ClassVar[str] = "ROLLBACK"
    name: str


@dataclass(frozen=True, slots=True)
class SetVariable:
    """``value`` None asks for the default. ``more`` are further settings that the same statement sets."""

    tag: ClassVar[str] = "SET"
    name: str
    value: str | None
    local: bool = False
    more: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Reset:
    """``name`` None means all."""

    tag: ClassVar[str] = "RESET"
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Show:
    """``name`` is folded; ``all`` means every setting."""

    tag: ClassVar[str] = "SHOW"
    name: str


@dataclass(frozen=True, slots=True)
class Declare:
    """``scroll`` None means that the statement does not say."""

    tag: ClassVar[str] = "DECLARE CURSOR"
    name: str
    query: str
    offset: int
    scroll: bool | None = None
    hold: bool = False
    binary: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """``direction`` is ``forward``, ``backward``, ``absolute`` or ``relative``; ``count`` None means all
    rows.

    The other words are said with these: NEXT is forward 1, PRIOR backward 1, FIRST absolute 1, LAST
    absolute -1, and a negative count turns the direction.
    """

    name: str
    direction: str = "forward"
    count: int | None = 1
    move: bool = False

    @property
    def tag(self) -> str:
        return "MOVE" if self.move else "FETCH"


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """``name`` None means all."""

    name: str | None = None

    @property
    def tag(self) -> str:
        return "CLOSE CURSOR" if self.name is not None else "CLOSE CURSOR ALL"


@dataclass(frozen=True, slots=True)
class PrepareStatement:
    tag: ClassVar[str] = "PREPARE"
    name: str
    types: tuple[str, ...]
    query: str
    offset: int


@dataclass(frozen=True, slots=True)
class ExecuteStatement:
    """``arguments`` are expressions as they are written."""

    tag: ClassVar[str] = "EXECUTE"
    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deallocate:
    """``name`` None means all."""

    name: str | None = None

    @property
    def tag(self) -> str:
        return "DEALLOCATE" if self.name is not None else "DEALLOCATE ALL"


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How COPY writes rows, with PostgreSQL's defaults of the format filled in.

    ``force_quote`` names columns, or is ``("*",)`` for all.
    """

    format: str = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = '"'
    force_quote: tuple[str, ...] = ()
    encoding: str = "UTF8"


@dataclass(frozen=True, slots=True)
class CopyOut:
    tag: ClassVar[str] = "COPY"
    query: str
    offset: int
    options: CopyOptions = CopyOptions()


@dataclass(frozen=True, slots=True)
class CopyIn:
    tag: ClassVar[str] = "COPY"
    table: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """``what`` is ``ALL``, ``PLANS``, ``SEQUENCES`` or ``TEMP``."""

    what: str

    @property
    def tag(self) -> str:
        return f"DISCARD {self.what}"


@dataclass(frozen=True, slots=True)
class Listen:
    tag: ClassVar[str] = "LISTEN"
    channel: str


@dataclass(frozen=True, slots=True)
class Notify:
    tag: ClassVar[str] = "NOTIFY"
    channel: str
    payload: str = ""


@dataclass(frozen=True, slots=True)
class Unlisten:
    """``channel`` None means all."""

    tag: ClassVar[str] = "UNLISTEN"
    channel: str | None = None


@dataclass(frozen=True, slots=True)
class QueryStatement:
    """Something that gives rows. ``text`` differs from the statement where that was said in other words."""

    tag: ClassVar[str] = "SELECT"
    text: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Explain:
    """``format`` is ``text``, ``json``, ``xml`` or ``yaml``."""

    tag: ClassVar[str] = "EXPLAIN"
    query: str
    offset: int
    analyze: bool = False
    verbose: bool = False
    format: str = "text"


@dataclass(frozen=True, slots=True)
class CreateView:
    tag: ClassVar[str] = "CREATE VIEW"
    name: tuple[str, ...]
    columns: tuple[str, ...]
    query: str
    offset: int
    replace: bool = False
    temporary: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """An external table. ``columns`` is what stands between the parentheses, "" where nothing does."""

    tag: ClassVar[str] = "CREATE TABLE"
    name: tuple[str, ...]
    columns: str
    using: str
    location: str
    options: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateSchema:
    tag: ClassVar[str] = "CREATE SCHEMA"
    name: str
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """``kind`` is ``view``, ``table`` or ``schema``."""

    kind: str
    names: tuple[tuple[str, ...], ...]
    if_exists: bool = False
    cascade: bool = False

    @property
    def tag(self) -> str:
        return f"DROP {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class Rename:
    """``kind`` is ``view``, or ``table``, by which PostgreSQL means views, too."""

    kind: str
    name: tuple[str, ...]
    to: str
    if_exists: bool = False

    @property
    def tag(self) -> str:
        return f"ALTER {self.kind.upper()}"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A statement that is understood and not carried out; `error` says so to the client."""

    tag: str
    what: str
    hint: str | None = None
    sqlstate: str = "0A000"

    def error(self) -> SqlError:
        return SqlError(self.what, sqlstate=self.sqlstate, hint=self.hint)


Command = (
    Empty
    | Begin
    | Commit
    | Rollback
    | Savepoint
    | Release
    | RollbackTo
    | SetVariable
    | Reset
    | Show
    | Declare
    | Fetch
    | CloseCursor
    | PrepareStatement
    | ExecuteStatement
    | Deallocate
    | CopyOut
    | CopyIn
    | Discard
    | Listen
    | Notify
    | Unlisten
    | QueryStatement
    | Explain
    | CreateView
    | CreateTable
    | CreateSchema
    | Drop
    | Rename
    | Unsupported
)

FOR_ENGINE = (QueryStatement, Explain, CreateView, CreateTable, CreateSchema, Drop, Rename)
"""What an engine answers; all else is about a session."""
