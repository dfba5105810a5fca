"""Every error that Penstock raises.

::

    PenstockError
    ├── TransientError                 trying again may help
    │   ├── StoreUnavailable
    │   ├── PeerUnreachable
    │   └── WorkerLost
    ├── FencedError                    somebody else owns it now: stop, change nothing
    │   ├── StaleToken
    │   ├── SessionLost
    │   └── LeadershipLost
    ├── HaltError                      the run stops, nothing is lost, it can be resumed
    │   ├── Interrupted
    │   ├── SparkLost
    │   ├── StorageFull
    │   ├── StorageUnusable
    │   ├── DiskLimit
    │   ├── ExchangeDamaged
    │   └── FailingAlike
    └── TerminalError                  trying again cannot help
        ├── UsageError
        │   └── ConfigError
        ├── DefinitionError            a table, transform or pipeline is wrong
        │   ├── UnknownField
        │   ├── UnknownType
        │   ├── TypeMismatch
        │   ├── UndeclaredRead
        │   ├── UndeclaredWrite
        │   └── DuplicateName
        ├── InputError
        │   ├── InputChanged
        │   └── BadInput
        ├── RunError
        │   ├── RunMismatch
        │   ├── CodeChanged
        │   ├── RangeOverlap
        │   ├── UnknownPartition
        │   ├── NullInField
        │   └── TransformFailed
        ├── StreamError                a stream cannot go on as asked
        │   ├── StreamMismatch
        │   ├── SourceFailed
        │   ├── BadState
        │   └── EpochGone
        ├── JournalError               a journal cannot be read or written as asked
        │   ├── JournalGap
        │   └── JournalTruncated
        ├── CatalogError               a statement of the catalog cannot be rebuilt
        │   └── CatalogConflict
        ├── SqlError                   a statement of a client cannot be carried out
        ├── CorruptFile
        └── MissingPackage

The three branches below the root are the retry policy: code asks for the *type* of an error, never
for its text. ``code`` is stable and meant for programs; the text is meant for people and says what
happened, what is left behind (``left``) and what to do next (``hint``). Where somebody at the command line
would do that in another way than a caller of the library, ``typed`` says how.
"""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """Something went wrong in Penstock."""

    code: ClassVar[str] = "error"

    def __init__(
        self,
        what: str | None = None,
        *,
        left: str | None = None,
        hint: str | None = None,
        typed: str | None = None,
    ) -> None:
        """``{table}`` in ``typed`` stands for the table whose input this is about."""
        self.what = what or (self.__doc__ or "").splitlines()[0]
        self.left = left
        self.hint = hint
        self.typed = typed
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.left:
            lines.append(f"left: {self.left}")
        if self.hint:
            lines.append(f"next: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.left, self.hint, self.typed)


def _rebuild(
    kind: type[PenstockError], what: str, left: str | None, hint: str | None, typed: str | None
) -> PenstockError:
    error = kind(what, left=left, hint=hint)
    error.typed = typed
    return error


class TransientError(PenstockError):
    """A passing fault; trying again may help. Raise it in a transform to ask for a retry."""

    code = "transient"


class StoreUnavailable(TransientError):
    """The coordination store did not answer in time."""

    code = "store-unavailable"


class PeerUnreachable(TransientError):
    """Another instance did not answer, or did not accept us."""

    code = "peer-unreachable"


class WorkerLost(TransientError):
    """A Spark executor or Python worker died while it ran a task."""

    code = "worker-lost"


class FencedError(PenstockError):
    """The instance no longer owns what it tried to change."""

    code = "fenced"


class StaleToken(FencedError):
    """The claim was taken over: its token is no longer the current one."""

    code = "stale-token"


class SessionLost(FencedError):
    """The lease ran out before it was renewed."""

    code = "session-lost"


class LeadershipLost(FencedError):
    """Another instance leads, or may by now."""

    code = "leadership-lost"


class HaltError(PenstockError):
    """The run stopped before its end and can be resumed."""

    code = "halted"


class Interrupted(HaltError):
    """The run was asked to stop."""

    code = "interrupted"


class SparkLost(HaltError):
    """Spark's own process is gone."""

    code = "spark-lost"


class StorageFull(HaltError):
    """No space is left where the files are written."""

    code = "storage-full"


class StorageUnusable(HaltError, OSError):
    """Files cannot be written where they have to be."""

    code = "storage-unusable"


class DiskLimit(HaltError):
    """What a run leaves for its later phases would take more disk than it may."""

    code = "disk-limit"


class ExchangeDamaged(HaltError):
    """A file that a phase of a run left for a later one is not as it was written."""

    code = "exchange-damaged"


class FailingAlike(HaltError):
    """One attempt after the other failed with the same error."""

    code = "failing-alike"


class TerminalError(PenstockError):
    """A fault that trying again cannot mend. Raise it in a transform to fail the claim at once."""

    code = "terminal"


class UsageError(TerminalError):
    """The command or call makes no sense as given."""

    code = "usage"


class ConfigError(UsageError):
    """The configuration has an unknown key or a value of the wrong kind."""

    code = "config"


class DefinitionError(TerminalError):
    """A table, transform or pipeline is defined wrongly."""

    code = "definition"


class UnknownField(DefinitionError, AttributeError):
    """A field is named that its table does not have."""

    code = "unknown-field"


class UnknownType(DefinitionError):
    """A table field is annotated with a type that has no column type."""

    code = "unknown-type"


class TypeMismatch(DefinitionError):
    """A column's type does not fit its declaration."""

    code = "type-mismatch"


class UndeclaredRead(DefinitionError):
    """A transform reads a field that it did not declare."""

    code = "undeclared-read"


class UndeclaredWrite(DefinitionError):
    """A transform changes, adds or removes something that it did not declare."""

    code = "undeclared-write"


class DuplicateName(DefinitionError):
    """Two things carry the same name."""

    code = "duplicate-name"


class InputError(TerminalError):
    """A registered input cannot be used."""

    code = "input"


class InputChanged(InputError):
    """A registered input is not the same as when it was registered."""

    code = "input-changed"


class BadInput(InputError):
    """A file cannot be read as what it was registered as."""

    code = "bad-input"


class RunError(TerminalError):
    """The run cannot go on as asked."""

    code = "run"


class RunMismatch(RunError):
    """A run of this name exists and was started with something else."""

    code = "run-mismatch"


class CodeChanged(RunError):
    """The pipeline is not the one that produced what is already there."""

    code = "code-changed"


class RangeOverlap(RunError):
    """The row range overlaps one that is claimed or completed."""

    code = "range-overlap"


class UnknownPartition(RunError):
    """There is no such partition."""

    code = "unknown-partition"


class NullInField(RunError):
    """A field that is declared without `| None` has no value in some row."""

    code = "null-in-field"


class TransformFailed(RunError):
    """A transform raised an error."""

    code = "transform-failed"


class StreamError(TerminalError):
    """The stream cannot go on as asked."""

    code = "stream"


class StreamMismatch(StreamError):
    """A stream of this name exists and was started with something else."""

    code = "stream-mismatch"


class SourceFailed(StreamError):
    """A source raised an error, or brought what it must not bring."""

    code = "source-failed"


class BadState(StreamError):
    """The state of a part cannot be stored, or cannot be read."""

    code = "bad-state"


class EpochGone(StreamError):
    """The epoch is not retained any more."""

    code = "epoch-gone"


class JournalError(TerminalError):
    """The journal cannot be read or written as asked."""

    code = "journal"


class JournalGap(JournalError):
    """Bytes of a journal are in no fragment: those from ``begin`` to ``end``."""

    code = "journal-gap"

    def __init__(
        self,
        what: str | None = None,
        *,
        left: str | None = None,
        hint: str | None = None,
        begin: int = 0,
        end: int = 0,
    ) -> None:
        super().__init__(what, left=left, hint=hint)
        self.begin = begin
        self.end = end

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_gap, (self.what, self.left, self.hint, self.begin, self.end)


def _rebuild_gap(what: str, left: str | None, hint: str | None, begin: int, end: int) -> JournalGap:
    return JournalGap(what, left=left, hint=hint, begin=begin, end=end)


class JournalTruncated(JournalError):
    """The journal ends before the offset that was asked for."""

    code = "journal-truncated"


class LineUnfinished(JournalError):
    """A journal ends in the middle of a line, and does not go on."""

    code = "line-unfinished"


class HintNotReached(JournalError):
    """A transaction waits for a journal that was not read far enough."""

    code = "hint-not-reached"


class CatalogError(TerminalError):
    """The catalog, or a statement of it, cannot be used as it is."""

    code = "catalog"


class CatalogConflict(CatalogError):
    """The catalog is not at the version that was expected."""

    code = "catalog-conflict"


class SqlError(TerminalError):
    """A statement cannot be carried out.

    ``sqlstate`` is PostgreSQL's five-letter code for it. ``position`` counts characters of the statement from
    0; None where no place is known.
    """

    code = "sql"

    def __init__(
        self,
        what: str | None = None,
        *,
        left: str | None = None,
        hint: str | None = None,
        sqlstate: str = "XX000",
        position: int | None = None,
    ) -> None:
        super().__init__(what, left=left, hint=hint)
        self.sqlstate = sqlstate
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_sql, (self.what, self.left, self.hint, self.sqlstate, self.position)


def _rebuild_sql(
    what: str, left: str | None, hint: str | None, sqlstate: str, position: int | None
) -> SqlError:
    return SqlError(what, left=left, hint=hint, sqlstate=sqlstate, position=position)


class CorruptFile(TerminalError):
    """A file's bytes are not those that were recorded for it."""

    code = "corrupt-file"


class MissingPackage(TerminalError):
    """An optional package is needed and not installed."""

    code = "missing-package"
