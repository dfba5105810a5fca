"""Where a stream is, as a value that travels: to other processes, and in the options of a Spark source."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from penstock.config import shown_url
from penstock.config.tls import Tls
from penstock.core.codec import COMPACT, plain, typed
from penstock.errors import UsageError
from penstock.storage import Storage
from penstock.store import Store, open_store
from penstock.streams.layout import Layout

PASSWORD = "PENSTOCK_STORE_PASSWORD"  # noqa: S105
"""The environment variable that has the store's password: a `Place` is shown in plans and logs."""


class Opened(NamedTuple):
    """A store and a storage; as a context it closes the store."""

    store: Store
    storage: Storage

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.close()


@dataclass(frozen=True, slots=True)
class Place:
    """How to find a stream: its store and storage, with absolute paths, and its name and id.

    It holds no secret. Where the store wants a password, the process that opens a place has it in its
    environment.
    """

    store: str
    storage: str
    stream: str
    id: str
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if shown_url(self.store) != self.store:
            raise UsageError(
                "the store's URL has a password in it, which a stream's readers would show",
                hint=f"leave it out of the URL and set {PASSWORD}, before Spark is started",
            )

    @property
    def layout(self) -> Layout:
        return Layout(self.stream, self.id)

    def open(self) -> Opened:
        """The store and the storage, to be closed by the caller."""
        store = open_store(self.store, tls=self.tls, password=os.environ.get(PASSWORD))
        return Opened(store, Storage(self.storage))

    def encode(self) -> str:
        return COMPACT.encode(plain(self))

    @classmethod
    def decode(cls, text: str) -> Place:
        try:
            return typed(Place, json.loads(text), omits=("tls",))
        except ValueError as error:
            raise UsageError(f"{text[:100]!r} is not the place of a stream: {error}") from error
