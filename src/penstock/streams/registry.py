"""Streams in the store: the record of what a stream is, and of what people want of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, Literal

from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.core.clocks import wall_clock
from penstock.core.codec import SPACED, DocumentFormat, renamed
from penstock.core.failpoints import reach
from penstock.core.names import RULE, is_name
from penstock.errors import StreamError, StreamMismatch, UsageError
from penstock.storage import Storage
from penstock.store.base import Document, Store
from penstock.streams.layout import DOCUMENTS, Layout, document
from penstock.streams.model import END, SCOPE
from penstock.streams.supervisors import Supervisors
from penstock.streams.views.changes import DefinitionChange, changes

Wanted = Literal["running", "suspended", "stopped"]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """What a stream is, and what people want of it; its progress is in its cluster and its log."""

    name: str
    id: str
    """Tells this stream from an earlier one of the same name that was dropped."""
    definition: Mapping[str, Any]
    created: str
    wanted: Wanted = "running"
    instances: int | None = None
    """How many there should be in all; None where each supervisor runs as many as it was started with."""
    requests: int = 0
    """Grows with every change of what is wanted."""
    dropped: bool = False
    """Somebody removes it, or began to and died: it can only be dropped again."""

    @property
    def layout(self) -> Layout:
        return Layout(self.name, self.id)


RECORD = DocumentFormat(
    StreamRecord,
    "the record of a stream",
    text=SPACED,
    later={"dropped": False},
    ignores_unknown=True,
    pack=renamed("name", "stream"),
    unpack=renamed("stream", "name"),
    refusal=StreamError,
)


def check_name(name: str) -> str:
    if not is_name(name):
        raise UsageError(f"{name!r} is not a name for a stream", hint=RULE)
    return name


def find(store: Store, name: str) -> StreamRecord | None:
    found = store.get(document(check_name(name)))
    return _decode(found) if found else None


def load(store: Store, name: str) -> StreamRecord:
    record = find(store, name)
    if record is None:
        raise _unknown(store, name)
    return record


def every(store: Store) -> list[StreamRecord]:
    """All streams, by name."""
    documents = store.scan(DOCUMENTS)
    return [_decode(each) for each in documents if each.key.count("/") == 2 and each.key.endswith("/stream")]


def names(store: Store) -> list[str]:
    return [record.name for record in every(store)]


def open_stream(
    store: Store, stream_name: str, description: Mapping[str, Any], accept_changes: bool = False
) -> StreamRecord:
    """The stream of this name, made if there is none.

    One that was defined otherwise is refused with `StreamMismatch`, which says what differs. With
    ``accept_changes`` it goes on under the new definition, if its committed rows still fit and nobody runs
    the old one.
    """
    key, definition = document(check_name(stream_name)), _as_stored(description)
    while True:
        found = store.get(key)
        if found is None:
            record = StreamRecord(stream_name, secrets.token_hex(4), definition, wall_clock("seconds"))
            if store.cas(key, 0, RECORD.encode(record)) is not None:
                return record
            continue
        record = _decode(found)
        if record.dropped:
            raise _half_gone(stream_name)
        differences = changes(record.definition, definition)
        if not differences:
            return record
        _check_acceptable(store, record, differences, accept_changes)
        accepted = replace(record, definition=definition)
        if store.cas(key, found.version, RECORD.encode(accepted)) is not None:
            return accepted


def check_current(store: Store, name: str, stream_id: str, description: Mapping[str, Any]) -> StreamRecord:
    """The record of a stream that goes on, or why an instance with this definition cannot take part in it."""
    record = find(store, name)
    if record is None or record.id != stream_id or record.dropped:
        raise removed(name)
    if differences := changes(record.definition, _as_stored(description)):
        raise StreamMismatch(
            f"stream {name!r} runs with another definition than the file has now: {_listed(differences)}",
            left="the stream is as it was",
            hint=f"penstock stream stop {name} --wait, then start it again with --accept-changes",
        )
    return record


def removed(name: str) -> StreamError:
    """The error of whoever works on a stream that is not there any more."""
    return StreamError(f"stream {name!r} was removed meanwhile", hint="start it anew if it is still wanted")


def wish(
    store: Store,
    name: str,
    *,
    wanted: Wanted | None = None,
    instances: int | EllipsisType | None = ...,
    again: bool = False,
) -> StreamRecord:
    """Say what is wanted of a stream; what is not given stays. Harmless when repeated.

    With ``again`` it counts as a request even if nothing changes: outputs that were given up are tried again.
    """

    def change(record: StreamRecord) -> StreamRecord:
        asked = replace(
            record,
            wanted=wanted or record.wanted,
            instances=record.instances if isinstance(instances, EllipsisType) else instances,
        )
        unchanged = asked == record and not again
        return record if unchanged else replace(asked, requests=record.requests + 1)

    return _change(store, name, change)


def drop(store: Store, storage: Storage, name: str, *, stream_id: str | None = None) -> StreamRecord:
    """Forget a stream: its documents, its files with all their rows, and last that it was there.

    It is marked before, so that nobody begins with it. Whoever dies in between leaves it to the next one who
    drops it. What its sinks wrote elsewhere stays. Refused while anybody runs it, and with ``stream_id`` if
    the name is another stream's by now.
    """
    record = _marked(store, name, stream_id)
    for prefix in (record.layout.keys, Keys(record.layout.cluster).root):
        # Few at a time: pages of decisions are the largest documents there are.
        for each in store.scan(prefix, 16):
            store.cas(each.key, each.version, None)
    storage.delete(record.layout.root)
    reach("stream.emptied")
    _forget(store, record)
    return record


def _marked(store: Store, name: str, stream_id: str | None) -> StreamRecord:
    """The record of a stream that nobody runs, once it says that the stream is being dropped."""
    found = store.get(document(check_name(name)))
    if found is None:
        raise _unknown(store, name)
    record = _decode(found)
    if stream_id not in (None, record.id):
        raise StreamError(
            f"stream {name!r} was removed meanwhile, and another one of this name was started",
            left="nothing was removed",
            hint=f"look at it before you remove that one too: penstock stream status {name}",
        )
    if running := at_work(store, record):
        raise StreamError(
            f"stream {name!r} is running: {', '.join(running)}",
            left="nothing was removed",
            hint=f"penstock stream stop {name} --wait",
        )
    marked = replace(record, dropped=True)
    if store.cas(found.key, found.version, RECORD.encode(marked)) is None:
        raise StreamError(
            f"somebody changed stream {name!r} at the same moment",
            left="nothing was removed",
            hint=f"look at `penstock stream status {name}`, and drop it again",
        )
    return marked


def _forget(store: Store, record: StreamRecord) -> None:
    while (found := store.get(document(record.name))) is not None and _decode(found).id == record.id:
        if store.cas(found.key, found.version, None) is not None:
            return


def _half_gone(name: str) -> StreamError:
    return StreamError(
        f"stream {name!r} is being removed, or somebody began to and did not finish",
        hint=f"finish it: penstock stream drop {name}",
    )


def at_work(store: Store, record: StreamRecord) -> list[str]:
    """The live instances of a stream and the supervisors that would start more, in words."""
    members = Roster(store, Keys(record.layout.cluster)).live()
    supervisors = Supervisors(store, record.layout).live()
    return [
        *(f"instance {member.id}" for member in members),
        *(f"a supervisor on {each.host} (process {each.pid})" for each in supervisors),
    ]


def _check_acceptable(
    store: Store, record: StreamRecord, differences: list[DefinitionChange], accept_changes: bool
) -> None:
    what = f"stream {record.name!r} was started with another definition: {_listed(differences)}"
    fresh = (
        f"start this one under another name, or remove the old one with `penstock stream drop {record.name}`"
    )
    if any(not change.acceptable for change in differences):
        raise StreamMismatch(what, left="the stream is as it was", hint=fresh)
    if not accept_changes:
        hint = f"go on with the new definition: --accept-changes; or {fresh}"
        raise StreamMismatch(what, left="the stream is as it was", hint=hint)
    if running := at_work(store, record):
        raise StreamMismatch(
            what,
            left=f"the old definition is running: {', '.join(running)}",
            hint=f"penstock stream stop {record.name} --wait, then start it again with --accept-changes",
        )
    if any(_is_about_rows(change) for change in differences) and _has_been_read(store, record):
        raise StreamMismatch(
            what,
            left="the stream has ended: its outputs have closed their windows, and no source is read again",
            hint=fresh,
        )


def _is_about_rows(change: DefinitionChange) -> bool:
    """Whether a source is new, or may have other rows than before."""
    return change.text.startswith("source ") and (": place" in change.text or change.text.endswith(" is new"))


def _has_been_read(store: Store, record: StreamRecord) -> bool:
    return Room(store, Keys(record.layout.cluster)).read().scope(SCOPE).watermark == END


def _listed(differences: list[DefinitionChange]) -> str:
    return "; ".join(change.text for change in differences)


def _change(store: Store, name: str, change: Callable[[StreamRecord], StreamRecord]) -> StreamRecord:
    while True:
        found = store.get(document(check_name(name)))
        if found is None:
            raise _unknown(store, name)
        record = _decode(found)
        changed = change(record)
        if changed == record or store.cas(found.key, found.version, RECORD.encode(changed)) is not None:
            return changed


def _unknown(store: Store, name: str) -> UsageError:
    known = names(store)
    hint = f"known streams: {', '.join(known)}" if known else "start one with `penstock stream start FILE`"
    return UsageError(f"there is no stream {name!r}", hint=hint)


def _as_stored(description: Mapping[str, Any]) -> dict[str, Any]:
    """As it comes back from the store: a tuple is a list there."""
    stored: dict[str, Any] = json.loads(json.dumps(description))
    return stored


def _decode(found: Document) -> StreamRecord:
    return RECORD.decode(found.key, found.value)
