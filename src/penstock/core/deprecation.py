"""Public names that moved: the old one works, with a warning that names the new one, until a version.

::

    # At the end of the module that the name has left:
    __getattr__ = moved(__name__, {"Reader": "penstock.journals:JournalReader"}, until="0.4")
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def warn_moved(old: str, new: str, *, until: str, stacklevel: int = 2) -> None:
    """Warn whoever called our caller that ``old`` is ``new`` now, and that ``until`` is without it."""
    warnings.warn(
        f"{old} is now {new}; the old name goes in Penstock {until}",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )


def moved(module: str, names: Mapping[str, str], *, until: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``module``, whose ``names`` are elsewhere now: ``"package.module:name"``.

    Without a colon, a name is the same there.
    """

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, renamed = names[name].partition(":")
        renamed = renamed or name
        warn_moved(f"{module}.{name}", f"{home}.{renamed}", until=until)
        return getattr(import_module(home), renamed)

    return __getattr__
