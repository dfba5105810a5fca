"""Registering inputs under names, and finding them again."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from penstock.batch.inputs.build import build, recut
from penstock.batch.inputs.draft import Draft, Source, differences, discard, make_draft
from penstock.batch.inputs.files import ensure_unchanged
from penstock.batch.inputs.index import unusable
from penstock.batch.inputs.model import (
    DETAILS,
    FORMATS,
    REGISTRATION,
    Input,
    Registration,
    document_key,
    folder,
    input_of,
    registration_of,
)
from penstock.batch.inputs.replaced import outlived, places
from penstock.config import shown_url
from penstock.core.names import LONGEST, RULE, is_name
from penstock.errors import CorruptFile, InputChanged, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.storage import Storage
    from penstock.store.base import Document, Store

# An input of one run alone is called RUN.TABLE.
_LONGEST = 2 * LONGEST + 1


def register(
    spark: SparkSession | None,
    store: Store,
    storage: Storage,
    name: str,
    source: Source,
    *,
    partition_rows: int | None = None,
    format: str | None = None,  # noqa: A002 - the word that Spark uses for it
    table_schema: pa.Schema | None = None,
    options: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Input:
    """Make files, an Arrow table or a DataFrame an input with numbered rows and partitions.

    ``source`` is a path (file, folder or pattern) or URL of Parquet, CSV, JSON-lines or Arrow IPC
    files; a table or DataFrame is written to storage first. With ``table_schema`` the rows are
    delivered as that schema says, which is checked here. Nothing is copied from files, and the
    number of partitions costs nothing. Without ``partition_rows`` they have whole files where these are not
    too large, and else about 2.5 million rows; what is registered already stays as it was cut.

    Registering the same again returns what is registered, without reading any data; something
    else under a known name raises `InputChanged` unless ``replace`` is set. What is replaced stays in
    storage for the runs that read it, until `penstock runs gc` finds that none does. Without a session
    (``spark`` None) files are counted in this process.
    """
    _check_call(name, partition_rows, format)
    while True:
        document = store.get(document_key(name))
        registered = _decode(storage, document, tolerant=replace) if document else None
        draft = make_draft(storage, name, source, format, table_schema, options or {})
        same = registered is not None and registered.identity == draft.identity
        if registered is not None and same and partition_rows in (None, registered.partition_rows):
            discard(storage, draft)
            return registered
        if registered is not None and not replace:
            discard(storage, draft)
            raise InputChanged(
                f"an input {name!r} is registered already, with something else:\n"
                + differences(registered, draft, partition_rows),
                left="the registered input is as it was",
                hint="register this under another name; or with replace=True, if no run needs the old one",
                typed="start a run of its own for this data with --run NAME",
            )
        if document is not None and registered is not None and same and partition_rows is not None:
            discard(storage, draft)
            if made := _recut(store, storage, document, registered, partition_rows):
                return made
            continue  # it was dropped or registered anew meanwhile
        built = _build_or_discard(spark, storage, name, draft, partition_rows)
        published = _publish(store, storage, built, replace=replace)
        if published is not built:
            storage.delete(built.folder)
            discard(storage, draft)
        return published


def load(store: Store, storage: Storage, name: str) -> Input:
    """The input registered under a name. Whether its files changed is `check_unchanged`'s question."""
    registered = _registered(store, storage, name)
    if registered is None:
        known = names(store)
        raise InputError(
            f"there is no input {name!r}",
            hint=f"registered: {', '.join(known)}" if known else "register it first",
        )
    return registered


def names(store: Store) -> list[str]:
    """The names of all registered inputs, sorted."""
    return [document.key.removeprefix(document_key("")) for document in store.scan(document_key(""))]


def facts(store: Store) -> list[dict[str, Any]]:
    """What the store alone knows of all registered inputs, whichever storage they are in, by name."""
    return [json.loads(document.value) for document in store.scan(document_key(""))]


def take(store: Store, registered: Input) -> None:
    """Say that a run which has just been written down uses this registration.

    `InputChanged` if it is gone. A `drop` that has looked for runs before looks again.
    """
    while True:
        document = store.get(document_key(registered.name))
        if document is None or json.loads(document.value).get("id", "") != registered.id:
            raise InputChanged(
                f"input {registered.name!r} was dropped or registered anew while the run began",
                left="the run is written down, and has computed nothing",
                hint="run the same command again",
            )
        if store.cas(document.key, document.version, document.value) is not None:
            return


def drop(
    store: Store,
    storage: Storage,
    name: str,
    *,
    registration: str | None = None,
    digest: str | None = None,
    needed: Callable[[], bool] = lambda: False,
) -> bool:
    """Forget an input, and delete the files that were made for it; False if there was none.

    With ``registration`` or ``digest`` it is forgotten only if it still is that one, and in any case not
    if it was registered anew since this began. Files that were registered where they are stay.
    ``needed`` is asked right before: whoever begins to use it later finds it gone.
    """
    while (document := store.get(document_key(name))) is not None:
        facts = json.loads(document.value)
        registration = facts.get("id", "") if registration is None else registration
        if facts.get("id", "") != registration or digest not in (None, facts["digest"]) or needed():
            return False
        doomed = [*places(storage, facts), *facts.get("outlived", ())]
        if store.cas(document.key, document.version, None) is not None:
            for place in doomed:
                storage.delete(place)
            storage.remove_folder(folder(name))
            return True
    return False


