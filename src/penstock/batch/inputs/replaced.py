"""Registrations that others have replaced: kept for the runs that read them still.

Who replaces an input cannot know these runs. So nothing is deleted then: the document of the input lists the
folders until `sweep` is told that no run needs them, or the input is dropped.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.batch.inputs.model import document_key, folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.storage import Storage
    from penstock.store.base import Document, Store


class Removed(NamedTuple):
    """What a sweep removed, or would."""

    files: int
    bytes: int


def outlived(document: Document) -> list[str]:
    """The folders of all registrations that the one of this document, and those before it, replaced."""
    return list(json.loads(document.value).get("outlived", ()))


def places(storage: Storage, facts: Mapping[str, Any]) -> list[str]:
    """The folders of ours that a registration has: of its file list, and of rows that were written for it."""
    found = [str(facts["details"]).rpartition("/")[0]]
    if details := _details(storage, found[0]):
        found += _rows(str(facts["name"]), details)
    return found


def sweep(
    store: Store, storage: Storage, name: str, needed: Callable[[str], bool], *, dry_run: bool = False
) -> Removed:
    """Delete the replaced registrations of an input that nobody needs; ``needed`` is asked with a digest.

    It is asked after the document was read: a run begins only with what is registered at that moment, and
    is written down before. Rows that several registrations share go with the last of them.
    """
    removed = Removed(0, 0)
    while (document := store.get(document_key(name))) is not None:
        listed = outlived(document)
        doomed = _unneeded(storage, json.loads(document.value), listed, needed)
        files = [(path, size) for place in doomed for path, size in storage.list(place)]
        removed = Removed(removed.files + len(files), removed.bytes + sum(size for _, size in files))
        if dry_run or not doomed:
            break
        # Lists of files after the rows, and the document last: whoever dies in between can be followed.
        for place in doomed:
            storage.delete(place)
        kept = [place for place in listed if place not in doomed and storage.list(place)]
        if store.cas(document.key, document.version, _listing(document, kept)) is not None:
            break
    return removed


def _unneeded(
    storage: Storage, facts: Mapping[str, Any], listed: list[str], needed: Callable[[str], bool]
) -> list[str]:
    kept = set(places(storage, facts))
    rows: list[str] = []
    lists: list[str] = []
    for place in listed:
        details = _details(storage, place)
        if details is None:
            continue  # a folder of rows, or one whose list is lost: that goes with the input
        its_rows = _rows(facts["name"], details)
        if needed(details["digest"]):
            kept |= {place, *its_rows}
        else:
            rows += [row for row in its_rows if row in listed]
            lists.append(place)
    return [place for place in dict.fromkeys([*rows, *lists]) if place not in kept]


def _details(storage: Storage, place: str) -> dict[str, Any] | None:
    with suppress(FileNotFoundError, ValueError):
        details = json.loads(storage.read(f"{place}/files.json"))
        return details if isinstance(details, dict) else None
    return None


def _rows(name: str, details: Mapping[str, Any]) -> list[str]:
    ours = re.compile(rf"{re.escape(folder(name))}/data-[0-9a-f]+(?=/)")
    return list(dict.fromkeys(found[0] for path, *_ in details["files"] if (found := ours.search(path))))


def _listing(document: Document, kept: list[str]) -> bytes:
    facts = {key: value for key, value in json.loads(document.value).items() if key != "outlived"}
    return json.dumps(facts | ({"outlived": kept} if kept else {}), separators=(",", ":")).encode()
