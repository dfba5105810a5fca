"""Finding journals and their fragments below a root: folders by scanning, object stores by one listing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadInput
from penstock.journals.format import names
from penstock.journals.format.fragments import Fragment, is_of_journal, parse, spool_begin
from penstock.journals.format.spool import SpoolReader
from penstock.storage import Storage, filesystem_of


@dataclass(frozen=True, slots=True)
class File:
    """A file of a journal, by its path below the root. ``size`` and ``modified`` only where known."""

    path: str
    size: int | None = None
    modified: float | None = None

    @property
    def journal(self) -> str:
        return names.of_folder(self.path.rpartition("/")[0])


def journal_names(storage: Storage, prefix: str) -> list[str]:
    """The names of all journals that begin with ``prefix``, sorted.

    Raises `BadInput` if there are fragments in a folder that cannot be that of a journal.
    """
    found = folders(storage, prefix)
    wrong = next((error for name in found if (error := misplaced(storage, name)) is not None), None)
    if wrong is not None:
        raise wrong
    return found


def folders(storage: Storage, prefix: str) -> list[str]:
    """The folders below the root with fragments or spools in them, sorted, whatever they are called."""
    start = prefix.rpartition("/")[0]
    if storage.local is None:
        found = {file.journal for file in objects(storage, prefix) if is_of_journal(file.path)}
    else:
        found = {name for name in _local_names(storage.local, start) if name.startswith(prefix)}
    return sorted(found)


def misplaced(storage: Storage, folder: str) -> BadInput | None:
    """The error about fragments in a folder that cannot be that of a journal; None if it can."""
    wrong = names.problem(folder)
    if wrong is None:
        return None
    place = f"{storage.root}/{folder}" if folder else storage.root
    return BadInput(
        f"there are fragments in {place!r}, which cannot be a journal: "
        + (wrong if folder else "it is the root itself"),
        left="nothing was read",
        hint="move them to where they belong" if folder else "take the folder above it for the root",
    )


def everything(storage: Storage, prefix: str) -> dict[str, list[File]]:
    """The files of all journals that begin with ``prefix``, with their sizes and times."""
    if storage.local is not None:
        return {name: list(files(storage, name, details=True)) for name in journal_names(storage, prefix)}
    found: dict[str, list[File]] = {}
    for file in objects(storage, prefix):
        found.setdefault(file.journal, []).append(file)
    known = [name for name in sorted(found) if any(is_of_journal(file.path) for file in found[name])]
    return {name: found[name] for name in known if names.problem(name) is None}


def objects(storage: Storage, prefix: str) -> Iterator[File]:
    """All files of an object store in folders that begin with ``prefix``, in one listing."""
    for file in _objects(storage, prefix.rpartition("/")[0], deep=True):
        if file.journal.startswith(prefix):
            yield file


def files(storage: Storage, journal: str, *, details: bool = False) -> Iterator[File]:
    """All files of a journal, hidden ones too. Local ones have ``details`` only if they are asked for."""
    deep = names.has_pivot(journal)
    if storage.local is not None:
        return _local_files(storage.local, journal, deep, details)
    return (file for file in _objects(storage, journal, deep=deep) if file.journal == journal)


def fragments(storage: Storage, journal: str) -> list[Fragment]:
    """The fragments of a journal and its spool, sorted; none if there is no such journal.

    A scan of a folder may miss both the fragment that just came and the spool that just went: a folder that
    changed meanwhile is scanned again.
    """
    found: list[Fragment] = []
    for attempt in range(10):
        before = _changed(storage, journal)
        found = [each for file in files(storage, journal) if (each := as_fragment(storage, file))]
        if before == _changed(storage, journal):
            break
        time.sleep(0.001 * attempt)
    return sorted(found)


def as_fragment(storage: Storage, file: File) -> Fragment | None:
    """What a file is: a fragment, a spool as it is now, or None for another one or one that is gone.

    Raises `BadInput` for a name that nothing in the folder of a journal may have.
    """
    if spool_begin(file.path.rpartition("/")[2]) is None:
        return parse(file.path, size=file.size, modified=file.modified)
    if storage.local is None:
        return None
    try:
        reader = SpoolReader(storage.local / file.path)
    except FileNotFoundError:
        return None
    try:
        end = reader.announced()
        return Fragment(reader.begin, end, "", ".spool", file.path, file.size, file.modified)
    finally:
        reader.close()


def _local_names(root: Path, start: str) -> Iterator[str]:
    folders = [start]
    while folders:
        folder = folders.pop()
        below: list[str] = []
        is_journal = False
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if entry.name[0] != "." and entry.is_dir():
                        below.append(f"{folder}/{entry.name}" if folder else entry.name)
                    else:
                        is_journal = is_journal or is_of_journal(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if is_journal:
            yield names.of_folder(folder)
        folders += below


def _local_files(root: Path, folder: str, deep: bool, details: bool) -> Iterator[File]:
    below: list[str] = []
    try:
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}"
                if entry.name[0] != "." and entry.is_dir():
                    below.append(path)
                elif not details:
                    yield File(path)
                elif (status := _status(entry)) is not None:
                    yield File(path, status.st_size, status.st_mtime)
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in below if deep else ():
        yield from _local_files(root, path, deep, details)


def _objects(storage: Storage, folder: str, *, deep: bool) -> Iterator[File]:
    from pyarrow import fs

    filesystem, base = filesystem_of(storage.root)
    selector = fs.FileSelector(f"{base}/{folder}" if folder else base, recursive=deep, allow_not_found=True)
    for info in filesystem.get_file_info(selector):
        path = info.path[len(base) + 1 :]
        # As in folders: what lies below a hidden one is somebody else's.
        if info.type == fs.FileType.File and "/." not in f"/{path.rpartition('/')[0]}":
            modified = info.mtime_ns / 1e9 if info.mtime_ns is not None else None
            yield File(path, info.size or 0, modified)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """None for a file that is gone since it was listed."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None


def _changed(storage: Storage, journal: str) -> int | None:
    """When a folder last changed, where that can be told."""
    try:
        return (storage.local / journal).stat().st_mtime_ns if storage.local else None
    except OSError:
        return None
