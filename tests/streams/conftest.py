"""A stream whose source waits at gates, which tests open and close, and a fleet of instances that run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streams.fleet import Fleet, with_settings
from tests.streams.jobs.gated import Gates


@pytest.fixture
def gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gates:
    monkeypatch.setenv("GATED_FOLDER", str(tmp_path / "gates"))
    return Gates(tmp_path / "gates")


@pytest.fixture
def fleet(gates: Gates, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(
        "gated", f"sqlite:///{tmp_path}/store.db", tmp_path / "storage", with_settings(epoch_every=0.3)
    )
    yield fleet
    fleet.close()
