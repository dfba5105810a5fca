"""What runs, pipelines and inputs may be called: one rule, since the name of one becomes part of another's.

Names stand in file paths, store keys and commands, so they hold only characters that mean nothing there.
"""

from __future__ import annotations

import re

LONGEST = 100
RULE = f"use ASCII letters, digits, '_', '-' and '.', beginning with a letter or digit; at most {LONGEST}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def is_name(text: str, *, longest: int = LONGEST) -> bool:
    """Whether a text can be a name."""
    return len(text) <= longest and _NAME.fullmatch(text) is not None
