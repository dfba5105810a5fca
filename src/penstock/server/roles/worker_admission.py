"""Where workers come in: what a coordinator answers to those that ask over its Flight port.

Whoever joins shows the join token, or proves that it has a certificate of the cluster's CA. The answer holds
the secret of Spark's ports, so without TLS only loopback is served, as the server that calls this makes sure.
What a worker says afterwards carries a key that it was given when it joined.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.config import ClusterConfig
from penstock.config.tls import Tls
from penstock.core.clocks import wall_clock
from penstock.core.codec import typed
from penstock.errors import PenstockError, SqlError, StoreUnavailable, UsageError
from penstock.server.roles import proof
from penstock.server.roles.worker_records import WorkerBoard, join_token
from penstock.server.roles.workers import Offer, Worker, Workers
from penstock.store.base import Store

_log = logging.getLogger(__name__)

CHALLENGE = "penstock.challenge"
JOIN = "penstock.join"
BEAT = "penstock.heartbeat"
LEAVE = "penstock.leave"
_LARGEST = 32 << 10
_NONCE_LIVES = 60.0


class WorkerAdmission:
    """Lets workers in while this coordinator leads. Safe for many threads.

    ``open`` and ``close`` say when it does; in between, workers are told who else may lead.
    """

    def __init__(
        self,
        store: Store,
        config: ClusterConfig,
        *,
        tls: Tls | None = None,
        is_user: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._config = config
        self._tls = tls
        self._is_user = is_user
        self._clock = clock
        self._own = secrets.token_bytes(32)
        self._spent: dict[str, float] = {}
        self._keys: dict[str, tuple[int, str]] = {}
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
            self._keys = {}
            self._board = board
            self._invitation = {"master": master, "secret": secret}

    def close(self) -> None:
        """Let nobody in any more; those that are there find another coordinator."""
        with self._lock:
            self._board = None
            self._invitation = {}

    def answer(self, action: str, body: bytes) -> bytes:
        """What is said to a worker. Raises `SqlError` (28000, 57P03, 22023) for Flight to pass on."""
        return json.dumps(self._answer(action, _parsed(body))).encode()

    def _answer(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        if action == CHALLENGE:
            return {"nonce": self._challenge()}
        if action == JOIN:
            self._check(request)
        with self._lock:
            board = self._board
            if board is None:
                raise SqlError("this coordinator does not lead", sqlstate="57P03", hint="ask another one")
            if action == JOIN:
                return self._join(board, request)
            name, number = str(request.get("id", "")), int(request.get("number", 0))
            known = self._is_known(name, number, str(request.get("key", "")))
            if known and action == LEAVE:
                self._workers.leave(name, number)
            elif known:
                known = self._workers.beat(name, number, self._clock())
            if known:
                self._show(board, name)
            return {"known": known}

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
            offer = typed(Offer, request["offer"])
            worker = self._workers.join(offer, self._clock(), wall_clock("seconds"))
        except (KeyError, TypeError, ValueError) as error:
            raise SqlError(f"no offer of a worker: {error}", sqlstate="22023") from None
        except UsageError as error:
            raise SqlError(error.what, sqlstate="22023", hint=error.hint) from error
        board.show(worker)
        _log.info("worker %s on %s joins with %s cores", offer.id, offer.host, offer.cores or "all")
        key = secrets.token_urlsafe(24)
        self._keys[offer.id] = worker.number, key
        told = {"number": worker.number, "key": key, "heartbeat_every": self._config.heartbeat_every}
        return {**self._invitation, **told}

    def _show(self, board: WorkerBoard, name: str) -> None:
        for worker in self._workers.all:
            if worker.offer.id == name:
                board.show(worker)

    def _is_known(self, name: str, number: int, key: str) -> bool:
        given, right = self._keys.get(name, (0, ""))
        return given == number and bool(right) and hmac.compare_digest(key.encode(), right.encode())

    def _challenge(self) -> str:
        """Something that was never signed before, and is good for one join, soon.

        Anybody may ask for it, as often as they like: so nothing is kept of it before it was signed.
        """
        text = f"{secrets.token_urlsafe(24)}.{round((self._clock() + _NONCE_LIVES) * 1000)}"
        return f"{text}.{self._sealed(text)}"

    def _sealed(self, text: str) -> str:
        return hmac.digest(self._own, text.encode(), "sha256").hex()

    def _check_nonce(self, nonce: str) -> float:
        """Until when the challenge is good; raise `SqlError` 28000 for one that is not."""
        text, _, seal = nonce.rpartition(".")
        ours = hmac.compare_digest(seal.encode(), self._sealed(text).encode())
        until = int(text.rpartition(".")[2]) / 1000 if ours else 0.0
        if self._clock() >= until:
            raise SqlError("the challenge that was signed is not ours, or too old", sqlstate="28000")
        return until

    def _spend(self, nonce: str, until: float) -> None:
        with self._lock:
            now = self._clock()
            self._spent = {each: end for each, end in self._spent.items() if end > now}
            if nonce in self._spent:
                raise SqlError("the challenge that was signed is not ours, or too old", sqlstate="28000")
            self._spent[nonce] = until

    def _check(self, request: dict[str, Any]) -> None:
        """Raise `SqlError` 28000 unless whoever wants to join may."""
        if self._tls is None or "certificate" not in request:
            self._check_token(str(request.get("token", "")))
            return
        nonce = str(request.get("nonce", ""))
        until = self._check_nonce(nonce)
        offer = request.get("offer")
        worker = str(offer.get("id", "")) if isinstance(offer, dict) else ""
        try:
            proof.check(self._tls, request, worker, self._is_user)
        except StoreUnavailable as error:
            raise SqlError(error.what, sqlstate="57P03", hint=error.hint) from error
        self._spend(nonce, until)

    def _check_token(self, token: str) -> None:
        try:
            right = join_token(self._store)
        except PenstockError as error:
            raise SqlError(error.what, sqlstate="57P03", hint=error.hint) from error
        if not hmac.compare_digest(token.encode(), right.encode()):
            raise SqlError(
                "the join token is not the one of this cluster",
                sqlstate="28000",
                hint="`penstock cluster token` on a coordinator prints it: set cluster.join_token to it",
            )


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        if len(body) > _LARGEST:
            raise ValueError("it is too long")
        request = json.loads(body, parse_constant=_no_number)
        if not isinstance(request, dict):
            raise ValueError("it is no object")
        int(request.get("number", 0))
        # Half a character can be written in JSON, and nowhere else.
        json.dumps(request, ensure_ascii=False).encode()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SqlError(f"the request of a worker cannot be read: {error}", sqlstate="22023") from None
    return request


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
