"""What the first release wrote is read by this one, and this one still writes the same.

If one of these fails, the change that made it fail would lock people out of what they have. Never make a
golden file anew: give the format another number, go on reading the old one, and add a file for the new one
beside it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from penstock.errors import PenstockError
from penstock.journals import JournalWriter
from penstock.store import open_store
from tests.golden.formats import GOLDEN, TREES
from tests.golden.kit import FOLDER, NEWER, Golden, Tree


def each(golden: Golden | Tree) -> str:
    return golden.path


@pytest.mark.parametrize("golden", GOLDEN, ids=each)
def test_what_was_written_is_read(golden: Golden) -> None:
    assert golden.read(golden.data) == golden.value


@pytest.mark.parametrize("golden", GOLDEN, ids=each)
def test_the_same_is_written_again(golden: Golden) -> None:
    assert golden.plain(golden.write()) == golden.plain(golden.data)


@pytest.mark.parametrize("golden", [g for g in GOLDEN if g.newer is not None], ids=each)
def test_what_a_newer_version_wrote_is_refused(golden: Golden) -> None:
    assert golden.newer is not None
    newer = golden.newer(golden.data)
    assert newer != golden.data
    with pytest.raises(PenstockError) as caught:
        golden.read(newer)
    assert str(NEWER) in caught.value.what or "2" in caught.value.what
    assert "upgrade Penstock" in (caught.value.hint or "")


@pytest.mark.parametrize("tree", TREES, ids=each)
def test_a_folder_that_was_made_is_read_and_goes_on(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tree.folder, folder, symlinks=True)
    assert tree.read(folder) == tree.value
    tree.go_on(folder)


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "stores/sqlite/store.db", tmp_path)
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute(f"PRAGMA user_version = {NEWER}")
    connection.close()
    with pytest.raises(PenstockError, match=str(NEWER)) as caught:
        open_store(f"sqlite:///{tmp_path}/store.db")
    assert "upgrade Penstock" in (caught.value.hint or "")


def test_a_spool_of_a_newer_version_is_not_mended(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "journals/root", tmp_path / "root")
    spool = next((tmp_path / "root/orders/raw").glob(".*.spool"))
    data = spool.read_bytes().replace(b"penstock-spool 1 ", b"penstock-spool 2 ")
    spool.write_bytes(data)
    with JournalWriter(tmp_path / "root") as writer, pytest.raises(PenstockError, match="format 2"):
        writer.append("orders/raw", [{"id": 4}])
    assert spool.read_bytes() == data


def test_every_file_is_somebodys() -> None:
    known = {golden.path for golden in GOLDEN}
    assert len(known) == len(GOLDEN)
    folders = [f"{tree.path}/" for tree in TREES]
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert {path for path in found if not path.startswith(tuple(folders))} == known
