"""Folders of numbered versions, each made once and never changed.

Every version names the write that made it. That tells a conflict from an answer that was lost: who tries
again, we or the library, finds its own write where it wanted to write.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.errors import CorruptFile, PenstockError, StoreUnavailable, UsageError
from penstock.store.objects.bucket import Bucket, open_bucket
from penstock.store.objects.names import FLOOR, version_name, version_of

_PAUSES = (0.02, 0.1, 0.4)
_REMOVALS = 3


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What a version holds: the ids of its write and of the version before it, and a value if it has one."""

    id: str
    after: str | None
    value: bytes | None
    trail: str = ""
    """The versions before it, as `penstock.store.objects.trail` writes them."""
    ground: bool = False
    """No value, and no end either: something to build a document upon."""

    def to_json(self) -> bytes:
        head: dict[str, Any] = {"id": self.id, "after": self.after}
        if self.trail:
            head["trail"] = self.trail
        if self.ground:
            head["ground"] = True
        return json.dumps(head | _encoded(self.value), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, body: bytes) -> VersionRecord:
        """Raises `ValueError` for what `to_json` did not write."""
        found: Any = json.loads(body)
        match found:
            case {"id": str(name), "after": str() | None as after, **rest}:
                trail, ground = rest.pop("trail", ""), rest.pop("ground", False)
                if isinstance(trail, str) and isinstance(ground, bool):
                    return cls(name, after, _decoded(rest), trail, ground)
        raise ValueError("no id, or not what follows which version")


def new_id() -> str:
    """A name for a write."""
    return secrets.token_hex(8)


class Attempt(NamedTuple):
    """What became of a creation: what is there now of us, and what may have been there for a while."""

    made: VersionRecord | None
    doubtful: frozenset[str]
    """The ids of tries whose answers were lost."""


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

    def newest(self, folder: str, begin: int = 1) -> int:
        """The greatest number of a folder from ``begin``; 0 when there is none."""
        found = self.list(folder, begin)
        return found[-1].number if found else 0

    def below(self, folder: str) -> Mapping[str, Sequence[Version]]:
        """The versions of every folder below ``folder``, oldest first."""
        folders = defaultdict(list)
        for path, modified in self.bucket.list(folder):
            where, _, name = path.rpartition("/")
            number = version_of(name)
            if number is not None:
                folders[where].append(Version(number, modified))
        return {where: sorted(versions) for where, versions in folders.items()}

    def read(self, folder: str, number: int) -> VersionRecord | None:
        """What a version holds; None when there is none."""
        path = f"{folder}/{version_name(number)}"
        body = self.bucket.read(path)
        if body is None:
            return None
        try:
            return VersionRecord.from_json(body)
        except ValueError as error:
            raise CorruptFile(
                f"{path} is not a version that Penstock wrote: {error}",
                left="it was not changed",
                hint="move that object away if it does not belong to the store, or restore it",
            ) from error

    def create(self, folder: str, number: int, record: VersionRecord) -> Attempt:
        """Make ``record`` version ``number``, under its id or a new one, unless that is somebody else's.

        Raises `StoreUnavailable` when it stays open whether it was written.
        """
        path, failure = f"{folder}/{version_name(number)}", None
        tried: set[str] = set()
        doubtful: set[str] = set()
        for pause in _PAUSES:
            tried.add(record.id)
            try:
                self.bucket.create(path, record.to_json())
                return Attempt(record, frozenset(doubtful))
            except FileExistsError:
                pass
            except StoreUnavailable as error:
                failure = error
                doubtful.add(record.id)
            found = self.read(folder, number)
            if found is not None:
                return Attempt(found if found.id in tried else None, frozenset(doubtful - {found.id}))
            time.sleep(pause)
            # If the first try arrives one day after all, it is not to be taken for the second one.
            record = replace(record, id=new_id())
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

    def remove_ended(self, folder: str, tombstone: int) -> None:
        """Remove the versions of a folder up to its tombstone, which stays while anything below it does.

        Without it, whatever is left would look alive. What stays is for those who find it later.
        """
        for _ in range(_REMOVALS):
            below = [each.number for each in self.list(folder) if each.number < tombstone]
            if not below:
                self.delete(folder, [tombstone])
                return
            self.delete(folder, below)


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


class Floor:
    """A number below which no document begins: the floor of one store, as one handle knows it.

    Before the last trace of a document is removed, the floor is raised to its last number, for the whole
    store. So the numbers of a document that is created again are above all that it ever had, although
    nothing of it is left. The floor is the greatest name in a folder of its own. It is never removed, so it
    only grows.
    """

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self.known = 0
        """What it was at least, whenever that was."""
        self._lasting = 0
        """The part of it that no power failure can take back."""

    def read(self) -> int:
        """What it is now, or was a moment ago: it only grows."""
        self.known = max(self.known, self._versions.newest(FLOOR, max(self.known, 1)))
        return self.known

    def raise_to(self, number: int) -> None:
        """Have a floor of at least ``number``, for good."""
        if self._lasting >= number:
            return
        if self.known >= number or self.read() >= number:
            # What was only listed need not be durable; what is read is, and so is what replaced it since.
            self._versions.read(FLOOR, self.known)
            self._lasting = self.known
            return
        # If it is there already, somebody else has raised it to this number.
        self._versions.create(FLOOR, number, VersionRecord(new_id(), None, b""))
        self._lasting = self.known = max(self.known, number)
        with suppress(PenstockError):
            found = self._versions.list(FLOOR)
            self._versions.delete(FLOOR, [each.number for each in found[:-1]])
