"""Spark's checkpoint of an output: a folder for each owner, and what the next owner takes over of it.

Spark checks and then renames, and fences nobody: of two that write to one folder, the one that lost the
output may replace the offsets and the state of the one that has it. So each owner, known by its token, has a
folder of its own, which begins as a copy of the one before. Whatever a late owner still writes, nobody reads.

Spark does not sync what it writes either. So a batch goes to its sink only when the checkpoint up to its plan
is on disk, and the claim says so. One whose state a power failure may have taken is computed again; its
epochs are kept until then. If a sink has batch n, the next owner therefore begins after batch n - 1 at least,
and with the same plan of batch n: that is never made anew.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from penstock.core.durable import sync_folder
from penstock.core.failpoints import reach
from penstock.errors import StreamMismatch
from penstock.storage import Storage

_log = logging.getLogger(__name__)

_AT_ONCE = 8
# Files of the state: `12.changelog`, `12.zip`, `12_UNIQUE.zip`, `12.delta`, `12.snapshot`.
_VERSION = re.compile(r"(\d+)(?:_[^.]*)?\.(?:changelog|zip|delta|snapshot)")


def folder_of(output: str, token: int) -> str:
    """Where an owner's checkpoint is, below the folder of its output; 0 is what all owners once shared."""
    return f"{output}/checkpoints/{token:016}" if token else f"{output}/checkpoint"


class SparkCheckpoint:
    """The checkpoint of one owner of an output."""

    def __init__(self, storage: Storage, output: str, token: int) -> None:
        self._storage = storage
        self._output = output
        self._token = token
        self.folder = folder_of(output, token)
        self._synced: frozenset[tuple[str, int]] = frozenset()

    def take_over(self, before: int, safe: int | None) -> None:
        """Begin with what the owner with the token ``before`` left. Harmless when repeated.

        ``safe`` is the last batch of which everything was synced, as far as that is known. The sink may have
        the one after it, so that going back further would give that one other rows: `StreamMismatch` if
        ``safe`` is not whole any more. Nothing is removed then.
        """
        source = folder_of(self._output, before)
        left = _Left(self._storage, source)
        last = left.last(safe)
        if safe is not None and last < safe:
            raise StreamMismatch(
                f"Spark's checkpoint in {self._storage.location(source)} is not whole: "
                f"batch {safe} was complete in it, and now {_told(last)}",
                left="everything as it was",
                hint="restore that folder from a backup, or give the output a new name to compute it anew",
            )
        self._storage.delete(self.folder)
        taken = left.taken(last)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda path: self._copy(source, path), taken))
        self.sync()
        reach("output.taken")

    def remove_others(self) -> None:
        """Delete the checkpoints of earlier owners, once ours is the one to go on from."""
        self._storage.delete(folder_of(self._output, 0))
        for name in self._storage.folders(f"{self._output}/checkpoints"):
            if name.isdecimal() and int(name) < self._token:
                self._storage.delete(folder_of(self._output, int(name)))

    def sync(self) -> None:
        """See that what Spark wrote so far survives a power failure, where it is in a directory."""
        if self._storage.local is None:
            return
        root = self._storage.local / self.folder
        found = frozenset(_entries(root))
        for path, _ in found - self._synced:
            # What Spark removes meanwhile is not needed.
            with suppress(FileNotFoundError):
                _sync(root / path)
        for folder in {str(Path(path).parent) for path, _ in found - self._synced}:
            sync_folder(root / folder, missing_ok=True)
        if not self._synced:
            for above in (root, root.parent, root.parent.parent):
                sync_folder(above, missing_ok=True)
        self._synced = found

    def _copy(self, source: str, path: str) -> None:
        # An owner that does not know yet that it lost the output may tidy up; it removes what is old.
        with suppress(FileNotFoundError):
            self._storage.copy(f"{source}/{path}", f"{self.folder}/{path}")


