"""Where in the user's files something was defined, and errors that begin with that line."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import penstock
from penstock.errors import PenstockError

E = TypeVar("E", bound=PenstockError)

_OURS = str(Path(penstock.__file__).parent) + os.sep


def caller() -> str:
    """``FILE:LINE`` of the nearest call that does not come from Penstock itself."""
    frame = sys._getframe(1)  # noqa: SLF001
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def name_of(function: Any) -> str:
    """What a person calls a function."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """An operator and the line that asked for it. It travels to the workers, for their errors."""

    operator: str
    location: str

    def __str__(self) -> str:
        return f"{self.location}: {self.operator}"

    def error(self, kind: type[E], what: str, hint: str | None = None, left: str | None = None) -> E:
        return kind(f"{self} {what}", left=left, hint=hint)