def drop_leftovers(store: Store, storage: Storage, name: str) -> int:
    """Delete what interrupted registrations of a name left behind; how many files.

    Nobody may be registering it at this moment: what is not registered yet looks the same.
    """
    document = store.get(document_key(name))
    if document is not None:
        _decode(storage, document)  # without its file list nobody can tell what is its own
    facts = json.loads(document.value) if document else None
    kept = [*places(storage, facts), *facts.get("outlived", ())] if facts else []
    doomed = [p for p, _ in storage.list(folder(name)) if not p.startswith(tuple(f"{k}/" for k in kept))]
    for path in doomed:
        storage.delete(path)
    storage.remove_empty(folder(name))
    return len(doomed)


def check_unchanged(registered: Input) -> None:
    """Raise `InputChanged`, naming the files, unless all of them are as they were registered."""
    ensure_unchanged([file.stamp for file in registered.files], registered.name)


def _check_call(name: str, partition_rows: int | None, kind: str | None) -> None:
    if not is_name(name, longest=_LONGEST):
        raise UsageError(f"{name!r} cannot be an input's name", hint=RULE)
    if partition_rows is not None and type(partition_rows) is not int:
        raise UsageError(f"partition_rows is {partition_rows!r}, which is no whole number")
    if partition_rows is not None and partition_rows < 1:
        raise UsageError(f"a partition cannot have {partition_rows} rows", hint="partition_rows is 1 or more")
    if kind is not None and kind not in FORMATS:
        raise UsageError(f"unknown format {kind!r}", hint=f"formats: {', '.join(FORMATS)}")


def _build_or_discard(
    spark: SparkSession | None, storage: Storage, name: str, draft: Draft, partition_rows: int | None
) -> Input:
    try:
        return build(spark, storage, name, draft, partition_rows)
    except BaseException:
        discard(storage, draft)
        raise


def _recut(
    store: Store, storage: Storage, document: Document, registered: Input, partition_rows: int
) -> Input | None:
    """The registered files with other partitions, if they are still registered: they are shared."""
    made = recut(storage, registered, partition_rows)
    if _replace(store, storage, document, made, [*outlived(document), registered.folder]):
        return made
    storage.delete(made.folder)
    return None


def _publish(store: Store, storage: Storage, made: Input, *, replace: bool) -> Input:
    key = document_key(made.name)
    while True:
        current = store.get(key)
        if current is not None and not replace:
            other = _decode(storage, current)
            if other is not None and (other.digest, other.partition_rows) == (
                made.digest,
                made.partition_rows,
            ):
                return other
            storage.delete(made.folder)
            raise InputChanged(
                f"an input {made.name!r} was registered by another process at the same time",
                hint="register this under another name",
            )
        replaced = [*outlived(current), *places(storage, json.loads(current.value))] if current else []
        if _replace(store, storage, current, made, replaced):
            return made


def _replace(
    store: Store, storage: Storage, current: Document | None, made: Input, replaced: Sequence[str]
) -> bool:
    """``replaced``: where the files of registrations are that this one replaced."""
    value = REGISTRATION.encode(registration_of(made, storage.root, replaced))
    return store.cas(document_key(made.name), current.version if current else 0, value) is not None


def _registered(store: Store, storage: Storage, name: str) -> Input | None:
    document = store.get(document_key(name))
    return _decode(storage, document) if document else None


def _decode(storage: Storage, document: Document, *, tolerant: bool = False) -> Input | None:
    """What is registered; with ``tolerant``, None for an input whose file list is lost."""
    found = REGISTRATION.decode(document.key, document.value)
    try:
        return _input(storage, found)
    except FileNotFoundError:
        if found.storage not in (None, storage.root):
            other = shown_url(found.storage or "")
            raise InputError(
                f"input {found.name!r} is registered in the storage {other}, "
                f"and this is {shown_url(storage.root)}",
                left="it is as it was",
                hint=f"name that one, with --storage {other} or in penstock.toml",
            ) from None
        if tolerant:
            return None
        raise _damaged(storage, found, "is missing") from None


def _input(storage: Storage, found: Registration) -> Input:
    """The registration with its file list, if that is the one that was registered: it names files anywhere.

    Registrations of earlier releases do not say which that was, and theirs is believed.
    """
    data, where = storage.read(found.details), shown_url(storage.location(found.details))
    if found.details_sha256 not in (None, hashlib.sha256(data).hexdigest()):
        raise _damaged(storage, found, "is not the one that was registered")
    return input_of(found, DETAILS.decode(where, data))


def _damaged(storage: Storage, found: Registration, why: str) -> CorruptFile:
    where = shown_url(storage.location(found.details))
    return unusable(f"{where}, the file list of input {found.name!r}, {why}")
