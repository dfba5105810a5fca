"""The object store in a bucket of a real S3 server."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import obstore
import pytest

from penstock.errors import ConfigError, StoreUnavailable, UsageError
from penstock.store.base import Store, Write
from penstock.store.conformance import StoreConformance
from penstock.store.objects import ObjectStore
from servers.ports import free_ports
from servers.seaweed import Seaweed
from tests.store.objects_faults import Create, make_faulty
from tests.store.test_objects import INCREMENT
from tests.store.test_objects_names import AWKWARD


@pytest.fixture
def server(s3: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Seaweed:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.fixture
def url(server: Seaweed) -> str:
    return f"s3://{server.bucket}/{secrets.token_hex(4)}/below"


@pytest.fixture
def store(url: str) -> Iterator[ObjectStore]:
    with ObjectStore(url) as opened:
        yield opened


class TestObjectStoreInABucket(StoreConformance):
    ttl = 1.0

    @pytest.fixture
    def stores(self, url: str) -> Iterator[tuple[Store, Store]]:
        with ObjectStore(url) as one, ObjectStore(url) as other:
            yield one, other


def test_awkward_keys_are_apart(store: ObjectStore) -> None:
    short = [key for key in AWKWARD if len(key) < 300]
    assert None not in store.cas_many([Write(key, 0, key.encode()) for key in short])
    found = store.list("")
    assert [document.key for document in found] == sorted(short)
    assert all(document.value == document.key.encode() for document in found)


def test_two_processes_lose_nothing_when_one_is_killed(store: ObjectStore, url: str) -> None:
    store.cas("n", 0, b"0")
    commands = [[sys.executable, "-c", INCREMENT, url, str(count)] for count in (60, 1_000_000)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    victim = workers[1]
    assert victim.stdout is not None
    for _ in range(20):
        victim.stdout.readline()
    victim.kill()
    # What was read ahead is in the stream, where communicate would not look.
    acked = 20 + len(victim.stdout.read().split())
    victim.communicate(timeout=30)
    workers[0].communicate(timeout=60)
    assert workers[0].returncode == 0
    document = store.get("n")
    assert document is not None
    # One increment may have been made without being reported: the victim died in between.
    assert int(document.value) - (60 + acked) in (0, 1)


class Wire:
    """A connection to the server that can lose an answer after the server gave it."""

    def __init__(self, server: Seaweed) -> None:
        self._server = ("127.0.0.1", int(server.endpoint.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.lose_next = False
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if ready is server and self.lose_next:
                        self.lose_next, self.lost = False, self.lost + 1
                        return
                    if not data:
                        return
                    (server if ready is client else client).sendall(data)


@pytest.fixture
def wire(server: Seaweed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    wire = Wire(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", wire.endpoint)
    yield wire
    wire.close()


def test_a_write_whose_answer_the_network_lost_is_made_once(wire: Wire, url: str) -> None:
    def lose_answer(create: Create) -> None:
        wire.lose_next = True
        create()

    with ObjectStore(url) as store:
        bucket = make_faulty(store)
        version: int | None = 0
        for expected in (2, 3, 4, 5, 6):
            bucket.faults.append(lose_answer)
            version = store.cas("k", version or 0, b"")
            assert version == expected
        session = store.session(60)
        bucket.faults.append(lose_answer)
        session.keepalive()
    assert wire.lost == 6


# what people get wrong


def test_wrong_credentials_are_the_users_business(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with ObjectStore(url) as store:
        for use in (lambda: store.get("k"), lambda: store.cas("k", 0, b""), lambda: store.session(1)):
            with pytest.raises(ConfigError, match="refuses our credentials") as caught:
                use()
            assert caught.value.hint and "secret" not in str(caught.value).lower()


def test_a_bucket_that_is_not_there_is_named(server: Seaweed) -> None:
    with ObjectStore("s3://absent/prefix") as store:
        for use in (lambda: store.get("k"), lambda: store.cas("k", 0, b""), lambda: store.list("")):
            with pytest.raises(ConfigError, match="no bucket for s3://absent/prefix"):
                use()


def test_a_server_that_is_not_there_is_unavailable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    with ObjectStore(url) as store, pytest.raises(StoreUnavailable):
        store.get("k")


def test_a_server_that_does_not_answer_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{mute.getsockname()[1]}")
        with ObjectStore(url) as store:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.get("k")
            assert time.monotonic() - began < 30


def test_an_http_endpoint_needs_no_other_permission(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with ObjectStore(url) as store:
        assert store.cas("k", 0, b"")


def test_a_forked_child_is_told_instead_of_waiting_for_ever(store: ObjectStore) -> None:
    store.cas("k", 0, b"")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            store.get("k")
        except UsageError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert store.get("k") is not None


def test_a_server_that_ignores_the_condition_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(
        obstore, "put", lambda store, path, body, **_: put(store, path, body, use_multipart=False)
    )
    with ObjectStore(url) as store, pytest.raises(ConfigError, match="create the same object twice"):
        store.cas("k", 0, b"1")
