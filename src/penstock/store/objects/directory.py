"""A directory as a bucket, for processes of one machine or of several that mount it.

An object is written beside its place, synced, and then linked to its name: the link fails when the name is
taken, and nobody ever sees half of a file, not even after a power failure. The libraries that offer local
buckets link first and do not sync. Folders are synced by those who write *and* by those who read, so that
nobody acts on a version that a power failure could still take back. They are synced before something is
removed, too: a power failure must not bring back what a tombstone covered, and not the tombstone.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.core.durable import sync_folder
from penstock.errors import PenstockError, StorageFull, StoreUnavailable, UsageError
from penstock.store.objects.bucket import Bucket, Found

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EROFS,
    }
)

# How many folders are remembered as durable: in a month there are millions.
_SETTLED = 4096


class DirectoryBucket(Bucket):
    """Files below ``root``, which is made, durably, when something is written."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._settled: set[Path] = set()

    def create(self, path: str, body: bytes) -> None:
        target = self._root / path
        with self._explained():
            if target.exists():
                raise FileExistsError(path)
            missing = [above for above in self._root.parents if not above.exists()]
            while not self._link_new(target, body, missing):
                pass
            # It was there. Whoever removed it since, and its folder with it, has seen it.
            sync_folder(target.parent, missing_ok=True)

    def read(self, path: str) -> bytes | None:
        target = self._root / path
        with self._explained():
            try:
                body = target.read_bytes()
                sync_folder(target.parent)
            except FileNotFoundError:
                return None
            return body

    def list(self, folder: str, after: str = "") -> Sequence[Found]:
        with self._explained():
            return list(_walk(self._root / folder, folder, after))

    def delete(self, paths: Iterable[str]) -> None:
        targets = [self._root / path for path in paths]
        with self._explained():
            # Whoever removed what was there before need not have come to this.
            for parent in {target.parent for target in targets}:
                sync_folder(parent, missing_ok=True)
            for target in targets:
                target.unlink(missing_ok=True)
                with suppress(OSError):  # others are in it
                    for folder in self._within(target.parent)[:-1]:
                        folder.rmdir()
                        self._settled.discard(folder)

    def close(self) -> None:
        """Nothing to let go of."""

    def _link_new(self, target: Path, body: bytes, missing: Sequence[Path]) -> bool:
        """Make the object; False, and nothing is made, if the folder was removed before it was in it."""
        temporary = target.with_name(f"{target.name}#{secrets.token_hex(4)}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            # Nobody can remove the folder from now on. If it is a new one, its maker need not have synced it.
            if target.parent not in self._settled or not _holds_objects(target.parent):
                self._settle(target.parent, missing)
            os.link(temporary, target)
        except FileNotFoundError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _settle(self, folder: Path, missing: Sequence[Path]) -> None:
        """Make ``folder`` and those above it durable, whoever made them."""
        within = self._within(folder)
        for made in (*within, *missing):
            with suppress(PermissionError):  # where we may not even look, we made nothing
                sync_folder(made.parent)
        if len(self._settled) > _SETTLED:
            self._settled.clear()
        self._settled.add(folder)

    def _within(self, folder: Path) -> Sequence[Path]:
        """``folder`` and those above it, the root last."""
        return [above for above in (folder, *folder.parents) if above.is_relative_to(self._root)]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise self._explain(error) from error

    def _explain(self, error: OSError) -> PenstockError:
        if error.errno in _FULL:
            return StorageFull(
                f"no space left for the store in {self._root}",
                left="everything that was committed is kept; this write was not made",
                hint="free some space, then run the same command again",
            )
        if error.errno in _LASTING:
            return UsageError(
                f"cannot use {self._root} as a store: {error}", hint="check path and permissions"
            )
        return StoreUnavailable(f"the store in {self._root} did not answer: {error}", hint="try again")


def _holds_objects(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any("#" not in entry.name for entry in entries)


def _walk(folder: Path, path: str, after: str) -> Iterator[Found]:
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            below = f"{path}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, below, after)
            elif below > after and (modified := _modified(entry)) is not None:
                yield Found(below, modified)


def _modified(entry: os.DirEntry[str]) -> float | None:
    """None for a file that was removed since it was listed."""
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return None
