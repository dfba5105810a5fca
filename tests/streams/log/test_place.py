from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.config.tls import Tls
from penstock.errors import UsageError
from penstock.streams.place import Place


@pytest.mark.parametrize("tls", [None, Tls("ca.pem", "cert.pem", "key.pem")])
def test_a_place_travels(tls: Tls | None) -> None:
    place = Place("etcd://user@a,b/prefix", "/data", "ticks", "0a1b", tls)
    assert Place.decode(place.encode()) == pickle.loads(pickle.dumps(place)) == place
    assert place.layout.cluster == "stream.ticks.0a1b"


def test_a_place_is_opened_and_closed(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path / 'store.db'}", str(tmp_path / "storage"), "ticks", "0a1b")
    with place.open() as (store, storage):
        assert store.cas("key", 0, b"value")
        assert storage.local == tmp_path / "storage"
    store, _ = place.open()
    assert store.get("key")
    store.close()


def test_a_place_holds_no_password() -> None:
    with pytest.raises(UsageError, match="password") as caught:
        Place("etcd://user:secret@a/prefix", "/data", "ticks", "0a1b")
    assert "PENSTOCK_STORE_PASSWORD" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_no_place_is_refused() -> None:
    for text in ("", "{}", "[]", '{"store": 1}'):
        with pytest.raises(UsageError, match="not the place of a stream"):
            Place.decode(text)
