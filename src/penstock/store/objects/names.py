"""What the objects of documents are called.

The segments of a key become folders, so that listing a prefix touches nothing else; the folder of the
document itself carries ``.doc`` and holds nothing but versions, so that looking at ``a`` is not slowed down
by everything below ``a/``::

    runs/May 1/state   ->   d/runs/=4day=201/state.doc/v0000000000000007.json

Small ASCII letters, digits, ``-`` and ``_`` stand for themselves. Every other byte of a segment's UTF-8 is
escaped: capitals too, for folders that ignore case, and the dot, which keeps ``.``, ``..`` and what looks
like one of our own names apart from them. A long segment goes on in the next folder: file systems take 255
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

DOCUMENTS = "d"
SESSIONS = "s"
FLOOR = "f"

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_VERSION = re.compile(r"v([0-9]{16})\.json")
# What a lone "=" means: an empty segment, or at the end of a name that the segment goes on in the next one.
_MARK = "="
_SUFFIX = ".doc"
_LONGEST = 200


def folder_of(key: str) -> str:
    """The folder with the versions of a document."""
    return "/".join([DOCUMENTS, *_folders(key.split("/"))]) + _SUFFIX


def folder_above(prefix: str) -> str:
    """The deepest folder that holds every document whose key begins with ``prefix``."""
    return "/".join([DOCUMENTS, *_folders(prefix.split("/")[:-1])])


def key_of(folder: str) -> str | None:
    """The key whose `folder_of` is ``folder``; None for a folder that is not ours."""
    names = folder.removesuffix(_SUFFIX).split("/")[1:]
    # A mark at the end of a name says that there is no end here.
    text = "/".join("" if name == _MARK else name for name in names).replace(f"{_MARK}/", "")
    try:
        key = unquote_to_bytes(text.replace(_MARK, "%")).decode()
    except UnicodeDecodeError:
        return None
    return key if folder_of(key) == folder else None


def version_name(number: int) -> str:
    """What the object of a version is called in its folder; names sort as versions do."""
    return f"v{number:016}.json"


def version_of(name: str) -> int | None:
    """The version that an object's name stands for; None for an object that is not ours."""
    matched = _VERSION.fullmatch(name)
    return int(matched[1]) if matched else None


def _folders(segments: Sequence[str]) -> list[str]:
    names = []
    for segment in segments:
        text = _escaped(segment)
        pieces = [text[i : i + _LONGEST] for i in range(0, len(text), _LONGEST)]
        names += [*(piece + _MARK for piece in pieces[:-1]), pieces[-1]]
    return names


def _escaped(segment: str) -> str:
    octets = segment.encode(errors="surrogatepass")
    return "".join(chr(octet) if octet in _PLAIN else f"={octet:02x}" for octet in octets) or _MARK
