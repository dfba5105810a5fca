"""Real etcd clusters: one that is left alone, and others that tests may hurt, lock and fill."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.store.etcd import EtcdStore
from servers.etcd import EtcdCluster
from servers.pki import Authority
from tests.servers import started

_prefixes = itertools.count()


@pytest.fixture
def open_in() -> Iterator[Callable[..., EtcdStore]]:
    """Opens handles on this test's own store in a cluster, and closes them in the end."""
    prefix = f"test-{next(_prefixes)}"
    with ExitStack() as handles:

        def open_handle(
            cluster: EtcdCluster, endpoints: list[str] | None = None, **options: Any
        ) -> EtcdStore:
            return handles.enter_context(EtcdStore(endpoints or cluster.endpoints, prefix, **options))

        yield open_handle


@pytest.fixture(scope="module")
def _fragile_etcd() -> Iterator[EtcdCluster]:
    with started() as cluster:
        yield cluster


@pytest.fixture
def fragile_etcd(_fragile_etcd: EtcdCluster) -> EtcdCluster:
    """Three nodes that the test may kill and pause; all of them answer when it begins."""
    _fragile_etcd.heal()
    return _fragile_etcd


@pytest.fixture
def small_etcd() -> Iterator[EtcdCluster]:
    """A node that takes requests of 100 KB, and 2 MB of them."""
    with started(size=1, flags=("--max-request-bytes=100000", "--quota-backend-bytes=2000000")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def locked_etcd() -> Iterator[EtcdCluster]:
    """Two nodes that know only the user root, with the password `secret`."""
    with started(size=2, password="secret") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_etcd(authority: Authority) -> Iterator[EtcdCluster]:
    """A node that speaks TLS, as 127.0.0.1 and with clients of the authority only."""
    with started(size=1, tls=authority.issue("etcd", hosts=("127.0.0.1",))) as cluster:
        yield cluster
