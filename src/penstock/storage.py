"""Where files live: a directory, or an object-store URL that pyarrow knows (s3://, gs://, …).

A file appears under its name only when it is complete: a local one is written beside its place,
flushed to disk and renamed; an object store shows an object only after its upload is closed. What
was written is described by a `FileRecord`, whose checksum is taken on the way through.

A `Storage` holds nothing but its URL, so that it can travel to Spark's executors.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.config import shown_url
from penstock.core.codec import typed
from penstock.core.durable import sync_folder
from penstock.errors import CorruptFile, StorageFull, StorageUnusable, UsageError

if TYPE_CHECKING:
    from io import BufferedWriter

    import pyarrow as pa
    from pyarrow import NativeFile, fs

_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A complete file: where it is, below its storage, and what its bytes were."""

    path: str
    rows: int
    bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FileRecord:
        """Raises `CorruptFile` for what describes no file."""
        try:
            return typed(cls, value, ignores_unknown=True)
        except ValueError as error:
            raise CorruptFile(f"what should describe a file does not: {error}") from error

    def __post_init__(self) -> None:
        """Raises `CorruptFile` for what describes no file below a storage."""
        inside(self.path)
        if self.rows < 0 or self.bytes < 0:
            raise CorruptFile(f"what should describe a file does not: {self.path[:200]!r}")


def inside(path: str) -> str:
    """The path, if it stays below the storage that it is meant for; else `CorruptFile`.

    Paths come out of manifests, which others could have written: no file list may lead elsewhere.
    """
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise CorruptFile(
            f"{path[:200]!r} leads out of the storage",
            left="nothing was read, written or deleted there",
            hint="somebody has changed files of the storage: see who may write to it",
        )
    return path


