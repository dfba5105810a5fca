"""What a program is told about the committed epochs of a stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import StreamHandle, open_store
from penstock.streams import registry
from tests.streams.log.support import NOON, Made

if TYPE_CHECKING:
    import pytest


def test_history_has_the_time_and_the_rows_of_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, files = f"sqlite:///{tmp_path}/store.db", tmp_path / "files"
    with open_store(url) as store:
        record = registry.open_stream(store, "ticks", {"sources": {}, "outputs": {}})
        made = Made(store, files)
        first = made.commit(3)
        made.commit(0)
        second = made.commit(5, at=NOON + timedelta(seconds=1))
    monkeypatch.setattr(registry, "load", lambda *_: replace(record, id=made.layout.id))
    with StreamHandle("ticks", url, str(files)) as handle:
        assert handle.history() == [
            (first, NOON, {"ann": 3}),
            (second, NOON + timedelta(seconds=1), {"ann": 5}),
        ]
        assert handle.epochs() == [first, second]
