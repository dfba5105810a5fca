"""Making what was done to folders last."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path, *, missing_ok: bool = False) -> None:
    """See that what was created, renamed or removed in ``folder`` survives a power failure.

    With ``missing_ok``, a folder that somebody removed meanwhile is no error.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        if missing_ok:
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