class _Left:
    """What an owner left in its folder, which it may still be writing to.

    Its batches are listed before its offsets and its state: what is complete then stays complete. Files that
    are hidden are unfinished, or checksums of files that may be replaced under them; Spark needs neither.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._commits = self._numbered("commits")
        strip = len(folder) + 1
        listed = {path[strip:]: size for path, size in storage.list(folder)}
        self._sizes = {path: size for path, size in listed.items() if not _is_hidden(path)}
        self._offsets = self._numbered("offsets")

    def taken(self, last: int) -> list[str]:
        """The files to go on with: those of batches up to ``last``, and the plan of the one after them."""
        planned = last + 1 if self._is_whole("offsets", last + 1) else last
        if planned < 0:
            return []
        return [path for path in self._sizes if self._is_wanted(path, last, planned)]

    def last(self, safe: int | None) -> int:
        """The last batch that need not be repeated; -1 for none."""
        stateful = any(path.startswith("state/") for path in self._sizes)
        limited = safe is not None and stateful and self._storage.local is not None
        for number in sorted(self._commits & self._offsets, reverse=True):
            if limited and safe is not None and number > safe:
                continue
            if self._is_whole("commits", number) and self._is_whole("offsets", number):
                return number
        return -1

    def _is_wanted(self, path: str, last: int, planned: int) -> bool:
        top, _, rest = path.partition("/")
        if top in ("commits", "offsets"):
            return rest.isdecimal() and int(rest) <= (last if top == "commits" else planned)
        if top != "state":
            return self._sizes[path] > 0
        version = _VERSION.fullmatch(path.rpartition("/")[2])
        if version is None:
            return True
        # The state after a batch has the number of the next one.
        return int(version[1]) <= last + 1 and (not path.endswith(".zip") or self._is_sound(path))

    def _is_whole(self, kind: str, number: int) -> bool:
        """Whether a line of the log is there as Spark wrote it: a version, and JSON in each line."""
        if number not in (self._commits if kind == "commits" else self._offsets):
            return False
        try:
            version, *lines = self._storage.read(f"{self._folder}/{kind}/{number}").decode().splitlines()
            return version.startswith("v") and bool(lines) and all(_is_json(line) for line in lines)
        except (FileNotFoundError, ValueError):
            return False

    def _is_sound(self, path: str) -> bool:
        """Whether a snapshot of the state, and the files that it names, are all there.

        Spark writes them at any time, so that nobody has synced the newest ones. Without it, the state is
        made from an older snapshot and the changes since.
        """
        if self._storage.local is None:
            return True
        try:
            with zipfile.ZipFile(self._storage.local / self._folder / path) as snapshot:
                if snapshot.testzip() is not None:
                    return False
                told = [snapshot.read(name).decode() for name in snapshot.namelist() if name == "metadata"]
            files = [file for text in told for file in _named(text)]
        except FileNotFoundError:
            return False
        except (zipfile.BadZipFile, ValueError, KeyError, TypeError):
            _log.warning("%s cannot be read and is left out", self._storage.location(path))
            return False
        folder = path.rpartition("/")[0]
        return all(self._sizes.get(f"{folder}/{name}") == size for name, size in files)

    def _numbered(self, kind: str) -> frozenset[int]:
        names = (path.rpartition("/")[2] for path, _ in self._storage.list(f"{self._folder}/{kind}"))
        return frozenset(int(name) for name in names if name.isdecimal())


def _told(last: int) -> str:
    return f"batch {last} is the last one" if last >= 0 else "none is"


def _named(text: str) -> Iterator[tuple[str, int]]:
    """The files that a snapshot of RocksDB shares with others, and their sizes."""
    told = json.loads(text.partition("\n")[2])
    for key, folder in (("sstFiles", "SSTs"), ("logFiles", "logs")):
        for file in told.get(key) or ():
            name = file.get("dfsSstFileName") or file.get("dfsLogFileName")
            yield f"{folder}/{name}", int(file["sizeBytes"])


def _entries(folder: Path) -> Iterator[tuple[str, int]]:
    """Path and inode of every file that is complete."""
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        with suppress(FileNotFoundError), os.scandir(current) as found:
            for each in found:
                if each.name.startswith("."):
                    continue
                if each.is_dir(follow_symlinks=False):
                    waiting.append(Path(each.path))
                else:
                    yield os.path.relpath(each.path, folder), each.inode()


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return line == "-"  # a source without an offset
    return True
