from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store import open_store
from penstock.store.base import Store
from tests.streams.log.support import Made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        yield store


@pytest.fixture
def made(store: Store, tmp_path: Path) -> Made:
    return Made(store, tmp_path / "storage")
