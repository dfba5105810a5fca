"""Error texts without the places of files: where a server keeps them is nobody's business but its owner's.

The file's own name stays, so that a person who has to mend it can say which one it is. The whole text goes to
the server's log.
"""

from __future__ import annotations

import logging
import re

_log = logging.getLogger("penstock.server")

_NAME = r"[^\s'\"`<>|,;()\[\]{}]"
_PLACE = re.compile(
    rf"""
    (?<![\w./:-])                           # not in the middle of a word, a relative path or an URL
    (?!https?://)
    (?: [A-Za-z][A-Za-z0-9+.-]*:/{{1,3}}     # file:/, s3a://bucket/
      | / )
    (?: {_NAME}*/ )+                         # folders
    ({_NAME}*)                               # the file
    """,
    re.VERBOSE,
)


def without_places(text: str) -> str:
    """The text with every absolute path and URL of a file cut down to the file's name."""
    shown = _PLACE.sub(lambda found: found[1] or "a folder", text)
    if shown != text:
        _log.warning("a client was told this without its paths: %s", text)
    return shown
