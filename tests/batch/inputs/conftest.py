"""A store and a storage for inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.storage import Storage
from penstock.store import open_store
from tests.batch.inputs.support import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    data = tmp_path / "data"
    data.mkdir()
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        yield Place(store, Storage(tmp_path / "storage"), data)
