"""Registering inputs under names, and finding them again."""

from __future__ import annotations

import json
from dataclasses import replace as with_values
from typing import TYPE_CHECKING, Any

from penstock.errors import CorruptFile, InputChanged, InputError, UsageError
from penstock.inputs.build import build
from penstock.inputs.draft import Draft, Source, differences, discard, make_draft
from penstock.inputs.files import ensure_unchanged
from penstock.inputs.model import FORMATS, Input, document_key, folder
from penstock.names import LONGEST, RULE, is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from penstock.storage import Storage
    from penstock.store.base import Store

# An input of one run alone is called RUN.TABLE.
_LONGEST = 2 * LONGEST + 1


def register(
    spark: SparkSession | None,
    store: Store,
    storage: Storage,
    name: str,
    source: Source,
    *,
    partition_rows: int,
    format: str | None = None,  # noqa: A002 - the word that Spark uses for it
    table_schema: pa.Schema | None = None,
    options: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Input:
    """Make files, an Arrow table or a DataFrame an input with numbered rows and partitions.

    ``source`` is a path (file, folder or pattern) or URL of Parquet, CSV, JSON-lines or Arrow IPC
    files; a table or DataFrame is written to storage first. With ``table_schema`` the rows are
    delivered as that schema says, which is checked here. Nothing is copied from files, and the
    number of partitions costs nothing.

    Registering the same again returns what is registered, without reading any data; something
    else under a known name raises `InputChanged` unless ``replace`` is set. Without a session
    (``spark`` None) files are counted in this process.
    """
    _check_call(name, partition_rows, format)
    registered = _registered(store, storage, name, tolerant=replace)
    draft = make_draft(storage, name, source, format, table_schema, options or {})
    same = registered is not None and registered.identity == draft.identity
    if registered is not None and same:
        discard(storage, draft)
        if registered.partition_rows == partition_rows:
            return registered
    if registered is not None and not replace:
        discard(storage, draft)
        raise InputChanged(
            f"an input {name!r} is registered already, with something else:\n"
            + differences(registered, draft, partition_rows),
            left="the registered input is as it was",
            hint="register this under another name; or with replace=True, if no run needs the old one",
        )
    if registered is not None and same:
        made = with_values(registered, partition_rows=partition_rows)
    else:
        made = _build_or_discard(spark, storage, name, draft, partition_rows)
    return _publish(store, storage, made, replace=replace)


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


def drop(store: Store, storage: Storage, name: str) -> bool:
    """Forget an input, and delete the files that were made for it; False if there was none.

    Files that were registered where they are stay. The caller sees to it that no run needs it.
    """
    while (document := store.get(document_key(name))) is not None:
        if store.cas(document.key, document.version, None) is not None:
            storage.delete(folder(name))
            return True
    return False


def check_unchanged(registered: Input) -> None:
    """Raise `InputChanged`, naming the files, unless all of them are as they were registered."""
    ensure_unchanged([file.stamp for file in registered.files], registered.name)


def _check_call(name: str, partition_rows: int, kind: str | None) -> None:
    if not is_name(name, longest=_LONGEST):
        raise UsageError(f"{name!r} cannot be an input's name", hint=RULE)
    if partition_rows < 1:
        raise UsageError(f"a partition cannot have {partition_rows} rows", hint="partition_rows is 1 or more")
    if kind is not None and kind not in FORMATS:
        raise UsageError(f"unknown format {kind!r}", hint=f"formats: {', '.join(FORMATS)}")


def _build_or_discard(
    spark: SparkSession | None, storage: Storage, name: str, draft: Draft, partition_rows: int
) -> Input:
    try:
        return build(spark, storage, name, draft, partition_rows)
    except BaseException:
        discard(storage, draft)
        raise


def _publish(store: Store, storage: Storage, made: Input, *, replace: bool) -> Input:
    key = document_key(made.name)
    value = json.dumps(made.document(), separators=(",", ":")).encode()
    while True:
        current = store.get(key)
        if current is not None and not replace:
            other = load(store, storage, made.name)
            if (other.digest, other.partition_rows) == (made.digest, made.partition_rows):
                return other
            raise InputChanged(
                f"an input {made.name!r} was registered by another process at the same time",
                hint="register this under another name",
            )
        if store.cas(key, current.version if current else 0, value) is not None:
            return made


def _registered(store: Store, storage: Storage, name: str, *, tolerant: bool = False) -> Input | None:
    """What is registered; with ``tolerant``, None also for an input whose file list is lost."""
    document = store.get(document_key(name))
    if document is None:
        return None
    facts = json.loads(document.value)
    try:
        details = json.loads(storage.read(facts["details"]))
    except FileNotFoundError:
        if tolerant:
            return None
        raise CorruptFile(
            f"{storage.location(facts['details'])}, the file list of input {name!r}, is missing",
            hint="register the input again with replace=True",
        ) from None
    return Input.from_json(facts, details)
