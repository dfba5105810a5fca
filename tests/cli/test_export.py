from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from penstock.batch.runner import Output
from penstock.cli import exits
from penstock.storage import FileRecord
from tests.cli.program import Cli

DATA = b"rows"


@pytest.fixture
def published(run: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A run whose tables have one file each."""
    for table in ("trades", "volumes"):
        path = run.folder / "output" / table
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(DATA)
    sha256 = hashlib.sha256(DATA).hexdigest()
    monkeypatch.setattr(Output, "files", lambda _, table: [FileRecord(table, 1, len(DATA), sha256)])
    return run


def export(cli: Cli, directory: str = "plain") -> int:
    return cli("runs", "export", "trades", directory, "--partial").exit_code


def found(cli: Cli, directory: str = "plain") -> list[str]:
    folder = cli.folder / directory
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())


def unfinished(cli: Cli) -> list[Path]:
    return list(cli.folder.rglob("*.unfinished-*"))


def test_an_export(published: Cli) -> None:
    assert export(published, "deep/plain") == 0
    assert found(published, "deep/plain") == ["trades/part-000000.parquet", "volumes/part-000000.parquet"]
    assert not unfinished(published)
    assert export(published, "deep/plain") == exits.USAGE, "it is not empty"


def test_an_empty_directory_may_be_there(published: Cli) -> None:
    (published.folder / "plain/empty").mkdir(parents=True)
    assert export(published) == 0
    assert len(found(published)) == 2


def test_a_link_to_a_directory_stays_one(published: Cli) -> None:
    (published.folder / "there").mkdir()
    (published.folder / "plain").symlink_to("there")
    assert export(published) == 0
    assert (published.folder / "plain").is_symlink()
    assert len(found(published, "there")) == 2


def test_an_export_that_fails_leaves_nothing(published: Cli) -> None:
    (published.folder / "output/volumes").write_bytes(b"rots")
    assert export(published) == exits.FAILED
    assert not (published.folder / "plain").exists()
    assert not unfinished(published)


def test_an_export_that_dies_can_be_repeated(published: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as dying:
        # Death has no time to clean up.
        dying.setattr("penstock.batch.runs.output.shutil.rmtree", lambda *_, **__: None)
        dying.setattr(Path, "rename", lambda *_: 1 / 0)
        assert export(published) == exits.FAILED
    assert not (published.folder / "plain").exists()
    (left,) = unfinished(published)
    assert left.name.startswith("plain.unfinished-")
    assert export(published) == 0
    assert len(found(published)) == 2