class Storage:
    """Files under one root, named by relative paths with forward slashes."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        text = os.fspath(root)
        if text.startswith("file://"):
            text = unquote(urlsplit(text).path)
        self.local: Path | None = None if "://" in text else Path(text).absolute()
        self.root: str = str(self.local) if self.local else text.rstrip("/")

    def __repr__(self) -> str:
        return f"Storage({self.root!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    def location(self, path: str) -> str:
        """The path or URL under which other programs, Spark among them, find a file of ours."""
        if not path or self.local:
            return f"{self.root}/{path}" if path else self.root
        # What stands behind the question mark of an URL tells how to reach the store, not where in it.
        base, mark, how = self.root.partition("?")
        return f"{base.rstrip('/')}/{path}{mark}{how}"

    @contextmanager
    def create(self, path: str) -> Iterator[FileWriter]:
        """Write a new file; it is there under ``path`` only when the block ends without an error."""
        with _full_disk(self.root):
            with _unusable(self.root):
                sink = _LocalSink(self._place(path)) if self.local else _RemoteSink(*self._remote(path))
            try:
                yield sink
                with _unusable(self.root):
                    sink.finish()
            except BaseException:
                sink.abandon()
                raise

    def open(self, path: str) -> pa.NativeFile:
        """A seekable file to read from (a memory map where the storage is a directory)."""
        import pyarrow as pa

        if self.local:
            return pa.memory_map(str(self._place(path)))
        filesystem, full = self._remote(path)
        return filesystem.open_input_file(full)

    def read(self, path: str) -> bytes:
        """A whole small file."""
        if self.local:
            return self._place(path).read_bytes()
        with self.open(path) as file:
            return bytes(file.read())

    def write(self, path: str, data: bytes) -> None:
        """A whole small file, replaced as a whole if it exists."""
        with self.create(path) as sink:
            sink.write(data)

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        """Path and size of every file below ``prefix``, sorted."""
        if self.local:
            base = self._place(prefix)
            found = (Path(folder) / name for folder, _, names in os.walk(base) for name in names)
            return sorted(
                (str(f.relative_to(self.local)), size) for f in found if (size := _size(f)) is not None
            )
        from pyarrow import fs

        filesystem, full = self._remote(prefix)
        selector = fs.FileSelector(full, recursive=True, allow_not_found=True)
        strip = len(self._remote("")[1].rstrip("/")) + 1
        infos = filesystem.get_file_info(selector)
        return sorted((i.path[strip:], i.size or 0) for i in infos if i.type == fs.FileType.File)

    def delete(self, prefix: str) -> None:
        """Remove a file, or everything below a folder. Harmless when nothing is there."""
        if self.local:
            import shutil

            target = self._place(prefix)
            if target.is_dir():
                shutil.rmtree(target, ignore_errors=True)
            else:
                target.unlink(missing_ok=True)
            return
        from pyarrow import fs

        filesystem, full = self._remote(prefix)
        kind = filesystem.get_file_info(full).type
        if kind == fs.FileType.Directory:
            filesystem.delete_dir(full)
        elif kind == fs.FileType.File:
            filesystem.delete_file(full)

    def copy(self, path: str, to: str) -> None:
        """The same bytes under another name as well. ``path`` is never written to again, only replaced."""
        if self.local:
            if not _linked(self._place(path), self._place(to)):
                self.write(to, self._place(path).read_bytes())
            return
        (filesystem, full), (_, target) = self._remote(path), self._remote(to)
        try:
            filesystem.copy_file(full, target)
        except FileNotFoundError:  # a file system with real folders
            filesystem.create_dir(target.rpartition("/")[0], recursive=True)
            filesystem.copy_file(full, target)

    def move(self, files: Sequence[tuple[str, str]]) -> None:
        """Give new files, which nothing refers to yet, other names. Only on a local disk.

        The names last once each file is sealed.
        """
        places = [(self._place(path), self._place(to)) for path, to in files]
        folders = {to.parent for _, to in places}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        for path, to in places:
            path.rename(to)
        for above in {folder.parent for folder in folders}:
            sync_folder(above, missing_ok=True)

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders right below ``prefix``, sorted."""
        if self.local:
            with suppress(FileNotFoundError):
                return tuple(sorted(each.name for each in os.scandir(self._place(prefix)) if each.is_dir()))
            return ()
        depth = prefix.count("/") + 1
        found = {path.split("/")[depth] for path, _ in self.list(prefix) if path.count("/") > depth}
        return tuple(sorted(found))

    def remove_empty(self, prefix: str) -> None:
        """Remove the folders below ``prefix`` that have no files, and itself if it has none."""
        if self.local:
            for folder, _, _ in os.walk(self._place(prefix), topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()

    def remove_folder(self, folder: str) -> None:
        """Remove one folder if it is empty; what lies below it is left alone."""
        if self.local:
            with suppress(OSError):
                self._place(folder).rmdir()

    def probe(self) -> None:
        """Raise `StorageFull` or `StorageUnusable` if not even a small file can be written now."""
        path = f".probe-{uuid.uuid4().hex[:8]}"
        try:
            self.write(path, b"\0" * (1 << 16))
            self.delete(path)
        except StorageUnusable:
            raise
        except OSError as error:
            # An object store has no error numbers: a bucket that is not there, credentials that are refused.
            raise _unwritable(self.root, error) from error

    def seal(self, path: str) -> tuple[int, str]:
        """Size and SHA-256 of a file that somebody else wrote, after making it durable."""
        if self.local:
            # Bytes that other processes have written are synced while they are read.
            with self._place(path).open("rb", buffering=0) as raw, ThreadPoolExecutor(1) as other:
                synced = other.submit(os.fsync, raw.fileno())
                digest, size = hashlib.file_digest(raw, hashlib.sha256), raw.tell()
                synced.result()
            sync_folder(self._place(path).parent, missing_ok=True)
            return size, digest.hexdigest()
        digest, size = hashlib.sha256(), 0
        with self.open(path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        return size, digest.hexdigest()

    def check(self, record: FileRecord) -> None:
        """Raise `CorruptFile` unless the file is there with the bytes that were recorded."""
        where = shown_url(self.location(record.path))
        try:
            size, sha256 = self.seal(record.path)
        except FileNotFoundError:
            raise CorruptFile(f"{where} is missing") from None
        if size != record.bytes:
            raise CorruptFile(f"{where} has {size} bytes, not {record.bytes}")
        if sha256 != record.sha256:
            raise CorruptFile(f"{where} does not match its checksum")

    def _place(self, path: str) -> Path:
        assert self.local is not None
        return self.local / inside(path)

    def _remote(self, path: str) -> tuple[fs.FileSystem, str]:
        filesystem, base = filesystem_of(self.root)
        inside(path)
        return filesystem, f"{base}/{path}" if path else base


class FileWriter(ABC):
    """A file being written: pass it to pyarrow as a file object."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
        self.size += view.nbytes
        self._put(view)
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:  # noqa: B027
        """Nothing to do: durability comes with `finish`."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:  # noqa: B027
        """Pyarrow closes what it writes to; the file is finished by `Storage.create` alone."""

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, path: str, rows: int) -> FileRecord:
        return FileRecord(path, rows, self.size, self._digest.hexdigest())

    @abstractmethod
    def _put(self, view: memoryview) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...

    @abstractmethod
    def abandon(self) -> None: ...


class _LocalSink(FileWriter):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
        self._file = self._opened()

    def _opened(self) -> BufferedWriter:
        while True:
            _make_folder(self._path.parent)
            # Somebody who sweeps empty folders may be faster than we are.
            with suppress(FileNotFoundError):
                return self._temporary.open("wb")

    def _put(self, view: memoryview) -> None:
        self._file.write(view)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)
        sync_folder(self._path.parent, missing_ok=True)

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class _RemoteSink(FileWriter):
    """An upload. Pyarrow completes one when it is closed or forgotten, and cannot give it up.

    So it is begun as late as possible: a small file is sent as a whole when it is finished. A large one goes
    to its own name if nothing has that, and otherwise to a name beside, from which it is moved.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        super().__init__()
        self._filesystem, self._path = filesystem, path
        self._waiting: list[bytes] = []
        self._upload: NativeFile | None = None
        self._name = path

    def _put(self, view: memoryview) -> None:
        if self._upload is None and self.size <= _CHUNK:
            self._waiting.append(bytes(view))
            return
        self._begin().write(view)

    def finish(self) -> None:
        self._begin().close()
        if self._name != self._path:
            self._filesystem.move(self._name, self._path)

    def abandon(self) -> None:
        if self._upload is None:
            return
        with suppress(OSError):
            self._upload.close()
        if not self._whole:
            with suppress(OSError):
                self._filesystem.delete_file(self._name)

    @property
    def _whole(self) -> bool:
        """Whether all of the file was sent at once: then its name has the old bytes or the new ones."""
        return self.size <= _CHUNK

    def _begin(self) -> NativeFile:
        if self._upload is None:
            if not self._whole and self._stands():
                folder, _, name = self._path.rpartition("/")
                self._name = f"{folder}/.{name}.{uuid.uuid4().hex[:8]}.tmp"
            self._upload = self._opened()
            for data in self._waiting:
                self._upload.write(data)
            self._waiting.clear()
        return self._upload

    def _stands(self) -> bool:
        from pyarrow import fs

        return bool(self._filesystem.get_file_info(self._path).type != fs.FileType.NotFound)

    def _opened(self) -> NativeFile:
        try:
            return self._filesystem.open_output_stream(self._name, compression=None)
        except FileNotFoundError:  # a file system with real folders
            self._filesystem.create_dir(self._name.rpartition("/")[0], recursive=True)
            return self._filesystem.open_output_stream(self._name, compression=None)


def _linked(source: Path, place: Path) -> bool:
    """Give a file another name that lasts; False where there are no links to this place."""
    while True:
        _make_folder(place.parent)
        try:
            os.link(source, place)
        except FileNotFoundError:
            # Somebody who sweeps empty folders may be faster than we are.
            if not source.exists():
                raise
        except OSError:  # another file system, or one without links
            return False
        else:
            sync_folder(place.parent, missing_ok=True)
            return True


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_folder(made.parent, missing_ok=True)


def _size(file: Path) -> int | None:
    """None for a file that was renamed or removed since it was listed."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


