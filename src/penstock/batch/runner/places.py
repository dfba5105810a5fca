"""Whether a run's files can be written where they have to be, asked before anything is computed."""

from __future__ import annotations

import threading

from penstock.errors import HaltError, StorageFull, StorageUnusable, UsageError
from penstock.storage import Storage

# Seconds after which an object store is asked again that did not take a file.
_PATIENCE = (1.0, 4.0)


def check_places(storage: Storage, output: Storage | None, *, begun: bool) -> None:
    """Raise if nothing can be written to one of them: `UsageError` while there is no such run yet."""
    for place, option in ((storage, "--storage"), (output, "--output")):
        try:
            if place is not None:
                place.probe()
        except StorageUnusable as error:
            if begun:
                raise
            raise UsageError(
                error.what, left="nothing was begun", hint=f"make it writable, or give another {option}"
            ) from error


def trouble(storage: Storage, stopping: threading.Event) -> HaltError | None:
    """What keeps files from being written there now, if anything does."""
    for pause in (*(() if storage.local else _PATIENCE), None):
        try:
            storage.probe()
        except (StorageFull, StorageUnusable) as error:
            if pause is None or stopping.wait(pause):
                return error
        else:
            return None
    return None
