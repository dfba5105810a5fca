from __future__ import annotations

import pytest

from penstock.store.base import Store
from penstock.store.conformance import StoreConformance
from penstock.store.memory import MemoryStore


class TestMemoryStore(StoreConformance):
    now = 0.0

    @pytest.fixture
    def stores(self) -> tuple[Store, Store]:
        store = MemoryStore(clock=lambda: self.now)
        return store, store

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
