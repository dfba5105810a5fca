"""What everybody may see of workers: documents in the store, written by the coordinator that leads.

A document carries the token of the leader that wrote it, and a lower one is refused: a coordinator that slept
through its own replacement changes nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.clocks import wall_clock
from penstock.core.codec import SPACED, plain, typed
from penstock.errors import CorruptFile, LeadershipLost
from penstock.server.roles.workers import Worker
from penstock.store.base import Store

_WORKERS = "gateway/workers/"
_TOKEN = "gateway/join-token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as people see it. ``heard`` is the coordinator's wall clock when it last spoke."""

    id: str
    state: str
    host: str
    cores: int
    memory: str
    version: str
    joined: str
    heard: str
    coordinator: str
    token: int


class WorkerBoard:
    """The workers in the store, as the coordinator under ``token`` sees them."""

    def __init__(self, store: Store, coordinator: str, token: int) -> None:
        self._store = store
        self._coordinator = coordinator
        self._token = token

    def show(self, worker: Worker) -> None:
        """Tell how it is with a worker now. Raises `LeadershipLost` if a later coordinator has written."""
        offer = worker.offer
        view = WorkerView(
            offer.id,
            worker.life,
            offer.host,
            offer.cores,
            offer.memory,
            offer.version,
            worker.joined,
            wall_clock("seconds"),
            self._coordinator,
            self._token,
        )
        value = SPACED.encode(plain(view)).encode()
        key = _WORKERS + offer.id
        while True:
            found = self._store.get(key)
            if found is not None and _view(found.key, found.value).token > self._token:
                raise LeadershipLost(
                    "another coordinator leads by now", left=f"nothing was written about worker {offer.id}"
                )
            if self._store.cas(key, found.version if found else 0, value) is not None:
                return

    def forget_others(self) -> None:
        """Drop what former coordinators wrote: their workers come to us, or are gone."""
        for document in self._store.scan(_WORKERS):
            if _view(document.key, document.value).token < self._token:
                self._store.cas(document.key, document.version, None)


def workers(store: Store) -> Sequence[WorkerView]:
    """All workers that the leading coordinator knows, by id."""
    return [_view(document.key, document.value) for document in store.scan(_WORKERS)]


def join_token(store: Store) -> str:
    """The token by which workers are let in; made at the first time it is asked for."""
    while True:
        found = store.get(_TOKEN)
        if found is not None:
            return found.value.decode()
        store.cas(_TOKEN, 0, secrets.token_urlsafe(32).encode())


def renew_join_token(store: Store) -> str:
    """A new token in place of the old one, which lets nobody in from now on."""
    while True:
        found, token = store.get(_TOKEN), secrets.token_urlsafe(32)
        if store.cas(_TOKEN, found.version if found else 0, token.encode()) is not None:
            return token


def _view(key: str, value: bytes) -> WorkerView:
    try:
        return typed(WorkerView, json.loads(value))
    except ValueError as error:
        raise CorruptFile(f"document {key} of the store cannot be read: {error}") from error
