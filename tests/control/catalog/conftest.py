from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.base import Store
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Two handles on one empty store, as two processes would have them."""
    if request.param == "memory":
        store = MemoryStore()
        yield store, store
        return
    with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as other:
        yield one, other
