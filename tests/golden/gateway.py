"""Users, tokens, and workers of the gateway."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from penstock.server.access import tokens, users
from penstock.server.access.passwords import Verifier
from penstock.server.access.users import Account, Users
from penstock.server.roles import worker_records
from penstock.server.roles.worker_records import WorkerBoard, WorkerView
from penstock.server.roles.workers import Life, Offer, Worker
from penstock.store.memory import MemoryStore
from tests.golden.kit import Golden, listing, numbered, only, stored, text

AT = "2026-01-02T03:04:05+00:00"
VERIFIER = Verifier.of("correct horse", salt=bytes(range(16)), iterations=4_096)
ACCOUNT = Account("anna", VERIFIER, False, True, frozenset({"sales", "public"}), True, AT)
ADMIN = Account("root", None, True, False, None, False, AT)
SECRET = bytes(range(32))
CLAIM = tokens.TokenClaim("anna", 1_767_323_045.5, "0123456789abcdef")
VIEW = WorkerView("worker-1", "alive", "10.0.0.1", 4, "8g", "0.1.0", AT, AT, "coordinator-1", 7)


def _user(name: str) -> Any:
    return lambda data: Users(stored(f"gateway/users/{name}", data)).find(name)


def _with_password(data: bytes) -> Any:
    found = _user("anna")(data)
    assert found.verifier.matches("correct horse")
    assert not found.verifier.matches("wrong horse")
    return found


def _worker() -> bytes:
    store = MemoryStore()
    with patch.object(worker_records, "wall_clock", lambda _: AT):
        offer = Offer("worker-1", "10.0.0.1", 4, "8g", "0.1.0")
        WorkerBoard(store, "coordinator-1", 7).show(Worker(offer, 1, 0.0, AT, Life.ALIVE))
    return only(store, "gateway/workers/worker-1")


GOLDEN = [
    Golden(
        "gateway/user.json",
        ACCOUNT,
        _with_password,
        lambda: users.ACCOUNT.encode(ACCOUNT),
        newer=numbered("format"),
    ),
    Golden("gateway/admin.json", ADMIN, _user("root"), lambda: users.ACCOUNT.encode(ADMIN)),
    Golden(
        "gateway/secret.bin",
        SECRET,
        lambda data: Users(stored("gateway/secret", data)).secret(),
        lambda: SECRET,
    ),
    Golden(
        "gateway/join-token.txt",
        "token",
        lambda data: worker_records.join_token(stored("gateway/join-token", data)),
        lambda: b"token",
    ),
    Golden(
        "gateway/bearer-token.txt",
        CLAIM,
        lambda data: tokens.unseal(SECRET, data.decode(), CLAIM.expires - 60),
        lambda: tokens.seal(SECRET, CLAIM).encode(),
    ),
    Golden(
        "gateway/worker.json",
        [VIEW],
        lambda data: worker_records.workers(stored("gateway/workers/worker-1", data)),
        _worker,
    ),
    # A token that was issued before must stay good: it holds this of the account.
    listing("gateway/stamp.txt", lambda: text(ACCOUNT.stamp, ADMIN.stamp)),
]
