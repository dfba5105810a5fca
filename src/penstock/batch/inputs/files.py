"""Finding the files of an input, telling whether they changed, and opening them.

A file is known by its size and the time of its last modification. That costs one `stat` per file
and read, where a checksum would cost reading what the partition does not need.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from penstock.errors import BadInput, InputChanged, UsageError
from penstock.storage import filesystem_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMED = 10
_COMPRESSED = (".gz", ".bz2", ".zst", ".zstd", ".xz", ".lz4", ".snappy", ".zip")
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as it was seen: an absolute path or an URL, its size, its last modification."""

    path: str
    bytes: int
    mtime_ns: int


def is_url(path: str) -> bool:
    """Whether ``path`` names something that is not on a local disk."""
    return "://" in path and not path.startswith("file://")


def find(source: str) -> list[FileStamp]:
    """The data files that a path, a folder, a glob pattern or an URL stands for, sorted by name.

    Folders are walked to the bottom; names that begin with ``_`` or ``.`` are left out, as Spark
    does. Raises `BadInput` when nothing is there.
    """
    found = list(_find_remote(source) if is_url(source) else _find_local(source.removeprefix("file://")))
    if not found:
        raise BadInput(
            f"{source} holds no data files (names that begin with '_' or '.' do not count)",
            hint="name a file, a folder with files, or a pattern such as data/*.parquet",
        )
    return sorted(found, key=lambda stamp: stamp.path)


def guess_format(files: Sequence[FileStamp]) -> str:
    """The format that the file names say; `BadInput` when they say none, or more than one."""
    first = _format_of(files[0].path)
    for file in files[1:]:
        other = _format_of(file.path)
        if other != first:
            raise BadInput(
                f"{files[0].path} is {first}, but {file.path} is {other}: an input has one format",
                hint="register them as two inputs, or name the files with a pattern such as data/*.parquet",
            )
    return first


def refuse_compressed(files: Sequence[FileStamp]) -> None:
    """Text must be cut into row ranges, which a compressed stream does not allow."""
    for file in files:
        name = urlsplit(file.path).path if is_url(file.path) else file.path
        if name.lower().endswith(_COMPRESSED):
            raise BadInput(
                f"{file.path} is compressed: it cannot be cut into row ranges",
                hint="decompress it, or convert it to Parquet, and register the result",
            )


def stamps(paths: Sequence[str]) -> list[FileStamp | None]:
    """Every file as it is now; None for one that is not there."""
    remote: dict[str, FileStamp | None] = {}
    by_place: dict[str, list[str]] = {}
    for path in paths:
        if is_url(path):
            by_place.setdefault(_place(path), []).append(path)
    for place, urls in by_place.items():
        filesystem, _ = filesystem_of(place)
        infos = filesystem.get_file_info([_resolve(url)[1] for url in urls])
        for url, info in zip(urls, infos, strict=True):
            there = info.type == fs.FileType.File
            remote[url] = FileStamp(url, info.size or 0, info.mtime_ns or 0) if there else None
    return [remote[path] if is_url(path) else _stat(path) for path in paths]


def changed(expected: FileStamp, now: FileStamp | None) -> str | None:
    """What is different about a file, in words; None when nothing is."""
    if now is None:
        return f"{expected.path}: missing"
    words = []
    if now.bytes != expected.bytes:
        words.append(f"size {expected.bytes} → {now.bytes} bytes")
    if now.mtime_ns != expected.mtime_ns:
        words.append(f"modified {_time(expected.mtime_ns)} → {_time(now.mtime_ns)}")
    return f"{expected.path}: {', '.join(words)}" if words else None


