"""Run the stream beside this file with 1, then 3, then 2 instances, and draw rows per second by instance.

``python examples/rescale/draw.py docs/rescale.png``: what is drawn comes from the committed epochs alone.
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
from typing import Any

from penstock.storage import Storage
from penstock.store import open_store
from penstock.streams import registry
from penstock.streams.log import EpochLog
from penstock.streams.model import Epoch

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
    print(f"{given.picture}: {len(epochs)} epochs, {sum(e.rows for e in epochs):,} rows")


def record(folder: Path, seconds: float) -> tuple[list[Epoch], list[tuple[datetime, int]]]:
    """The epochs of a run, and when it had how many instances."""
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
        store, storage = (
            open_store(f"sqlite:///{folder}/.penstock/store.db"),
            Storage(folder / ".penstock/storage"),
        )
        with store:
            log = EpochLog(store, storage, registry.load(store, "rescale").layout)
            return log.entries(0), marks
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


def draw(picture: Path, epochs: list[Epoch], marks: list[tuple[datetime, int]]) -> None:
    """Stacked areas: each epoch's rows of an instance, over the time since the epoch before."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    begin = marks[0][0]
    members = sorted({each.member for epoch in epochs for each in epoch.brought})
    times: list[float] = []
    speeds: dict[str, list[float]] = defaultdict(list)
    for before, epoch in pairwise(epochs):
        now, then = (datetime.fromisoformat(each.at) for each in (epoch, before))
        taken = max((now - then).total_seconds(), 1e-3)
        times.append((now - begin).total_seconds())
        rows = {each.member: each.rows for each in epoch.brought}
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