@contextmanager
def _full_disk(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(
                f"no space left at {root}",
                left="complete files and checkpoints are kept; the unfinished file was removed",
                hint="free some space, then run the same command again",
            ) from error
        raise


# What the next file would meet as well. A file that stands where a folder should is one of them.
_PLACE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP,
    errno.ENODEV, errno.ENXIO, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EMFILE, errno.ENFILE,
}  # fmt: skip


@contextmanager
def _unusable(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _PLACE:
            raise
        raise _unwritable(root, error) from error


def _unwritable(root: str, error: OSError) -> StorageUnusable:
    why = error.strerror or str(error).splitlines()[0]
    what = f"nothing can be written to {root}: {why}"
    if error.filename and str(error.filename) != root:
        what += f" ({error.filename})"
    return StorageUnusable(
        what,
        left="complete files and checkpoints are kept",
        hint="make that place writable, then run the same command again",
    )


@cache
def filesystem_of(root: str) -> tuple[fs.FileSystem, str]:
    """The file system behind an URL, and the URL's path in it without a slash at the end."""
    from pyarrow import ArrowInvalid, fs

    try:
        filesystem, base = fs.FileSystem.from_uri(root)
    except (ArrowInvalid, ValueError) as error:
        raise UsageError(
            f"{root} is not a place for files: {error}",
            hint="use a directory, or an URL such as s3://bucket/prefix or gs://bucket/prefix",
        ) from error
    return filesystem, base.rstrip("/")
