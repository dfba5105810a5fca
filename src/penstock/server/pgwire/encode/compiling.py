"""Loops over rows that are compiled, by numba, when they are first run.

Numba, because a fresh machine has no C compiler. Arrow with numpy took twice as long. The price is 200 MB on
disk, and some seconds at the first start on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """The function as machine code, which lets other threads run meanwhile.

    The code is kept on disk and looked up by the file it came from: functions that call each other stay in
    one module, or a change of one would not be seen by the other.
    """
    try:
        made: Any = numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:
        # There is no folder that could be written to: each process compiles anew, which takes seconds.
        made = numba.njit(function, nogil=True, error_model="numpy")
    found: _F = made
    return found
