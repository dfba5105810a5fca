"""Peers in virtual environments of their own, made when they are needed first.

What they need would not get along with what Penstock needs, and nobody who installs Penstock should have to
install them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import say
from penstock.config import cache_directory

_STAMP = "installed.txt"
_SHOWN = 2_000


class PeerMissing(RuntimeError):
    """A peer cannot be installed on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Packages of exactly these versions, in ``cache_directory()/peers/NAME``."""

    name: str
    requirements: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return cache_directory() / "peers" / self.name

    @property
    def python(self) -> Path:
        """The environment's interpreter. Installs what is missing, or raises `PeerMissing`."""
        stamp = self.folder / _STAMP
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != self._wanted:
            self._install()
            # Written last: a folder without it was left by an installation that did not end.
            stamp.write_text(self._wanted, encoding="utf-8")
        return self._program

    @property
    def _program(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _wanted(self) -> str:
        return "\n".join((sys.version, *self.requirements))

    def _install(self) -> None:
        say(f"installing {', '.join(self.requirements)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self._run(sys.executable, "-m", "venv", str(self.folder))
        pip = (str(self._program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self._run(*pip, *self.requirements)

    def _run(self, *command: str) -> None:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise PeerMissing(f"{self.name}: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-_SHOWN:]
            raise PeerMissing(f"{self.name}: {' '.join(command)} ended with {done.returncode}: {said}")