def ensure_unchanged(expected: Sequence[FileStamp], input_name: str | None) -> None:
    """Raise `InputChanged`, naming the files, unless all of them are as they were.

    Without a name they are files that are being registered.
    """
    now = stamps([stamp.path for stamp in expected])
    differences = [d for d in map(changed, expected, now) if d is not None]
    if not differences:
        return
    if input_name is None:
        raise InputChanged(
            f"files changed while they were being registered:\n{listed(differences)}",
            left="nothing was registered",
            hint="register them when nothing writes to them any more",
        )
    raise InputChanged(
        f"input {input_name!r} changed since it was registered:\n{listed(differences)}",
        left="partitions that are done were made from the files as they were registered",
        hint="put the file back as it was (content and modification time, as `cp -p` does); or register "
        "the new data under another name, or with replace=True, and start a new run",
        typed="put the file back as it was (content and modification time, as `cp -p` does); or register "
        "the new data with a new run: --run NAME",
    )


def listed(lines: Sequence[str]) -> str:
    """Indented lines for an error message, at most ten of them."""
    shown = [f"  {line}" for line in lines[:_NAMED]]
    if len(lines) > _NAMED:
        shown.append(f"  … and {len(lines) - _NAMED} more")
    return "\n".join(shown)


def open_file(path: str, *, immutable: bool = False) -> pa.NativeFile:
    """A seekable file to read from.

    Only files of our own are mapped into memory: one that somebody else truncates while it is
    mapped would kill the process instead of raising an error.
    """
    if is_url(path):
        filesystem, inside = _resolve(path)
        return filesystem.open_input_file(inside)
    return pa.memory_map(path) if immutable else pa.OSFile(path)


def _find_local(source: str) -> Iterator[FileStamp]:
    root = Path(source).expanduser().resolve()
    if root.exists():
        yield from _below(root)
    elif glob.has_magic(source):
        for match in map(Path, glob.iglob(str(root), recursive=True)):  # noqa: PTH207 - Path.glob needs a base
            if not _hidden(match.name):
                yield from _below(match)
    else:
        raise BadInput(f"there is no file or folder {root}", hint="check the path")


def _below(root: Path) -> Iterator[FileStamp]:
    paths = [str(root)] if root.is_file() else _walk(root)
    yield from (stamp for stamp in map(_stat, paths) if stamp is not None)


def _walk(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _hidden(name)]
        yield from (f"{folder}/{name}" for name in names if not _hidden(name))


def _stat(path: str) -> FileStamp | None:
    try:
        status = Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileStamp(path, status.st_size, status.st_mtime_ns)


def _find_remote(source: str) -> Iterator[FileStamp]:
    if glob.has_magic(urlsplit(source).path):
        raise UsageError(
            f"{source}: patterns work for local paths only", hint="name the folder that holds the files"
        )
    filesystem, root = _resolve(source)
    info = filesystem.get_file_info(root)
    if info.type == fs.FileType.File:
        yield FileStamp(source, info.size or 0, info.mtime_ns or 0)
        return
    url = urlsplit(source)
    selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
    for info in filesystem.get_file_info(selector):
        below = info.path[len(root) :].strip("/")
        if info.type == fs.FileType.File and not any(map(_hidden, below.split("/"))):
            path = urlunsplit(url._replace(path=f"{url.path.rstrip('/')}/{below}"))
            yield FileStamp(path, info.size or 0, info.mtime_ns or 0)


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _format_of(path: str) -> str:
    refuse_compressed([FileStamp(path, 0, 0)])
    suffix = PurePosixPath(urlsplit(path).path if is_url(path) else path).suffix.lower()
    try:
        return _FORMATS[suffix]
    except KeyError:
        raise BadInput(
            f"{path}: the name does not say what format it has",
            hint="give the format (parquet, csv, jsonl or arrow), or leave the file out with a pattern "
            "such as data/*.csv",
        ) from None


def _time(mtime_ns: int) -> str:
    seconds, rest = divmod(mtime_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d} UTC"


def _place(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path="/"))


def _resolve(url: str) -> tuple[fs.FileSystem, str]:
    filesystem, base = filesystem_of(_place(url))
    return filesystem, f"{base}/{urlsplit(url).path.strip('/')}"
