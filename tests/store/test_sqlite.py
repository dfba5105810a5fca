from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from penstock.core import clocks
from penstock.errors import CorruptFile, StorageFull, StoreUnavailable, UsageError
from penstock.store import filelock, sqlite
from penstock.store.base import Store, Write
from penstock.store.conformance import StoreConformance
from penstock.store.sqlite import SqliteStore


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
        with SqliteStore(tmp_path / "s.db") as one, SqliteStore(tmp_path / "s.db") as other:
            yield one, other


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as opened:
        yield opened


INCREMENT = """
import sys
from penstock.store.sqlite import SqliteStore
store, acked = SqliteStore(sys.argv[1]), 0
while acked < int(sys.argv[2]):
    document = store.get("n")
    if store.cas("n", document.version, b"%d" % (int(document.value) + 1)):
        acked += 1
        print(acked, flush=True)
"""


def test_four_processes_lose_nothing_when_one_is_killed(store: SqliteStore, path: Path) -> None:
    store.cas("n", 0, b"0")
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", INCREMENT, str(path), str(count)], stdout=subprocess.PIPE, text=True
        )
        for count in (150, 150, 150, 1_000_000)
    ]
    victim = workers[3]
    assert victim.stdout is not None
    for _ in range(50):
        victim.stdout.readline()
    victim.kill()
    # What was read ahead is in the stream, where communicate would not look.
    acked = 50 + len(victim.stdout.read().split())
    victim.communicate(timeout=30)
    for worker in workers[:3]:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    document = store.get("n")
    assert document is not None
    # One increment may have been committed without being reported: the victim died in between.
    assert int(document.value) - (450 + acked) in (0, 1)


def test_a_stopped_writer_is_reported_not_waited_for_forever(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.cas("k", 0, b"1")
    code = (
        "import sys, time; from pathlib import Path; from penstock.store.filelock import FileLock\n"
        "with FileLock(Path(sys.argv[1]), 5).held(): print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, f"{path}.lock"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGSTOP)
    try:
        handle = store._handle
        assert handle is not None
        monkeypatch.setattr(handle.gate, "_timeout", 0.2)
        with pytest.raises(StoreUnavailable, match=f"process {holder.pid} has held"):
            store.cas("k2", 0, b"1")
        assert store.get("k") is not None
    finally:
        holder.kill()
        holder.communicate()
    assert store.cas("k2", 0, b"1")


def test_threads_wait_for_the_lock_no_longer_than_its_timeout(path: Path) -> None:
    lock = filelock.FileLock(path, 0.1)
    with lock.held(), pytest.raises(StoreUnavailable), lock.held():
        pass
    lock.close()


def test_it_works_in_a_forked_child_while_the_parent_goes_on(store: SqliteStore) -> None:
    session = store.session(60)
    store.cas("k", 0, b"parent")
    child = os.fork()
    if child == 0:
        document = store.get("k")
        good = (
            document is not None and store.cas("k", document.version, b"child") and store.alive([session.id])
        )
        store.close()
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    document = store.get("k")
    assert document is not None and document.value == b"child"
    assert store.cas("k", document.version, b"parent again")


def test_a_session_of_another_boot_is_dead(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.session(1000)
    assert store.alive([session.id])
    monkeypatch.setattr(clocks, "boot", lambda: "another boot")
    assert not store.alive([session.id])


def test_a_clock_that_began_anew_kills_old_sessions(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session(10)
    monkeypatch.setattr(clocks, "now", lambda: 0.5)
    assert not store.alive([session.id])


def test_death_is_final_once_somebody_saw_it(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    session, now = store.session(10), clocks.now()
    monkeypatch.setattr(clocks, "now", lambda: now + 11)
    assert not store.alive([session.id])
    monkeypatch.setattr(clocks, "now", lambda: now)
    assert not store.alive([session.id])


def test_old_tombstones_are_pruned_and_versions_still_grow(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_TOMBSTONES", 10)
    for i in range(300):
        version = store.cas(f"k{i}", 0, b"")
        assert version is not None
        store.cas(f"k{i}", version, None)
    before = store.revision()
    assert len(store._read("SELECT key FROM documents", ())) < 200
    again = store.cas("k0", 0, b"")
    assert again is not None and again > before


def test_many_writes_are_one_transaction(store: SqliteStore, path: Path) -> None:
    store.cas_many([Write(f"k{i}", 0, b"x") for i in range(100)])
    assert [d.key for d in store.list("k", limit=3)] == ["k0", "k1", "k10"]


@pytest.mark.parametrize(
    "content", [b"this is no database, just text" * 200, b"SQLite format 3\0" + b"\xff" * 8000]
)
def test_a_corrupt_file_is_named_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="not a readable store") as caught:
        SqliteStore(path)
    assert caught.value.hint and path.read_bytes() == content


def test_the_database_of_another_program_is_refused(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE customers (name)")
    connection.close()
    with pytest.raises(UsageError, match="another program"):
        SqliteStore(path)


def test_a_newer_format_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(UsageError, match="store format 99"):
        SqliteStore(path)


def test_a_path_below_a_file_is_refused(path: Path) -> None:
    path.write_text("")
    with pytest.raises((UsageError, StoreUnavailable)):
        SqliteStore(path / "below.db")


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    store.close()
    with pytest.raises(UsageError, match="was closed"):
        store.get("k")


def test_a_lock_held_by_another_program_is_unavailability(path: Path, store: SqliteStore) -> None:
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    handle = store._handle
    assert handle is not None
    handle.connection.set_busy_timeout(50)
    with pytest.raises(StoreUnavailable):
        store.cas("k", 0, b"")
    other.execute("ROLLBACK")
    other.close()
    assert store.cas("k", 0, b"")


def test_a_renewal_is_not_stuck_behind_a_slow_reader(store: SqliteStore) -> None:
    session, stop = store.session(5), threading.Event()

    def read() -> None:
        while not stop.is_set():
            store.list("", limit=1000)

    store.cas_many([Write(f"k{i:04d}", 0, b"x" * 1000) for i in range(500)])
    reader = threading.Thread(target=read)
    reader.start()
    began = time.monotonic()
    for _ in range(20):
        session.keepalive()
    stop.set()
    reader.join()
    assert time.monotonic() - began < 30


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)], capture_output=True
    )
    if made.returncode:
        pytest.skip("mounting a small disk needs root")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_halts_and_keeps_what_was_committed(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "s.db")
    written: list[int] = []

    def fill() -> None:
        for i in range(1000):
            store.cas(f"k{i}", 0, os.urandom(8000))
            written.append(i)

    with pytest.raises(StorageFull) as caught:
        fill()
    assert caught.value.hint
    assert len(store.list("")) == len(written) > 5
    store.close()


def test_a_new_store_is_for_its_owner_alone(path: Path) -> None:
    store = SqliteStore(path)
    store.cas("a", 0, b"secret")
    found = {file.name: file.stat().st_mode & 0o077 for file in path.parent.glob("s.db*")}
    store.close()
    assert {found[name] for name in ("s.db", "s.db-wal", "s.db-shm")} == {0}
    path.chmod(0o660)
    SqliteStore(path).close()
    assert path.stat().st_mode & 0o777 == 0o660
