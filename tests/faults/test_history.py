from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.errors import StoreUnavailable
from penstock.store.base import Write
from penstock.store.memory import MemoryStore
from penstock.store.sqlite import SqliteStore
from tests.faults.history import Recorder, merged
from tests.faults.linearizability import check
from tests.faults.register import Conflict, Outcome, Read, Unknown, Written

ROOT = Path(__file__).parents[2]


class LosesAnswers(MemoryStore):
    """Applies every write, and tells nobody while it is cut off."""

    cut_off = False

    def cas_many(self, writes: Sequence[Write]) -> Sequence[int | None]:
        versions = super().cas_many(writes)
        if self.cut_off:
            raise StoreUnavailable("no answer")
        return versions

    def get_many(self, keys: Sequence[str]) -> Sequence[None]:
        raise StoreUnavailable("no answer")


def outcomes(recorder: Recorder) -> list[tuple[str, Outcome]]:
    return [(operation.key, operation.outcome) for operation in recorder.history()]


def test_each_operation_is_recorded_with_its_outcome() -> None:
    recorder = Recorder(MemoryStore())
    assert recorder.get("a") is None
    assert recorder.cas("a", 0, b"1") == 1
    assert recorder.cas("a", 0, b"2") is None
    assert recorder.cas_many([Write("a", 1, None), Write("b", 0, b"3")]) == [2, 3]
    recorder.get_many(["b", "a"])
    assert outcomes(recorder) == [
        ("a", Read(None, None)),
        ("a", Written(0, b"1", 1)),
        ("a", Conflict(0, b"2")),
        ("a", Written(1, None, 2)),
        ("b", Written(0, b"3", 3)),
        ("b", Read(b"3", 3)),
        ("a", Read(None, None)),
    ]


def test_a_failed_write_is_unknown_and_a_failed_read_is_nothing() -> None:
    store = LosesAnswers()
    recorder = Recorder(store)
    recorder.cas("a", 0, b"1")
    store.cut_off = True
    with pytest.raises(StoreUnavailable):
        recorder.cas("a", 1, b"2")
    with pytest.raises(StoreUnavailable):
        recorder.get("a")
    assert outcomes(recorder) == [("a", Written(0, b"1", 1)), ("a", Unknown(1, b"2"))]


def test_threads_share_one_history() -> None:
    recorder = Recorder(MemoryStore())
    recorder.cas("n", 0, b"0")

    def increment() -> None:
        for _ in range(100):
            document = recorder.get("n")
            assert document is not None
            recorder.cas("n", document.version, b"%d" % (int(document.value) + 1))

    threads = [threading.Thread(target=increment, name=f"writer-{i}") for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = recorder.history()
    assert len(history) == 801
    assert len({operation.who for operation in history}) == 5
    assert check(history) is None


def test_what_a_file_says_is_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    store = LosesAnswers()
    with Recorder(store, path) as recorder:
        recorder.cas("ä", 0, bytes(range(256)))
        recorder.cas("ä", 1, None)
        recorder.cas("ä", 1, b"")
        store.cut_off = True
        with pytest.raises(StoreUnavailable):
            recorder.cas("b", 0, b"")
        assert merged([path]) == list(recorder.history())


def test_a_call_without_an_answer_may_have_been_applied(tmp_path: Path) -> None:
    path, cut = tmp_path / "history.jsonl", tmp_path / "cut.jsonl"
    with Recorder(MemoryStore(), path) as recorder:
        recorder.cas("a", 0, b"1")
    for kept in range(len(path.read_bytes())):
        cut.write_bytes(path.read_bytes()[:kept])
        assert [each.outcome for each in merged([cut])] in ([], [Unknown(0, b"1")], [Written(0, b"1", 1)])
    assert [each.outcome for each in merged([path])] == [Written(0, b"1", 1)]


INCREMENT = """
import sys
from pathlib import Path
from penstock.store.sqlite import SqliteStore
from tests.faults.history import Recorder
store = Recorder(SqliteStore(sys.argv[1]), Path(sys.argv[2]))
done = 0
while done < int(sys.argv[3]):
    document = store.get("n")
    done += store.cas("n", document.version, b"%d" % (int(document.value) + 1)) is not None
"""


def test_processes_make_one_history_even_when_killed(tmp_path: Path) -> None:
    store = Recorder(SqliteStore(tmp_path / "s.db"))
    store.cas("n", 0, b"0")
    paths = [tmp_path / f"{i}.jsonl" for i in range(3)]
    command = [sys.executable, "-c", INCREMENT, str(tmp_path / "s.db")]
    writers = [
        subprocess.Popen([*command, str(path), count], cwd=ROOT)
        for path, count in zip(paths, ("50", "50", "1000000"), strict=True)
    ]
    deadline = time.monotonic() + 20
    while not (paths[2].exists() and "Written" in paths[2].read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    writers[2].send_signal(signal.SIGKILL)
    assert [writer.wait(20) for writer in writers] == [0, 0, -signal.SIGKILL]
    last = store.get("n")
    assert last is not None
    history = [*store.history(), *merged(paths)]
    assert check(history) is None
    acked = sum(isinstance(operation.outcome, Written) for operation in history) - 1
    unknown = sum(isinstance(operation.outcome, Unknown) for operation in history)
    assert acked <= int(last.value) <= acked + unknown
    assert unknown <= 1
