from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store import open_store
from penstock.streams.place import Place
from tests.streams.log.support import Made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    store, storage = f"sqlite:///{tmp_path / 'store.db'}", str(tmp_path / "storage")
    return Place(store, storage, "ticks", "0a1b2c3d")


@pytest.fixture
def made(place: Place, tmp_path: Path) -> Iterator[Made]:
    with open_store(place.store) as store:
        yield Made(store, tmp_path / "storage")
