"""Fragments: the immutable files of a journal, and which of them hold which bytes. Pure.

A file ``{begin:016x}-{end:016x}-{sha1}{extension}`` holds the bytes ``begin`` to ``end`` of its journal; the
SHA-1 is that of the uncompressed bytes. Fragments may overlap: then they hold the same bytes. One with no
bytes says where the journal goes on, for instance while it is suspended.

The folder of a journal holds nothing else, but for hidden files and markers of folders: a file whose name
cannot be read may be a fragment with a broken name, and what is in it must not be passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import BadInput, JournalGap

LARGEST_OFFSET = (1 << 63) - 1
EXTENSIONS = {"raw": ".raw", "gz": ".gz", "zst": ".zst"}
"""How what we write is named, by its compression."""

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{40})(\.[A-Za-z0-9]+)?")
_ALMOST = re.compile(r"[0-9A-Za-z]{8,}[-_][0-9A-Za-z]{8,}(?:[-_.].*)?", re.DOTALL)
_BEGINS = re.compile(r"[0-9A-Za-z]{16}(?![0-9A-Za-z]).*\.(?:raw|gz|gzip|gzod|zst|zstandard)", re.DOTALL)
_SPOOL = re.compile(r"\.([0-9a-f]{16})\.spool")
_FOLDER = "_$folder$"
"""How some tools end the names of objects that stand for folders."""


class Codec(Enum):
    """How the bytes of a fragment are stored."""

    RAW = "raw"
    GZIP = "gz"
    ZSTD = "zst"


_CODECS = {
    ".raw": Codec.RAW,
    "": Codec.GZIP,
    ".gz": Codec.GZIP,
    ".gzip": Codec.GZIP,
    ".gzod": Codec.GZIP,
    ".zst": Codec.ZSTD,
    ".zstandard": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True, order=True)
class Fragment:
    """A fragment, or the spool that is going to be one. ``path`` is below the root of all journals.

    A spool has the extension ``.spool`` and no SHA-1; its end is the one that was announced when it was
    looked at. ``size`` and ``modified`` (seconds since 1970) are the file's, where they were asked for.
    """

    begin: int
    end: int
    sha1: str
    extension: str
    path: str
    size: int | None = field(default=None, compare=False)
    modified: float | None = field(default=None, compare=False)

    @property
    def is_spool(self) -> bool:
        return self.extension == ".spool"

    @property
    def codec(self) -> Codec:
        """How it is stored. Raises `BadInput` for an extension that is not known."""
        codec = _CODECS.get(self.extension.lower())
        if codec is None:
            raise BadInput(
                f"{self.path} is compressed in a way that is not known here ({self.extension})",
                hint="fragments can be .raw, .gz or .zst; compress it anew and name it accordingly",
            )
        return codec


@dataclass(frozen=True, slots=True)
class FragmentPiece:
    """The bytes ``begin`` to ``end`` of the journal are read from ``fragment``."""

    fragment: Fragment
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes ``begin`` to ``end`` are in no fragment."""

    begin: int
    end: int


def name_of(begin: int, end: int, sha1: str, extension: str) -> str:
    """The file name of a fragment."""
    return f"{begin:016x}-{end:016x}-{sha1}{extension}"


def spool_name(begin: int) -> str:
    return f".{begin:016x}.spool"


def spool_begin(name: str) -> int | None:
    """Where the spool of this file name begins; None if it is none."""
    found = _SPOOL.fullmatch(name)
    begin = int(found[1], 16) if found else None
    return begin if begin is not None and begin <= LARGEST_OFFSET else None


def is_of_journal(path: str) -> bool:
    """Whether a file makes its folder that of a journal: it is named like a fragment or spool, or almost."""
    name = path.rpartition("/")[2]
    if name.startswith("."):
        return name.endswith(".spool")
    return _ALMOST.fullmatch(name) is not None or _BEGINS.fullmatch(name) is not None


def parse(path: str, *, size: int | None = None, modified: float | None = None) -> Fragment | None:
    """The fragment with this path in a journal's folder, by its name alone; None for what is harmless there.

    That is a hidden file, such as a lock, a spool, or what somebody is just writing, and the marker of a
    folder. Raises `BadInput` for any other file: it must not be passed over.
    """
    name = path.rpartition("/")[2]
    if name.startswith(".") and not name.endswith(".spool"):
        return None
    if name.endswith(_FOLDER) and not size:
        return None
    found = _NAME.fullmatch(name)
    if found is not None:
        begin, end = int(found[1], 16), int(found[2], 16)
        if begin <= end <= LARGEST_OFFSET:
            return Fragment(begin, end, found[3], found[4] or "", path, size, modified)
        why = "is named like a fragment that ends " + (
            "before it begins" if begin > end else "where no journal can"
        )
    elif spool_begin(name) is not None:
        return None
    elif name.endswith(".spool"):
        why = "is named almost like a spool"
    elif is_of_journal(name):
        why = "is named almost like a fragment"
    else:
        why = "lies in the folder of a journal, and is no fragment"
    raise BadInput(
        f"{path} {why}",
        left="nothing is read of the journal, since bytes may be missing",
        hint="give the file its right name, {begin:016x}-{end:016x}-{sha1}.raw, .gz or .zst, or move it away",
    )


def plan(fragments: Iterable[Fragment], offset: int) -> tuple[list[FragmentPiece], list[Gap]]:
    """What to read from ``offset`` on, in order, and what is missing in between.

    Where fragments overlap, the one that reaches farthest is taken, and a fragment rather than a spool. A
    piece ends where its fragment ends. Behind the last byte, and for no fragments at all, there is nothing.
    """
    ordered = sorted((f for f in fragments if f.end >= offset), key=_preference)
    pieces: list[FragmentPiece] = []
    gaps: list[Gap] = []
    position, best = offset, None
    for fragment in ordered:
        if fragment.begin > position:
            if best is not None and best.end > position:
                pieces.append(FragmentPiece(best, position, best.end))
                position = best.end
            if fragment.begin > position:
                gaps.append(Gap(position, fragment.begin))
                position = fragment.begin
        if best is None or fragment.end > best.end:
            best = fragment
    if best is not None and best.end > position:
        pieces.append(FragmentPiece(best, position, best.end))
    return pieces, gaps


def cover(fragments: Iterable[Fragment], offset: int) -> list[FragmentPiece]:
    """Which fragments to read for which bytes, from ``offset`` on to the first byte that is missing.

    Raises `JournalGap` if that is the one at ``offset``, and others follow.
    """
    pieces, gaps = plan(fragments, offset)
    if not gaps:
        return pieces
    gap = gaps[0]
    if gap.begin == offset:
        raise JournalGap(
            f"the bytes {gap.begin:,} to {gap.end:,} are in no fragment",
            left="what lies before and behind them",
            hint=f"bring back the fragment that begins at {gap.begin:016x}, or begin to read at {gap.end}",
            begin=gap.begin,
            end=gap.end,
        )
    return [piece for piece in pieces if piece.end <= gap.begin]


def head(fragments: Sequence[Fragment]) -> int | None:
    """Where the next byte will be appended; None for no fragments."""
    return max((fragment.end for fragment in fragments), default=None)


def _preference(fragment: Fragment) -> tuple[int, bool, bool, Fragment]:
    """By begin; of those that begin and end alike, the one to be preferred first."""
    return fragment.begin, fragment.is_spool, fragment.extension != ".raw", fragment
