"""How the store's things stand in etcd: keys, and the envelope around a document.

::

    <prefix>/d/<key>           a document: the id of the write that made it, then its bytes
    <prefix>/s/<session id>    a session, bound to its lease
    <prefix>/r/<request id>    the receipt of a creation or deletion, kept for some minutes
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from penstock.store.base import Change, Document
from penstock.store.etcd.wire_pb2 import Event, KeyValue

_ID_BYTES = 16


def new_request_id() -> bytes:
    """Names one write; whoever finds it in a document knows that the write was made."""
    return secrets.token_bytes(_ID_BYTES)


def seal(request: bytes, value: bytes) -> bytes:
    """The document's bytes as they are put into etcd by the write ``request``."""
    return request + value


def request_of(found: KeyValue) -> bytes:
    """The id of the write that made this document."""
    return found.value[:_ID_BYTES]


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys below one prefix."""

    prefix: str

    def document(self, key: str) -> bytes:
        return f"{self.prefix}/d/{key}".encode()

    def session(self, session: str) -> bytes:
        return f"{self.prefix}/s/{session}".encode()

    def receipt(self, request: bytes) -> bytes:
        return f"{self.prefix}/r/{request.hex()}".encode()

    def bounds(self, prefix: str, after: str = "") -> tuple[bytes, bytes]:
        """First and end of the documents whose keys start with ``prefix`` and are greater than ``after``."""
        first = self.document(prefix)
        # No byte of UTF-8 is 0xff, so the last one can always be counted up.
        end = first[:-1] + bytes([first[-1] + 1])
        return max(first, self.document(after) + b"\0" if after else b""), end

    def to_document(self, found: KeyValue) -> Document:
        return Document(self._key(found), found.value[_ID_BYTES:], found.mod_revision)

    def to_change(self, event: Event) -> Change:
        value = event.kv.value[_ID_BYTES:] if event.type == Event.PUT else None
        return Change(self._key(event.kv), value, event.kv.mod_revision)

    def _key(self, found: KeyValue) -> str:
        return found.key[len(self.document("")) :].decode()
