"""Exit codes: what a script can tell from how a command ended."""

from __future__ import annotations

from penstock.errors import DefinitionError, HaltError, PenstockError, UsageError

COMPLETE = 0
FAILED = 1
USAGE = 2
INCOMPLETE = 3
UNVERIFIED = 4
RESUMABLE = 75

MEANINGS = {
    COMPLETE: "done; for `run` and `runs resume`: every partition is complete",
    FAILED: "failed; for `doctor`: something is broken",
    USAGE: "wrong usage, configuration or pipeline definition",
    INCOMPLETE: "all but the poisoned partitions are complete",
    UNVERIFIED: "verification failed",
    RESUMABLE: "stopped, resumable: signal, --max-batches, disk full or not writable, changed input, "
    "the same error over and over, store or instances lost",
}

TABLE = "\b\nExit codes:\n" + "\n".join(f"  {code:>2}  {meaning}" for code, meaning in MEANINGS.items())


def code_for(error: PenstockError, *, halted: bool = False) -> int:
    """The exit code of a command that ended with an error.

    ``halted``: a run had begun and stopped for it. Whatever the error, nothing is lost, and the run
    goes on when a person has seen to the cause.
    """
    if isinstance(error, UsageError | DefinitionError):
        return USAGE
    return RESUMABLE if halted or isinstance(error, HaltError) else FAILED
