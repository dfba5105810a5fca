"""(d) How much is read again after a process is killed, against what one epoch may read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

from bench.lab import Lab, Place
from bench.measuring import say
from bench.results import Result
from bench.shuffle import child
from bench.shuffle.data import Made, Spec

_MEGABYTE = 1_000_000


def run(lab: Lab) -> Iterator[Result]:
    made = Spec(lab.rows // 10, 300, 8).write(lab.folder / "data")
    again = []
    for number in range(1, lab.repeat + 1):
        with lab.place("reread") as place:
            again.append(_read_again(place, made) / _MEGABYTE)
        say(f"(d) {number}/{lab.repeat}: {again[-1]:.1f} of {made.bytes / _MEGABYTE:.1f} MB")
    yield Result.of(
        "(d) read again after a kill ÷ what an epoch may read (MB)",
        again,
        [child.SETTINGS.max_bytes / _MEGABYTE] * len(again),
        1.0,
    )


def _read_again(place: Place, made: Made) -> int:
    killed = _child(place, made, "stream.polled=kill@4")
    if killed.returncode != -signal.SIGKILL:
        raise RuntimeError(f"nothing was killed: {killed.stderr[-3000:]}")
    done = _child(place, made, "")
    if done.returncode:
        raise RuntimeError(f"the second process failed: {done.stderr[-3000:]}")
    return sum(map(int, child.log(place.path).read_text(encoding="ascii").split())) - made.bytes


def _child(place: Place, made: Made, failpoints: str) -> subprocess.CompletedProcess[str]:
    given = json.dumps(child.to_json(made))
    command = [sys.executable, "-m", "bench.shuffle.child", str(place.path), given]
    environ = {**os.environ, "PENSTOCK_FAILPOINTS": failpoints}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
