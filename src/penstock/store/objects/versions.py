"""Folders of numbered versions, each made once and never changed.

Every version names the write that made it. That tells a conflict from an answer that was lost: a client that
tries again, ours or one inside a library, finds its own write where it wanted to write.
"""

from __future__ import annotations

import base64
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import CorruptFile, StoreUnavailable, UsageError
from penstock.store.objects.bucket import Bucket, open_bucket
from penstock.store.objects.names import version_name, version_of

_PAUSES = (0.02, 0.1, 0.4)


@dataclass(frozen=True, slots=True)
class Record:
    """What a version holds: the ids of its write and of the version before it, and a value if it has one."""

    id: str
    after: str | None
    value: bytes | None

    def to_json(self) -> bytes:
        head: dict[str, str | None] = {"id": self.id, "after": self.after}
        return json.dumps(head | _encoded(self.value), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, body: bytes) -> Record:
        """Raises `ValueError` for what `to_json` did not write."""
        found: Any = json.loads(body)
        match found:
            case {"id": str(name), "after": str() | None as after, **value}:
                return cls(name, after, _decoded(value))
        raise ValueError("no id, or not what follows which version")


class Version(NamedTuple):
    """A version as a listing shows it: its number, and when it was written by the bucket's clock."""

    number: int
    modified: float


class Versions:
    """The versions in the bucket at ``url``, by folder and number."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bucket: Bucket | None = open_bucket(url)

    @property
    def bucket(self) -> Bucket:
        if self._bucket is None:
            raise UsageError(f"{self._url} was closed", hint="open the store again")
        return self._bucket

    def close(self) -> None:
        bucket, self._bucket = self._bucket, None
        if bucket is not None:
            bucket.close()

    def list(self, folder: str, begin: int = 1) -> Sequence[Version]:
        """The versions of a folder from number ``begin``, oldest first."""
        # A listing cannot begin at a name, only after one.
        after = f"{folder}/{version_name(begin - 1)}" if begin > 1 else ""
        found = ((version_of(each.path.rpartition("/")[2]), each) for each in self.bucket.list(folder, after))
        return sorted(Version(number, each.modified) for number, each in found if number is not None)

    def below(self, folder: str) -> Mapping[str, Sequence[Version]]:
        """The versions of every folder below ``folder``, oldest first."""
        folders = defaultdict(list)
        for path, modified in self.bucket.list(folder):
            where, _, name = path.rpartition("/")
            number = version_of(name)
            if number is not None:
                folders[where].append(Version(number, modified))
        return {where: sorted(versions) for where, versions in folders.items()}

    def read(self, folder: str, number: int) -> Record | None:
        """What a version holds; None when there is none."""
        path = f"{folder}/{version_name(number)}"
        body = self.bucket.read(path)
        if body is None:
            return None
        try:
            return Record.from_json(body)
        except ValueError as error:
            raise CorruptFile(
                f"{path} is not a version that Penstock wrote: {error}",
                left="it was not changed",
                hint="move that object away if it does not belong to the store, or restore it",
            ) from error

    def create(self, folder: str, number: int, record: Record) -> bool:
        """Whether ``record`` is version ``number``; False when that is somebody else's.

        Raises `StoreUnavailable` when it stays open whether it was written.
        """
        path, failure = f"{folder}/{version_name(number)}", None
        for pause in _PAUSES:
            try:
                self.bucket.create(path, record.to_json())
                return True
            except FileExistsError:
                pass
            except StoreUnavailable as error:
                failure = error
            found = self.read(folder, number)
            if found is not None:
                return found.id == record.id
            time.sleep(pause)
        raise failure or StoreUnavailable(
            f"{path} is said to exist and cannot be read",
            left="the write may or may not have been made",
            hint="read the document and try again",
        )

    def delete(self, folder: str, numbers: Iterable[int]) -> None:
        """Remove versions of a folder. Harmless for those that are gone."""
        paths = [f"{folder}/{version_name(number)}" for number in numbers]
        if paths:
            self.bucket.delete(paths)


def _encoded(value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {}
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _decoded(value: object) -> bytes | None:
    match value:
        case {"text": str(text)}:
            return text.encode()
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case {} if not value:
            return None
    raise ValueError("no text, no base64, and more than nothing")
