"""What journals are called: ``orders/region=eu/pivot=00``.

A name is a relative path. Its last segments may be partition fields, ``field=value`` with the value
percent-encoded, and after these a pivot. Nothing follows a pivot, so what lies in folders below one belongs
to that journal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

from penstock.errors import UsageError

LONGEST = 1024
_SEGMENT = 255
_PIVOT = "pivot"
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LIKE_FRAGMENT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}-", re.IGNORECASE)


@lru_cache(maxsize=1 << 14)
def problem(name: str) -> str | None:
    """Why this cannot be the name of a journal; None if it can."""
    if not name:
        return "it is empty"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "it has control characters or half characters"
    if len(name.encode()) > LONGEST:
        return f"it is longer than {LONGEST:,} bytes"
    segments = name.split("/")
    if any(segment.startswith(f"{_PIVOT}=") for segment in segments[:-1]):
        return "something follows its pivot"
    return next(filter(None, map(_segment_problem, segments)), None)


def _segment_problem(segment: str) -> str | None:
    if not segment:
        return "it begins or ends with a slash, or has two in a row"
    if segment.startswith("."):
        return f"its segment {segment!r} begins with a dot"
    if len(segment.encode()) > _SEGMENT:
        return f"it has a segment of more than {_SEGMENT} bytes"
    if _LIKE_FRAGMENT.match(segment):
        return f"its segment {segment!r} could be taken for a fragment"
    return None


def check(name: str) -> str:
    """The name itself. Raises `UsageError` if it cannot be the name of a journal."""
    wrong = problem(name)
    if wrong:
        raise UsageError(
            f"{name!r} cannot be the name of a journal: {wrong}",
            hint="use segments with slashes between them, such as orders/region=eu/pivot=00",
        )
    return name


def make(base: str, fields: Mapping[str, str], pivot: int = 0) -> str:
    """The journal of a partition. Fields stand in the order of their names, whatever order they come in."""
    wrong = sorted(f for f in fields if _FIELD.fullmatch(f) is None or f == _PIVOT)
    if wrong or pivot < 0 or any("=" in segment for segment in base.split("/")):
        what = f"field {wrong[0]!r}" if wrong else f"pivot {pivot}" if pivot < 0 else f"base {base!r}"
        raise UsageError(
            f"{what} cannot be part of the name of a journal",
            hint="fields have letters, digits, '_' and '-' and are not called pivot; a base has no '='",
        )
    parts = [f"{field}={quote(fields[field], safe='')}" for field in sorted(fields)]
    return check("/".join([base, *parts, f"{_PIVOT}={pivot:02x}"]))


def fields(name: str) -> dict[str, str]:
    """The partition fields of a journal, without its pivot."""
    pairs = (segment.partition("=") for segment in name.split("/")[_fields_begin(name) :])
    return {field: unquote(value) for field, _, value in pairs if field != _PIVOT}


def base(name: str) -> str:
    """The name without partition fields and pivot."""
    return "/".join(name.split("/")[: _fields_begin(name)])


def has_pivot(name: str) -> bool:
    """Whether the name ends with a pivot: then folders below it hold its fragments too."""
    return name.rpartition("/")[2].startswith(f"{_PIVOT}=")


def of_folder(folder: str) -> str:
    """The journal to which fragments in a folder belong."""
    segments = folder.split("/")
    pivots = (n for n, segment in enumerate(segments, 1) if segment.startswith(f"{_PIVOT}="))
    return "/".join(segments[: next(pivots, len(segments))])


def _fields_begin(name: str) -> int:
    """Where the run of ``field=value`` segments begins that a name ends with."""
    segments = name.split("/")
    begin = len(segments)
    while begin and "=" in segments[begin - 1]:
        begin -= 1
    return begin
