from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.store import open_store


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///deep/er/store.db") as store:
        store.cas("k", 0, b"v")
        assert store.url == f"sqlite:///{tmp_path}/deep/er/store.db"
    monkeypatch.chdir("/")
    with open_store(f"sqlite:///{tmp_path}/deep/er/store.db") as again:
        assert again.get("k") is not None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "redis://x",
        "sqlite:store.db",
        "sqlite://host/x",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:////d/",
    ],
)
def test_other_urls_are_refused_with_what_works(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///relative"):
        open_store(url)
