"""Servers for tests: where one cannot be had, the tests that need it are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from servers.etcd import EtcdCluster
from servers.packages import Missing


@contextmanager
def started(**options: Any) -> Iterator[EtcdCluster]:
    """An etcd cluster that runs."""
    try:
        cluster = EtcdCluster(**options)
    except Missing as missing:
        pytest.skip(str(missing))
    with cluster:
        yield cluster
