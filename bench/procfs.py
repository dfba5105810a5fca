"""Memory of processes, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def peak(pid: int) -> int:
    """The most bytes that a process had resident since `reset_peak`, or since its start."""
    for line in (PROC / str(pid) / "status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmHWM")


def proportional(pid: int) -> int:
    """Bytes that a process has resident, with its share of what it has together with others."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no Pss")


def resident(pid: int) -> int:
    """Bytes that a process has resident that are its own, without files; 0 if it has ended."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:"))


def reset_peak(pid: int) -> None:
    """Forget the peak so far. Where that is not allowed, peaks include what came before."""
    try:
        (PROC / str(pid) / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def descendants(pid: int, command: str) -> list[int]:
    """Processes below ``pid`` that run ``command``."""
    found: list[int] = []
    level = {pid}
    parents = _parents()
    while level:
        level = {child for child, (parent, _) in parents.items() if parent in level}
        found += sorted(child for child in level if parents[child][1] == command)
    return found


def _parents() -> dict[int, tuple[int, str]]:
    """Parent and command of every process."""
    known: dict[int, tuple[int, str]] = {}
    for path in PROC.glob("[0-9]*"):
        try:
            before, _, after = (path / "stat").read_text(encoding="utf-8").rpartition(")")
        except OSError:
            continue
        known[int(path.name)] = (int(after.split()[1]), before.partition("(")[2])
    return known
