"""What Spark says by itself when something ends: nothing, since whoever asked is told as an error."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("how", "code", "said"), [("fail", 0, "the table is gone"), ("kill", -signal.SIGKILL, "")]
)
def test_spark_says_nothing_of_its_own(how: str, code: int, said: str) -> None:
    command = [sys.executable, "-m", "tests.spark.noise", how]
    # Its JVM has the same stderr: both have ended when that does.
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, said, "")
