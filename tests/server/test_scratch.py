"""Folders of processes that have ended are removed, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.server.process import scratch


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from penstock.server.process import scratch;"
    script += "made = scratch.make(Path(sys.argv[1]), 'spool'); (made / 'file').write_text('x');"
    script += "os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    [left] = tmp_path.iterdir()
    assert (left / "file").exists()
    own = scratch.make(tmp_path, "spool")
    assert list(tmp_path.iterdir()) == [own]
    scratch.sweep(tmp_path, "spool")
    assert own.exists()
    scratch.remove(own)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_stay_until_they_are_old(tmp_path: Path) -> None:
    for name in ("mine", "penstock-spool-000000000000-1-1", "penstock-spark-000000000000-1-1"):
        (tmp_path / name).mkdir()
    scratch.sweep(tmp_path, "spool")
    assert len(list(tmp_path.iterdir())) == 3
    os.utime(tmp_path / "penstock-spool-000000000000-1-1", (0, 0))
    scratch.sweep(tmp_path, "spool")
    assert {each.name for each in tmp_path.iterdir()} == {"mine", "penstock-spark-000000000000-1-1"}
