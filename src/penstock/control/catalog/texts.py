"""The texts of statements, each in a document that is named by its digest.

A text is written before the head refers to it, and deleted only when no head can refer to it any more.
What makes that safe while others change the catalog:

- A change reads the head, then writes its text *even if it is there already*, which gives the document a
  new version, and then replaces the very head that it read.
- A sweep is part of a change. It looks at documents before the head is replaced, and afterwards deletes
  those that the new head does not refer to, each only at the version that it has looked at.

So when another change refers to a text, either it replaced the head before the sweeping one read it, which
then knows; or it read the head afterwards, and so gave the text a version that the sweep does not delete.
In between, one of the two loses its head and begins again. Nothing is ever left dangling, whoever dies.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from penstock.control.catalog.model import digest_of
from penstock.errors import CorruptFile, StoreUnavailable
from penstock.store.base import Document, Store

PREFIX = "catalog/ddl/"
BATCH = 16
"""How many texts are asked for at once: 2 MiB at most, which any backend takes for an answer.

A change also looks at so many for its sweep. When each change replaces one text, about a fifteenth is waste.
"""


def put(store: Store, sql: str) -> None:
    """Write a text, or write it again: see above for why."""
    key, value = _key(digest_of(sql)), sql.encode()
    while store.cas(key, 0, value) is None:
        found = store.get(key)
        if found is not None and store.cas(key, found.version, value) is not None:
            return


def fetch(store: Store, digests: Sequence[str]) -> Mapping[str, str]:
    """The texts of these digests. One that does not exist is left out; a wrong one raises `CorruptFile`."""
    found: dict[str, str] = {}
    for begin in range(0, len(digests), BATCH):
        batch = digests[begin : begin + BATCH]
        documents = store.get_many([_key(digest) for digest in batch])
        pairs = zip(batch, documents, strict=True)
        found |= {digest: _text(digest, document) for digest, document in pairs if document is not None}
    return found


def some(store: Store) -> Sequence[Document]:
    """Documents to be swept if nothing refers to them: at most `BATCH`, from a place chosen by lot."""
    with suppress(StoreUnavailable):
        found = list(store.list(PREFIX, _key(secrets.token_hex(4)), BATCH))
        if len(found) < BATCH:
            found += store.list(PREFIX, limit=BATCH - len(found))
        return found
    return ()


def sweep(store: Store, seen: Sequence[Document], referred: Collection[str]) -> None:
    """Delete those of ``seen`` that nothing refers to. What is not deleted now will be another time."""
    with suppress(StoreUnavailable):
        for document in seen:
            if document.key.removeprefix(PREFIX) not in referred:
                store.cas(document.key, document.version, None)


def _key(digest: str) -> str:
    return f"{PREFIX}{digest}"


def _text(digest: str, document: Document) -> str:
    text = document.value.decode(errors="replace")
    if digest_of(text) != digest:
        raise CorruptFile(
            f"document {document.key} of the store does not hold the text that it is named by",
            hint="restore the store from a copy, or add the statement again with --replace",
        )
    return text
