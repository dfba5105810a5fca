"""The bytes of one fragment, uncompressed as they are asked for, and checked against its name."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tempfile
import threading
import zlib
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import IO, Any, Protocol

from penstock.errors import BadInput, CorruptFile
from penstock.journals.format.fragments import Codec, Fragment
from penstock.storage import Storage

_log = logging.getLogger(__name__)

BLOCK = 1 << 20

Identity = tuple[str, str, int | None, int | None]

_checked: dict[Identity, None] = {}
_compared: dict[tuple[Identity, Identity], None] = {}
_checked_lock = threading.Lock()
_MOST_CHECKED = 10_000


class Content:
    """Reads the uncompressed bytes of a fragment from its begin.

    A file that ends too early, goes on too long, cannot be uncompressed or has another SHA-1 is a
    `CorruptFile`, at the latest when its last byte is read. A file that is not there is a FileNotFoundError.
    """

    def __init__(self, storage: Storage, fragment: Fragment, file: IO[bytes] | None = None) -> None:
        codec = fragment.codec
        self._storage = storage
        self._fragment = fragment
        self._file = _Watched(file if file is not None else _opened(storage, fragment.path))
        self._stream = _uncompressed(self._file, codec)
        self._digest: Any = hashlib.sha1(usedforsecurity=False)
        self.position = fragment.begin

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes from the position on; none at the end of the fragment."""
        data = self._read(min(size, self._fragment.end - self.position))
        self.position += len(data)
        if self._digest is not None:
            self._digest.update(data)
        if self.position == self._fragment.end:
            self._check_end()
        elif not data and size:
            raise corrupt(self._storage, self._fragment, f"it ends at byte {self.position:,}")
        return data

    def go_to(self, offset: int) -> None:
        """Pass over the bytes before ``offset``. They are read, unless this file was found right before."""
        if self._fragment.codec is Codec.RAW and is_checked(self._storage, self._fragment):
            self._file.seek(offset - self._fragment.begin)
            self._digest, self.position = None, offset
        while self.position < offset:
            self.read(min(BLOCK, offset - self.position))

    def close(self) -> None:
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._file.close()

    def _read(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if self._file.failure is not None:
                raise self._file.failure from None
            what = f"it cannot be uncompressed behind byte {self.position:,}: {error}"
            raise corrupt(self._storage, self._fragment, what) from error

    def _check_end(self) -> None:
        if self._read(1):
            raise corrupt(self._storage, self._fragment, f"it goes on behind byte {self._fragment.end:,}")
        if self._digest is not None and self._digest.hexdigest() != self._fragment.sha1:
            what = f"the SHA-1 of its bytes is {self._digest.hexdigest()}"
            raise corrupt(self._storage, self._fragment, what)


def open_checked(storage: Storage, fragment: Fragment) -> Content:
    """A fragment to be read, after all of it was found right.

    It is read twice therefore, the first time that this process opens it. One from an object store is
    fetched once, into a temporary file.
    """
    if is_checked(storage, fragment):
        return Content(storage, fragment)
    identity = _identity(storage, fragment)
    if storage.local is not None:
        _read_all(Content(storage, fragment))
        content = Content(storage, fragment)
    else:
        with _fetched(storage, fragment) as file:
            _read_all(Content(storage, fragment, _again(file)))
            content = Content(storage, fragment, _again(file))
    _remember(_checked, identity)
    return content


def check_agreement(storage: Storage, fragment: Fragment, others: Iterable[Fragment]) -> None:
    """Compare a fragment with others that hold some of the same bytes, once in this process.

    Raises `CorruptFile` if they differ: nobody can know which bytes are the journal's. Another one that is
    not even what its own name says is told of, and does no harm.
    """
    for other in others:
        begin, end = max(fragment.begin, other.begin), min(fragment.end, other.end)
        if other.path == fragment.path or other.is_spool or begin >= end:
            continue
        try:
            key = _identity(storage, fragment), _identity(storage, other)
            if key not in _compared:
                _compare(storage, fragment, other, begin, end)
                _remember(_compared, key)
        except FileNotFoundError:
            continue  # it is gone, or whoever reads the fragment will say that it is


def _compare(storage: Storage, fragment: Fragment, other: Fragment, begin: int, end: int) -> None:
    try:
        with closing(Content(storage, fragment)) as one, closing(Content(storage, other)) as two:
            different = difference(one, two, begin, end)
        if different is not None:
            # Are both what their names say? The first difference was found before their last byte.
            _read_all(Content(storage, other))
            _read_all(Content(storage, fragment))
    except (CorruptFile, BadInput) as error:
        _log.warning("one of two fragments with the bytes %d to %d is not right: %s", begin, end, error)
        return
    if different is not None:
        raise CorruptFile(
            f"{place(storage, other.path)} has other bytes from offset {different:,} on than "
            f"{place(storage, fragment.path)}",
            left="nothing is read of the journal there, since it cannot be known which ones are right",
            hint="find out which file is the journal's, and move the other one away",
        )


class Readable(Protocol):
    """Bytes of a journal, from one offset on."""

    def read(self, size: int) -> bytes: ...

    def go_to(self, offset: int) -> None: ...


def difference(one: Readable, other: Readable, begin: int, end: int) -> int | None:
    """The first offset from ``begin`` to ``end`` at which two files have other bytes."""
    one.go_to(begin)
    other.go_to(begin)
    while begin < end:
        data = one.read(min(BLOCK, end - begin))
        same = _exactly(other, len(data))
        if data != same:
            return begin + next(n for n, (a, b) in enumerate(zip(data, same, strict=True)) if a != b)
        begin += len(data)
    return None


def is_checked(storage: Storage, fragment: Fragment) -> bool:
    """Whether this process has found the file right, as it is now."""
    return _identity(storage, fragment) in _checked


def place(storage: Storage, path: str) -> str:
    """Where a file is, for people to read."""
    return storage.location(path) if storage.local else path


def corrupt(storage: Storage, fragment: Fragment, what: str) -> CorruptFile:
    return CorruptFile(
        f"{place(storage, fragment.path)} is not what its name says: {what}",
        left="nothing was changed; other fragments are not affected",
        hint="bring the file back from a copy; if another fragment holds the same bytes, move this one away",
    )


class _Watched:
    """A file that remembers why it could not be read, which a decompressor may say in other words.

    Closing a decompressor does not close it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: OSError | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._file.read(size))
        except OSError as error:
            self.failure = error
            raise

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _uncompressed(file: _Watched, codec: Codec) -> Any:
    if codec is Codec.RAW:
        return file
    if codec is Codec.GZIP:
        return gzip.GzipFile(fileobj=file, mode="rb")
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


def _opened(storage: Storage, path: str) -> IO[bytes]:
    if storage.local:
        # Not a memory map: a file that is cut off while it is read must be an error, not a signal.
        return (storage.local / path).open("rb", buffering=0)
    import pyarrow as pa

    buffered: IO[bytes] = pa.BufferedInputStream(storage.open(path), 4 * BLOCK)
    return buffered


def _fetched(storage: Storage, fragment: Fragment) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asks for it closes it
    try:
        with _opened(storage, fragment.path) as source:
            while block := source.read(4 * BLOCK):
                file.write(block)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _again(file: IO[bytes]) -> IO[bytes]:
    """The same file from its begin, to be closed by itself."""
    os.lseek(file.fileno(), 0, os.SEEK_SET)
    return os.fdopen(os.dup(file.fileno()), "rb")


def _remember(known: dict[Any, None], key: object) -> None:
    with _checked_lock:
        if len(known) >= _MOST_CHECKED:
            known.clear()
        known[key] = None


def _exactly(content: Readable, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += content.read(size - len(data))
    return data


def _read_all(content: Content) -> None:
    with closing(content):
        while content.read(BLOCK):
            pass


def _identity(storage: Storage, fragment: Fragment) -> Identity:
    if storage.local is None:
        return storage.root, fragment.path, None, None
    status = (storage.local / fragment.path).stat()
    return storage.root, fragment.path, status.st_size, status.st_mtime_ns
