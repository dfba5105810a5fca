"""What the object store needs of a bucket: objects that are created once, read, listed and removed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from penstock.core.packages import need
from penstock.errors import UsageError

_FORMS = "s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix or file:///absolute/directory"
_REMOTE = frozenset({"s3", "gs", "az"})

Item = TypeVar("Item")
Result = TypeVar("Result")


class Found(NamedTuple):
    """An object of a listing, and when it was written, by the clock of whatever holds the bucket."""

    path: str
    modified: float


class Bucket(ABC):
    """Objects under slash-separated paths; an object appears as a whole or not at all.

    Every method raises `StoreUnavailable` when there is no answer (for `create`: and nobody knows whether the
    object was made), and other errors of ours, for good, when trying again cannot help.
    """

    @abstractmethod
    def create(self, path: str, body: bytes) -> None:
        """Make an object durable. Raises `FileExistsError` when one is there, which stays as it is."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The bytes of an object, which are durable; None when there is none."""

    @abstractmethod
    def list(self, folder: str, after: str = "") -> Sequence[Found]:
        """Every object below ``folder`` whose path is greater than ``after``, in any order."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects, in any order. Harmless for one that is not there.

        Some may stay without a word: who relies on their absence lists them again. What was removed before
        the call, by anybody, does not come back after a power failure unless these do, too.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of threads and connections."""

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Sequence[Result]:
        """What ``function``, which uses this bucket, gives for each item; at once where that is faster."""
        return [function(item) for item in items]


def open_bucket(url: str) -> Bucket:
    """The bucket that ``url`` names. No request is made yet."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and len(parts.path) > 1:
        from penstock.store.objects.directory import DirectoryBucket

        return DirectoryBucket(Path(unquote(parts.path)))
    if parts.scheme in _REMOTE and parts.netloc:
        need("buckets", f"a store at {parts.scheme}://")
        from penstock.store.objects.remote import RemoteBucket

        return RemoteBucket(url)
    raise UsageError(f"{url!r} does not name a bucket or directory", hint=f"write {_FORMS}")
