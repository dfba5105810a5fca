"""The package of docs/howto/extend.md, built and installed beside this one, and used as the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import uv
from click.testing import CliRunner

import penstock.sinks
import penstock.sources
from penstock.cli.app import penstock as program
from penstock.core.plugins import STORES, find, plugins
from penstock.errors import UsageError
from penstock.store import open_store

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "extend.md"
BLOCK = re.compile(r"^```\w+\n# (\S+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page."""
    folder = tmp_path_factory.mktemp("acme")
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "penstock_acme" / "__init__.py").touch()
    (folder / "tests" / "conftest.py").write_text('pytest_plugins = ["penstock.testing.plugin"]\n')
    return folder


@pytest.fixture(scope="module")
def target(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed in it, as pip would."""
    return install(project, tmp_path_factory.mktemp("target"))


def install(project: Path, target: Path) -> Path:
    words = ["pip", "install", "--offline", "--no-deps", "--no-build-isolation", "--quiet"]
    words += ["--python", sys.executable, "--target", str(target), "--no-cache", str(project)]
    done = subprocess.run([uv.find_uv_bin(), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def installed(target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(target))
    yield target
    for name in [name for name in sys.modules if name.partition(".")[0] == "penstock_acme"]:
        del sys.modules[name]


def run_pytest(project: Path, target: Path, *words: str) -> str:
    paths = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *words],
        cwd=project / "tests",
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_names_are_imported_from_where_the_built_in_ones_are(installed: Path) -> None:
    source = import_module("penstock_acme.source")
    assert penstock.sources.CountSource is source.CountSource
    assert penstock.sinks.SqliteSink.__module__ == "penstock_acme.sink"
    with pytest.raises(AttributeError, match=r"'penstock.sources' has no attribute 'SqliteSink'"):
        _ = penstock.sources.SqliteSink


def test_without_the_package_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="CountSource"):
        _ = penstock.sources.CountSource
    with pytest.raises(UsageError, match=r"file:///absolute/folder$"):
        open_store(f"audited+sqlite:///{tmp_path}/store.db")


def test_a_store_is_opened_by_its_scheme(installed: Path, tmp_path: Path) -> None:
    with open_store(f"audited+sqlite:///{tmp_path}/store.db") as store:
        assert store.cas("k", 0, b"v")
        assert type(store).__name__ == "AuditedStore"
    with open_store(f"sqlite:///{tmp_path}/store.db") as plain:
        assert plain.get("k") is not None
    with pytest.raises(UsageError, match=r"installed packages bring audited\+sqlite://"):
        open_store("else://where")


def test_the_command_line_uses_it(installed: Path, tmp_path: Path) -> None:
    url = f"audited+sqlite:///{tmp_path}/store.db"
    done = CliRunner().invoke(program, ["catalog", "show", "--store", url])
    assert done.exit_code == 0, done.output
    assert "audited+sqlite" in done.output


def test_doctor_lists_what_packages_bring(installed: Path, tmp_path: Path) -> None:
    text = CliRunner().invoke(program, ["doctor", "--store", f"sqlite:///{tmp_path}/s.db"]).output
    for name in ("source CountSource", "sink SqliteSink", "store audited+sqlite"):
        assert re.search(rf"ok +{re.escape(name)} +from penstock-acme 1\.0", text), text


def test_one_that_cannot_be_loaded_is_told(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(target, broken)
    (broken / "penstock_acme" / "source.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(str(broken))
    with pytest.raises(UsageError, match=r"source CountSource of penstock-acme 1\.0 cannot be loaded"):
        _ = penstock.sources.CountSource
    text = CliRunner().invoke(program, ["doctor", "--store", f"sqlite:///{tmp_path}/s.db"]).output
    assert re.search(r"BROKEN +source CountSource", text), text
    for name in [name for name in sys.modules if name.partition(".")[0] == "penstock_acme"]:
        del sys.modules[name]


def test_two_packages_do_not_share_a_name(
    project: Path, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "other"
    shutil.copytree(project, copied)
    text = (copied / "pyproject.toml").read_text()
    text = text.replace("penstock-acme", "penstock-other").replace("penstock_acme", "penstock_other")
    (copied / "pyproject.toml").write_text(text)
    (copied / "penstock_acme").rename(copied / "penstock_other")
    monkeypatch.syspath_prepend(str(install(copied, tmp_path / "second")))
    assert len(plugins(STORES)) == 2
    with pytest.raises(UsageError, match=r"several packages bring .*: penstock-acme 1\.0, penstock-other"):
        find(STORES, "audited+sqlite")


def test_its_tests_pass_without_spark(project: Path, target: Path) -> None:
    told = run_pytest(project, target, "test_points.py", "test_acme.py", "-k", "not TestSink")
    assert re.search(r"\d+ passed", told)


def test_its_sink_conforms(project: Path, target: Path) -> None:
    assert re.search(r"\d+ passed", run_pytest(project, target, "test_acme.py", "-k", "TestSink"))


def test_a_test_that_misses_its_point_fails(project: Path, target: Path, tmp_path: Path) -> None:
    shutil.copy(project / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.failpoint('nowhere')\ndef test_it():\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "did not come to nowhere" in done.stdout, done.stdout
