"""What children write to standard error passes through the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from penstock.spark.stderr import relayed

if TYPE_CHECKING:
    import pytest


def _started(word: str) -> None:
    with relayed():
        program = f"import sys; sys.stderr.write({word!r} + chr(10))"
        subprocess.run([sys.executable, "-c", program], check=True)


def test_several_at_once_arrive_and_leave_nothing_open(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(2).st_ino
    words = [f"word-{n}" for n in range(4)]
    threads = [threading.Thread(target=_started, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for relay in [t for t in threading.enumerate() if t.name == "penstock-stderr"]:
        relay.join(30)  # it ends with its last writer
    assert sorted(capfd.readouterr().err.split()) == words
    assert os.fstat(2).st_ino == before


def test_a_process_without_standard_error_starts_children_all_the_same() -> None:
    program = (
        "import os, subprocess; os.close(2)\n"
        "from penstock.spark.stderr import relayed\n"
        "with relayed(): subprocess.run(['true'], check=True)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
