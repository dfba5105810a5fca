"""How many rows a partition has where nobody says so."""

from __future__ import annotations

import pytest

from penstock.batch.inputs.sizing import TARGET_ROWS, FileSize, partition_rows

MB, GB = 1 << 20, 1 << 30


def files(*rows: int, row_bytes: int = 20) -> list[FileSize]:
    return [FileSize(each, each * row_bytes) for each in rows]


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        pytest.param(files(10_000_000), 10_000_000, id="a file is one partition"),
        pytest.param(files(*[2_500_000] * 4), 2_500_000, id="files of the right size, one each"),
        pytest.param(files(*[4_000_000] * 3, 1_000_000), 4_000_000, id="larger files, the last one shorter"),
        pytest.param(files(*[400_000] * 50), 2_400_000, id="many small files of equal size, six each"),
        pytest.param(files(30, 10, 20), 60, id="few rows are one partition"),
        pytest.param(files(0, 1_000, 0), 1_000, id="files without rows do not count"),
        pytest.param(files(*[900_000, 1_000_000] * 20), 4_000_000, id="uneven files, mostly whole"),
        pytest.param(files(100_000, 200_000, *[150_000] * 40), 2_500_000, id="small uneven files"),
    ],
)
def test_partitions_are_whole_files(given: list[FileSize], rows: int) -> None:
    assert partition_rows(given) == rows


def test_a_file_of_many_gigabytes_is_cut() -> None:
    assert partition_rows([FileSize(1_000_000_000, 20 * GB)]) == TARGET_ROWS


def test_a_file_is_cut_between_its_groups_of_rows() -> None:
    entries = [*range(0, 1_000_000_000, 1_048_576), 1_000_000_000]
    assert partition_rows([FileSize(1_000_000_000, 20 * GB, entries)]) == 2 * 1_048_576


def test_wide_rows_make_partitions_of_fewer() -> None:
    # 4 KB each: of 100 files with 100,000 rows, two and a half are a gigabyte.
    assert partition_rows(files(*[100_000] * 100, row_bytes=4_096)) == 100_000
    assert partition_rows([FileSize(10_000_000, 40 * GB)]) == 62_500


def test_an_input_without_rows_has_some_size() -> None:
    assert partition_rows([]) == partition_rows([FileSize(0, 0)]) == TARGET_ROWS
