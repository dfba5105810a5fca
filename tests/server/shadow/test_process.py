"""The server as a process: starting, ending, and what others do to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import SqlError
from penstock.server.session_settings import Settings
from penstock.server.shadow import Shadow
from tests.server.shadow.asking import PETER, TABLES, ask, open_folder

HOLDER = """
import sys, threading
from pathlib import Path
from penstock.server.shadow import Shadow

shadow = Shadow(Path(sys.argv[1]))
# In a thread that ends: a server must not end with it.
thread = threading.Thread(target=shadow.start)
thread.start()
thread.join()
print(shadow._cluster._slot / "data", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


def _started(folder: Path) -> Shadow:
    shadow = Shadow(folder)
    shadow.start()
    assert shadow.problem is None
    return shadow


@pytest.fixture
def own(folder: Path) -> Iterator[Shadow]:
    shadow = _started(folder)
    yield shadow
    shadow.stop()


def _servers(data: Path) -> set[int]:
    """Every process of the PostgreSQL in that folder."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == data and (process / "comm").read_text().strip() == "postgres":
                found.add(int(process.name))
        except OSError:
            continue
    return found


def _postmaster(shadow: Shadow) -> int:
    assert shadow._cluster is not None
    return int((shadow._cluster._slot / "data" / "postmaster.pid").read_text().splitlines()[0])


def _kill(shadow: Shadow) -> None:
    """End the server so that nobody answers any more, as connections that are left do for a moment."""
    assert shadow._cluster is not None
    data = shadow._cluster._slot / "data"
    os.kill(_postmaster(shadow), signal.SIGKILL)
    _until(lambda: not _servers(data))


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_it_holds_is_kept_between_starts(folder: Path) -> None:
    shadow = _started(folder)
    shadow.sync(TABLES, [PETER])
    oid = ask(shadow, "select 'orders'::regclass::oid")
    shadow.stop()
    with pytest.raises(SqlError, match="it was stopped"):
        shadow.describe("select 1", (), PETER, Settings())

    shadow.start()
    version = shadow.version
    shadow.sync(TABLES, [PETER])

    assert shadow.version == version
    assert ask(shadow, "select 'orders'::regclass::oid") == oid
    shadow.stop()


def test_a_folder_of_another_version_or_with_nonsense_is_made_anew(folder: Path) -> None:
    shadow = _started(folder)
    assert shadow._cluster is not None
    slot = shadow._cluster._slot
    shadow.stop()
    (slot / "data" / "global" / "pg_control").write_bytes(b"nonsense")

    shadow.start()
    assert ask(shadow, "select 1") == [["1"]]
    shadow.stop()

    (slot / "made").write_text("another version")
    (slot / "data" / "left").touch()
    shadow.start()
    assert ask(shadow, "select 1") == [["1"]]
    assert not (slot / "data" / "left").exists()
    shadow.stop()


def test_nobody_else_may_enter_and_no_port_is_open(own: Shadow) -> None:
    assert own._cluster is not None
    slot = own._cluster._slot
    assert slot.stat().st_mode & 0o777 == 0o700
    assert own._cluster._sockets.stat().st_mode & 0o777 == 0o700
    assert ask(own, "select inet_server_port()") == [[None]]
    tcp = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    }
    sockets = {
        str(handle.readlink())
        for handle in Path(f"/proc/{_postmaster(own)}/fd").iterdir()
        if str(handle.readlink()).startswith("socket:")
    }
    assert sockets and not {f"socket:[{inode}]" for inode in tcp} & sockets
    if os.geteuid() == 0:
        assert Path(f"/proc/{_postmaster(own)}").stat().st_uid != 0


def test_two_on_one_folder_do_not_meet(own: Shadow, folder: Path) -> None:
    own.sync(TABLES, [PETER])
    other = _started(folder)

    assert ask(other, "select to_regclass('orders')") == [[None]]
    other.stop()
    assert ask(own, "select to_regclass('orders')") == [["orders"]]


def test_a_folder_that_is_shut_or_has_a_long_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / "shadow"
    tmp_path.chmod(0o700)
    shadow = _started(folder)
    assert ask(shadow, "select 1") == [["1"]]
    assert shadow._cluster is not None
    elsewhere = shadow._cluster._sockets
    assert folder not in elsewhere.parents

    shadow.stop()

    assert not elsewhere.exists()


def _holder(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a shadow, and where its server works."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def _killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_nothing_stays_behind_a_process_that_was_killed(folder: Path) -> None:
    process, data = _holder(folder)
    assert _servers(data)

    _killed(process)

    _until(lambda: not _servers(data))


def test_the_server_of_a_killed_process_is_ended_by_the_next_on_the_folder(folder: Path) -> None:
    process, data = _holder(folder)
    started = _servers(data)
    postmaster = int((data / "postmaster.pid").read_text().splitlines()[0])
    status = Path(f"/proc/{postmaster}/status").read_text().splitlines()
    guardian = int(next(line for line in status if line.startswith("PPid:")).split()[1])
    # As if it hung: so the server does not hear that its gateway is gone.
    os.kill(guardian, signal.SIGSTOP)
    try:
        _killed(process)
        assert started & _servers(data)
        shadow = _started(folder)
        assert shadow._cluster is not None and shadow._cluster._slot / "data" == data
        assert not started & _servers(data)
        shadow.stop()
    finally:
        os.kill(guardian, signal.SIGCONT)


def test_a_server_that_was_killed_is_started_again(own: Shadow) -> None:
    own.sync(TABLES, [PETER])
    assert ask(own, "select 1") == [["1"]]

    _kill(own)

    assert own.describe("select id from orders", (), PETER, Settings()).columns
    assert ask(own, "select to_regclass('orders')") == [["orders"]]
    _kill(own)
    assert ask(own, "select to_regclass('orders')") == [["orders"]]


def test_one_that_ends_again_and_again_is_given_up(own: Shadow) -> None:
    for _ in range(3):
        _kill(own)
        own.describe("select 1, now()", (), PETER, Settings())
        own._described.clear()
    _kill(own)

    with pytest.raises(SqlError) as caught:
        own.describe("select 1, now()", (), PETER, Settings())

    assert caught.value.sqlstate == "57P03"
    assert own.problem is not None and "4 times" in own.problem


def test_a_connection_that_is_lost_is_replaced(own: Shadow) -> None:
    (pid,) = ask(own, "select pg_backend_pid()")[0]
    assert pid is not None

    os.kill(int(pid), signal.SIGTERM)

    assert ask(own, "select 1") == [["1"]]
    assert own.problem is None


def test_without_programs_it_says_so_and_raises_nothing(folder: Path, tmp_path: Path) -> None:
    shadow = Shadow(folder, folder_of_programs=tmp_path)

    shadow.start()

    assert shadow.problem is not None and "PostgreSQL" in shadow.problem
    with pytest.raises(SqlError, match="there is no catalog") as caught:
        shadow.sync(TABLES, [PETER])
    assert caught.value.sqlstate == "57P03"
    shadow.stop()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    shadow = Shadow(tmp_path / "file" / "shadow")

    shadow.start()

    assert shadow.problem is not None
