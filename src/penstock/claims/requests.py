"""Names for requests."""

from __future__ import annotations

import itertools
import os
import secrets


class Requests:
    """Request ids that no other board uses, not even the copy of this one in a forked process."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._process = 0
        self._name = ""

    def next(self) -> str:
        """A new one."""
        if self._process != os.getpid():
            self._name = secrets.token_hex(5)
            self._process = os.getpid()
        return f"{self._name}.{next(self._numbers)}"
