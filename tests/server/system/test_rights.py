"""What each user sees of the state of the system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import SqlError
from penstock.server.base import User
from penstock.server.system import SystemTables, batch, streaming
from penstock.storage import Storage
from penstock.store.memory import MemoryStore

RITA = User("rita", schemas=frozenset({"public", "daily"}))
SAM = User("sam", schemas=frozenset({"sys"}))
ROOT = User("root", admin=True)


def _rows(column: str) -> Iterator[Mapping[str, Any]]:
    yield from ({column: "daily"}, {column: "secret"})


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemTables:
    for name in ("runs", "partitions", "checkpoints"):
        monkeypatch.setattr(batch, name, lambda *_: _rows("run"))
    for name in ("streams", "frontiers"):
        monkeypatch.setattr(streaming, name, lambda *_: _rows("stream"))
    return SystemTables(MemoryStore(), Storage(tmp_path), Config("memory:", str(tmp_path)))


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("runs", "run"),
        ("partitions", "run"),
        ("checkpoints", "run"),
        ("streams", "stream"),
        ("frontiers", "stream"),
    ],
)
def test_runs_and_streams_are_seen_by_who_may_read_them(
    tables: SystemTables, table: str, column: str
) -> None:
    seen = {user.name: tables.rows(table, user)[column].to_pylist() for user in (RITA, SAM, ROOT)}
    assert seen == {"rita": ["daily"], "sam": ["daily", "secret"], "root": ["daily", "secret"]}


@pytest.mark.parametrize("table", ["members", "leases", "assignments", "barriers", "epochs"])
def test_the_cluster_is_seen_by_who_may_read_sys(tables: SystemTables, table: str) -> None:
    assert tables.rows(table, SAM).num_rows == 0
    with pytest.raises(SqlError, match="permission denied") as caught:
        tables.rows(table, RITA)
    assert caught.value.sqlstate == "42501"
    assert tables.rows("queries", RITA).num_rows == 0
