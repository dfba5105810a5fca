"""Files behind an URL, with a local folder in the place of an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import fs

from penstock.batch import inputs
from penstock.batch.inputs import files
from penstock.core.ranges import Range
from penstock.errors import BadInput, InputChanged, UsageError
from tests.batch.inputs.support import Place, sample, save

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``s3://bucket/`` stands for."""
    folder = tmp_path / "remote" / "bucket"
    folder.mkdir(parents=True)
    filesystem = fs.SubTreeFileSystem(str(tmp_path / "remote"), fs.LocalFileSystem())

    def resolve(place: str) -> tuple[fs.FileSystem, str]:
        assert place == "s3://bucket/?region=x"
        return filesystem, "bucket"

    monkeypatch.setattr(files, "filesystem_of", resolve)
    return folder


@pytest.mark.parametrize("extension", ["parquet", "arrow", "csv", "jsonl"])
def test_files_behind_an_url(place: Place, bucket: Path, extension: str) -> None:
    (bucket / "day" / "_temporary").mkdir(parents=True)
    save(sample(40), bucket / "day" / f"1.{extension}")
    save(sample(40, 40), bucket / "day" / f"2.{extension}")
    save(sample(1), bucket / "day" / "_temporary" / f"3.{extension}")
    made = place.register("s3://bucket/day?region=x")
    assert [file.path for file in made.files] == [
        f"s3://bucket/day/1.{extension}?region=x",
        f"s3://bucket/day/2.{extension}?region=x",
    ]
    assert place.partitions(made).equals(sample(80))
    assert place.read(made, Range(35, 45), tasks=2).equals(sample(10, 35))
    one = place.register(f"s3://bucket/day/1.{extension}?region=x", "one")
    assert one.total_rows == 40
    (bucket / "day" / f"2.{extension}").unlink()
    with pytest.raises(InputChanged, match="missing"):
        inputs.check_unchanged(made)
    with pytest.raises(InputChanged, match="missing"):
        place.read(made)


def test_what_is_no_input_behind_an_url(place: Place, bucket: Path) -> None:
    with pytest.raises(BadInput, match="holds no data files"):
        place.register("s3://bucket/nothing?region=x")
    with pytest.raises(UsageError, match="patterns work for local paths only"):
        place.register("s3://bucket/*.csv?region=x")


def test_an_unknown_kind_of_url(place: Place) -> None:
    with pytest.raises(UsageError, match="not a place for files"):
        place.register("gopher://hole/x.csv")
