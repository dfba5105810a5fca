"""Run the stream beside this file with 1, then 3, then 2 instances, and draw rows per second by instance.

``python examples/rescale/draw.py rescale.png`` draws from the committed epochs alone. The picture in
``docs/explanation`` was made this way.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from penstock import StreamHandle

Epochs: TypeAlias = "list[tuple[int, datetime, dict[str, int]]]"

STREAM = Path(__file__).with_name("stream.py")
STEPS = (1, 3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seconds", type=float, default=20, help="how long each number of instances runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        epochs, marks = record(Path(folder), given.seconds)
    draw(given.picture, epochs, marks)
    print(f"{given.picture}: {len(epochs)} epochs, {sum(sum(rows.values()) for _, _, rows in epochs):,} rows")


def record(folder: Path, seconds: float) -> tuple[Epochs, list[tuple[datetime, int]]]:
    """The epochs of a run (number, time, rows by instance), and when it had how many instances."""
    (folder / "penstock.toml").write_text('[stream]\nepoch_every = "250ms"\n')
    penstock = [sys.executable, "-m", "penstock.cli", "stream"]
    started = subprocess.Popen([*penstock, "start", str(STREAM), "--instances", str(STEPS[0])], cwd=folder)
    marks = []
    try:
        for number, step in enumerate(STEPS):
            if number:
                subprocess.run([*penstock, "rescale", "rescale", str(step)], cwd=folder, check=True)
            until(lambda step=step: seats(penstock, folder) == step)  # type: ignore[misc]
            marks.append((datetime.now().astimezone(), step))
            time.sleep(seconds)
        store, storage = f"sqlite:///{folder}/.penstock/store.db", f"{folder}/.penstock/storage"
        with StreamHandle("rescale", store, storage) as stream:
            return [(number, at, rows) for number, at, rows in stream.history() if at], marks
    finally:
        started.send_signal(signal.SIGINT)
        started.wait()


def seats(penstock: list[str], folder: Path) -> int:
    """How many instances own parts now."""
    asked = subprocess.run(
        [*penstock, "status", "rescale", "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    status: dict[str, Any] = json.loads(asked.stdout or "{}")
    return sum(1 for each in status.get("instances", []) if each["parts"])


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.5)


def draw(picture: Path, epochs: Epochs, marks: list[tuple[datetime, int]]) -> None:
    """Stacked areas: each epoch's rows of an instance, over the time since the epoch before."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    begin = marks[0][0]
    members = sorted({member for _, _, rows in epochs for member in rows})
    times: list[float] = []
    speeds: dict[str, list[float]] = defaultdict(list)
    for (_, then, _), (_, now, rows) in pairwise(epochs):
        taken = max((now - then).total_seconds(), 1e-3)
        times.append((now - begin).total_seconds())
        for member in members:
            speeds[member].append(rows.get(member, 0) / taken)
    figure, axes = pyplot.subplots(figsize=(8, 3.2), dpi=120)
    axes.stackplot(times, *speeds.values(), labels=members, step="pre", alpha=0.85)
    for at, count in marks:
        moment = (at - begin).total_seconds()
        axes.axvline(moment, color="black", linewidth=0.6, linestyle=":")
        axes.annotate(f"{count} instance{'s' if count > 1 else ''}", (moment, axes.get_ylim()[1]), fontsize=8)
    axes.set(xlabel="seconds", ylabel="rows per second", xlim=(max(min(times), -2), max(times)))
    axes.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main()
