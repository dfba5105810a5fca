from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from penstock.core.failpoints import EXIT_CODE, VARIABLE, Failpoint, parse, reach
from penstock.errors import ConfigError

PROGRAM = """
from penstock.core.failpoints import reach
for i in range(3):
    reach("ack.before")
    print(i, flush=True)
"""


def start(points: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    environ = {**os.environ, VARIABLE: points}
    return subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE, text=True)


def wait_for_stop(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline, "it never stopped"
        time.sleep(0.01)


def run(points: str) -> tuple[int, str]:
    with start(points) as process:
        out, _ = process.communicate(timeout=30)
    return process.returncode, out


def test_unset_points_do_nothing() -> None:
    reach("ack.before")
    assert run("") == (0, "0\n1\n2\n")


def test_points_of_another_name_do_nothing() -> None:
    assert run("ack.after=kill") == (0, "0\n1\n2\n")


def test_kill_at_the_second_reach() -> None:
    assert run("other=stop, ack.before=kill@2") == (-signal.SIGKILL, "0\n")


def test_exit_at_the_first_reach() -> None:
    assert run("ack.before=exit") == (EXIT_CODE, "")


def test_a_stopped_process_goes_on_when_it_is_woken() -> None:
    with start("ack.before=stop@3") as process:
        wait_for_stop(process)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=30)
    assert out == "0\n1\n2\n"


WRITER = """
import threading
from penstock.core.failpoints import reach, unstopped
inside, go_on = threading.Event(), threading.Event()
def write():
    with unstopped():
        inside.set()
        go_on.wait()
        reach("other")
        print("written", flush=True)
writer = threading.Thread(target=write)
writer.start()
inside.wait()
threading.Timer(0.2, go_on.set).start()
reach("ack.before")
print("woken", flush=True)
"""


def test_a_stop_waits_for_what_holds_a_lock_of_the_store() -> None:
    with start("ack.before=stop", WRITER) as process:
        wait_for_stop(process)
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=30)[0] == "woken\n"


def test_a_point_under_that_lock_stops_there_all_the_same() -> None:
    with start("other=stop", WRITER) as process:
        wait_for_stop(process)
        process.send_signal(signal.SIGCONT)
        assert sorted(process.communicate(timeout=30)[0].split()) == ["woken", "written"]


def test_parse() -> None:
    assert parse("") is None
    assert parse("a=kill, b.c=stop@12") == {"a": Failpoint("kill"), "b.c": Failpoint("stop", 12)}


@pytest.mark.parametrize("text", ["a", "a=", "a=explode", "a=kill@x", "a=kill@0", "=kill"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a failpoint"):
        parse(text)
