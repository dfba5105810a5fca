"""What the three stores keep: a SQLite file, objects in a folder, the envelope of etcd; and certificates."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from unittest.mock import patch

import apsw
from cryptography import x509

from penstock.certs import records
from penstock.store import Store, open_store
from penstock.store.etcd.layout import Layout, request_of, seal
from penstock.store.etcd.wire_pb2 import KeyValue
from penstock.store.objects import names, trail
from penstock.store.objects.sessions import _ttl
from penstock.store.objects.versions import VersionRecord
from tests.golden.kit import FOLDER, Golden, Tree, listing, text

DOCUMENTS = {
    "runs/nightly/run": '{"text":"ä"}'.encode(),
    "runs/nightly~1a2b3c4d/done/000000": b"\x00\xff" * 4,
    "Streams/Über. all/..": b"",
}
REQUEST = bytes(range(16))
LAYOUT = Layout("/penstock")
TRAIL = trail.extended(
    trail.extended(trail.extended(trail.BARE, 7, "00aabbccddeeff11"), 8, "22" * 8), 19, "33" * 8
)
VERSION = VersionRecord("0123456789abcdef", "fedcba9876543210", '{"text":"ä"}'.encode(), TRAIL)
BINARY = VersionRecord("0123456789abcdef", None, b"\x00\xff", trail.BARE)
TOMBSTONE = VersionRecord("0123456789abcdef", "fedcba9876543210", None, TRAIL)
GROUND = VersionRecord("0123456789abcdef", None, None, trail.BARE, ground=True)
HEARTBEAT = VersionRecord(
    "0123456789abcdef", "fedcba9876543210", b'{"ttl": 12.5, "owner": "process 1 on host"}'
)


def fill(store: Store) -> None:
    """Documents of several versions, one that is gone, and a session that was closed."""
    for key, value in DOCUMENTS.items():
        first = store.cas(key, 0, b"before")
        assert first is not None
        assert store.cas(key, first, value) is not None
    gone = store.cas("runs/gone/run", 0, b"gone")
    assert gone is not None
    assert store.cas("runs/gone/run", gone, None) is not None
    store.session(10.0).close()


def contents(store: Store) -> Any:
    return {document.key: document.value for document in store.scan("")}


def go_on(store: Store) -> None:
    """Every document can be changed, and those that are gone made anew, with later versions."""
    newest = {document.key: document.version for document in store.scan("")}
    for key, version in newest.items():
        assert (store.cas(key, version, b"after") or 0) > version
    assert store.cas("runs/gone/run", 0, b"again") is not None
    with_session = store.session(10.0)
    assert store.alive([with_session.id, "nobody"]) == {with_session.id}
    with_session.close()


def _sqlite(folder: Path) -> Store:
    return open_store(f"sqlite:///{folder}/store.db")


def _make_sqlite(folder: Path) -> None:
    store = _sqlite(folder)
    fill(store)
    store.close()
    (folder / "store.db.lock").unlink(missing_ok=True)


def _objects(folder: Path) -> Store:
    return open_store(f"file://{folder}")


def _make_objects(folder: Path) -> None:
    store = _objects(folder)
    with patch.object(socket, "gethostname", lambda: "host"):
        fill(store)
        # One that lives, as a process that was killed has left it.
        store.session(10.0)
    store.close()


def _with(opened: Any, do: Any) -> Any:
    def act(folder: Path) -> Any:
        store = opened(folder)
        try:
            return do(store)
        finally:
            store.close()

    return act


def _schema() -> bytes:
    """Tables and indexes of the SQLite file, as a new store makes them."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        _sqlite(Path(folder)).close()
        connection = apsw.Connection(f"{folder}/store.db")
        found = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()
        numbers = [
            connection.execute(f"PRAGMA {name}").fetchall()[0][0]
            for name in ("application_id", "user_version")
        ]
        connection.close()
    return text(*(row[0] for row in found), *numbers)


def _names() -> bytes:
    keys = ("runs/May 1/state", "a//b", "..", "Ä" * 60, "streams/clicks/1a2b3c4d/outputs/counts/table")
    for key in keys:
        assert names.key_of(names.folder_of(key)) == key
    return text(
        *(names.folder_of(key) for key in keys),
        names.version_name(7),
        names.DOCUMENTS,
        names.SESSIONS,
        names.FLOOR,
        TRAIL,
    )


def _envelope(data: bytes) -> Any:
    found = KeyValue(key=b"/penstock/d/runs/nightly/run", value=data, mod_revision=9)
    document = LAYOUT.to_document(found)
    return request_of(found), document.key, document.value, document.version


def _etcd_keys() -> bytes:
    return text(
        LAYOUT.document("runs/nightly/run").decode(),
        LAYOUT.session("session-1").decode(),
        LAYOUT.receipt(REQUEST).decode(),
        *(bound.decode() for bound in LAYOUT.bounds("runs/")),
    )


def _heartbeat(data: bytes) -> Any:
    found = VersionRecord.from_json(data)
    assert found.value is not None
    return found, _ttl("session", found.value)


def _certificate() -> x509.Certificate:
    return x509.load_pem_x509_certificate((FOLDER / "certs/certificate.pem").read_bytes())


def _issued(data: bytes) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = records.path_of(Path(folder), "node-1")
        path.parent.mkdir()
        path.write_bytes(data)
        assert records.nodes(Path(folder)) == ["node-1"]
        found = records.load(Path(folder), "node-1")
        assert found is not None
        assert set(found.certificates) == {_certificate()}
        return found.folder, len(found.certificates)


def _issue() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = records.IssuedRecord(Path("/etc/penstock"), (_certificate(), _certificate()))
        records.save(Path(folder), "node-1", made)
        return records.path_of(Path(folder), "node-1").read_bytes()


def _make_certificate() -> bytes:
    from datetime import UTC, datetime

    from penstock.certs import making

    pair = making.make_ca("golden", 3650, datetime(2026, 1, 2, tzinfo=UTC))
    return pair.certificates


GOLDEN = [
    listing("stores/sqlite-schema.sql", _schema),
    listing("stores/object-names.txt", _names),
    Golden("stores/object.json", VERSION, VersionRecord.from_json, VERSION.to_json),
    Golden("stores/object-binary.json", BINARY, VersionRecord.from_json, BINARY.to_json),
    Golden("stores/object-tombstone.json", TOMBSTONE, VersionRecord.from_json, TOMBSTONE.to_json),
    Golden("stores/object-ground.json", GROUND, VersionRecord.from_json, GROUND.to_json),
    Golden("stores/object-session.json", (HEARTBEAT, 12.5), _heartbeat, HEARTBEAT.to_json),
    Golden(
        "stores/etcd-document.bin",
        (REQUEST, "runs/nightly/run", b'{"format":1}', 9),
        _envelope,
        lambda: seal(REQUEST, b'{"format":1}'),
    ),
    listing("stores/etcd-keys.txt", _etcd_keys),
    Golden(
        "certs/certificate.pem",
        "golden",
        lambda data: x509.load_pem_x509_certificate(data).subject.rfc4514_string().partition("CN=")[2][:6],
        _make_certificate,
        plain=lambda _: None,
    ),
    Golden("certs/issued.json", (Path("/etc/penstock"), 2), _issued, _issue),
]

TREES = [
    Tree("stores/sqlite", DOCUMENTS, _make_sqlite, _with(_sqlite, contents), _with(_sqlite, go_on)),
    Tree("stores/objects", DOCUMENTS, _make_objects, _with(_objects, contents), _with(_objects, go_on)),
]
