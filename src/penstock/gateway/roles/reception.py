"""Where workers come in: what a coordinator answers to those that ask over its Flight port.

Whoever asks shows the join token, or has a certificate of the cluster's CA. The answer holds the secret of
Spark's ports, so without certificates only loopback is served, as the server that calls this makes sure.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.config import ClusterConfig
from penstock.errors import PenstockError, SqlError, UsageError
from penstock.gateway.roles.board import WorkerBoard, join_token
from penstock.gateway.roles.workers import Offer, Worker, Workers
from penstock.stamps import wall_clock
from penstock.store.base import Store

_log = logging.getLogger(__name__)

JOIN = "penstock.join"
BEAT = "penstock.heartbeat"
LEAVE = "penstock.leave"
_LARGEST = 4096


class Reception:
    """Lets workers in while this coordinator leads. Safe for many threads.

    ``open`` and ``close`` say when it does; in between, workers are told who else may lead.
    """

    def __init__(
        self, store: Store, config: ClusterConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._workers = Workers(config.dead_after)
        self._board: WorkerBoard | None = None
        self._invitation: dict[str, Any] = {}

    @property
    def workers(self) -> tuple[Worker, ...]:
        with self._lock:
            return self._workers.all

    def open(self, master: str, secret: str, board: WorkerBoard) -> None:
        """Let workers in from now on, to compute for ``master``."""
        board.forget_others()
        with self._lock:
            self._workers = Workers(self._config.dead_after)
            self._board = board
            self._invitation = {"master": master, "secret": secret}

    def close(self) -> None:
        """Let nobody in any more; those that are there find another coordinator."""
        with self._lock:
            self._board = None
            self._invitation = {}

    def answer(self, action: str, body: bytes, certified: bool) -> bytes:
        """What is said to a worker. Raises `SqlError` (28000, 57P03, 22023) for Flight to pass on."""
        request = _parsed(body)
        if not certified:
            self._check(str(request.get("token", "")))
        with self._lock:
            board = self._board
            if board is None:
                raise SqlError("this coordinator does not lead", sqlstate="57P03", hint="ask another one")
            if action == JOIN:
                return json.dumps(self._join(board, request)).encode()
            name, number = str(request.get("id", "")), int(request.get("number", 0))
            if action == LEAVE:
                self._workers.leave(name, number)
                self._show(board, name)
                return b"{}"
            known = self._workers.beat(name, number, self._clock())
            if known:
                self._show(board, name)
            return json.dumps({"known": known}).encode()

    def sweep(self) -> tuple[Worker, ...]:
        """Take those for dead that have been silent for too long, and tell so."""
        with self._lock:
            gone = self._workers.sweep(self._clock())
            if self._board is not None:
                for worker in gone:
                    _log.warning("worker %s is silent: it is taken for dead", worker.offer.id)
                    self._board.show(worker)
            return gone

    def _join(self, board: WorkerBoard, request: dict[str, Any]) -> dict[str, Any]:
        try:
            offer = Offer(**request["offer"])
            worker = self._workers.join(offer, self._clock(), wall_clock("seconds"))
        except (KeyError, TypeError) as error:
            raise SqlError(f"no offer of a worker: {error}", sqlstate="22023") from None
        except UsageError as error:
            raise SqlError(error.what, sqlstate="22023", hint=error.hint) from error
        board.show(worker)
        _log.info("worker %s on %s joins with %s cores", offer.id, offer.host, offer.cores or "all")
        return {**self._invitation, "number": worker.number, "heartbeat_every": self._config.heartbeat_every}

    def _show(self, board: WorkerBoard, name: str) -> None:
        for worker in self._workers.all:
            if worker.offer.id == name:
                board.show(worker)

    def _check(self, token: str) -> None:
        try:
            right = join_token(self._store)
        except PenstockError as error:
            raise SqlError(error.what, sqlstate="57P03", hint=error.hint) from error
        if not hmac.compare_digest(token.encode(errors="replace"), right.encode()):
            raise SqlError(
                "the join token is not the one of this cluster",
                sqlstate="28000",
                hint="`penstock cluster token` on a coordinator prints it: set cluster.join_token to it",
            )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        if len(body) > _LARGEST:
            raise ValueError("it is too long")
        request = json.loads(body)
        if not isinstance(request, dict):
            raise ValueError("it is no object")
        int(request.get("number", 0))
    except (ValueError, TypeError, RecursionError) as error:
        raise SqlError(f"the request of a worker cannot be read: {error}", sqlstate="22023") from None
    return request
