"""Registering: what is accepted, what is refused and with which words, and what is written."""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.batch import inputs
from penstock.batch.inputs import counting
from penstock.batch.inputs.formats.parquet import Parquet
from penstock.errors import (
    BadInput,
    CorruptFile,
    InputChanged,
    InputError,
    PenstockError,
    TypeMismatch,
    UsageError,
)
from penstock.storage import Storage
from tests.batch.inputs.support import Place, sample, save

if TYPE_CHECKING:
    from penstock.batch.inputs.files import FileStamp
    from penstock.batch.inputs.formats.base import Facts


def test_an_input_is_found_again(place: Place) -> None:
    made = place.register(save(sample(30), place.data / "x.parquet"))
    assert inputs.load(place.store, place.storage, "trades") == made
    assert inputs.names(place.store) == ["trades"]
    assert inputs.drop(place.store, place.storage, "trades")
    assert not inputs.drop(place.store, place.storage, "trades")
    assert inputs.names(place.store) == []
    assert place.storage.list("inputs") == []
    with pytest.raises(InputError, match="no input 'trades'"):
        inputs.load(place.store, place.storage, "trades")


def test_registering_the_same_again_reads_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(sample(30), place.data / "x.csv")
    made = place.register(path)
    monkeypatch.setattr(counting, "facts_of", None)
    assert place.register(path) == made


def test_something_else_under_a_known_name_is_refused_with_the_difference(place: Place) -> None:
    path = save(sample(30), place.data / "x.parquet")
    made = place.register(path, rows=10)
    with pytest.raises(InputChanged, match="partition_rows 10 → 7"):
        place.register(path, rows=7)
    with pytest.raises(InputChanged, match="no table's schema → one"):
        place.register(path, table_schema=sample(1).schema)
    save(sample(31), path)
    with pytest.raises(InputChanged, match=r"size \d+ → \d+ bytes, modified .* → .* UTC") as caught:
        place.register(path)
    assert "replace=True" in str(caught.value)
    assert inputs.load(place.store, place.storage, "trades") == made
    new = place.register(path, rows=7, replace=True)
    assert (new.total_rows, new.partition_rows) == (31, 7)
    assert new.digest != made.digest
    assert inputs.load(place.store, place.storage, "trades") == new


def test_without_a_size_partitions_are_whole_files(place: Place) -> None:
    for name in ("a", "b", "c"):
        save(sample(30), place.data / f"{name}.parquet")
    assert place.register(place.data, rows=None).partition_rows == 90


def test_what_is_registered_keeps_its_partitions_where_no_size_is_named(place: Place) -> None:
    path = save(sample(30), place.data / "x.parquet")
    made = place.register(path, rows=7)
    assert place.register(path, rows=None) == made
    assert place.register(path, rows=None, replace=True) == made
    save(sample(31), path)
    with pytest.raises(InputChanged) as caught:
        place.register(path, rows=None)
    assert "partition_rows" not in str(caught.value)


def test_a_lost_file_list_says_how_to_go_on(place: Place) -> None:
    path = save(sample(30), place.data / "x.parquet")
    made = place.register(path)
    place.storage.delete(made.folder)
    with pytest.raises(CorruptFile, match="replace=True"):
        place.register(path)
    assert place.read(place.register(path, replace=True)).num_rows == 30


def test_an_arrow_table_becomes_files_of_ours(place: Place) -> None:
    table = sample(200_000)
    made = place.register(table, rows=60_000)
    assert place.partitions(made).equals(table)
    assert place.register(pa.concat_tables([table.slice(0, 7), table.slice(7)]), rows=60_000) == made
    assert len({path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}) == 2
    with pytest.raises(InputChanged, match="other content"):
        place.register(sample(5), rows=60_000)


def test_an_input_may_have_no_rows(place: Place) -> None:
    empty = place.register(sample(0), "table")
    assert (empty.total_rows, empty.partitions, empty.whole) == (0, 0, None)
    assert empty.schema.names == sample(0).schema.names
    save(sample(0), place.data / "x.parquet")
    assert place.register(place.data).schema.equals(sample(0).schema)
    for file in ("x.csv", "x.jsonl"):
        (place.data / file).touch()
        made = place.register(place.data / file, file, table_schema=sample(0).schema)
        assert (made.total_rows, made.schema.names) == (0, sample(0).schema.names)
        with pytest.raises(BadInput, match="is empty: nothing tells which columns it has"):
            place.register(place.data / file, f"{file}-undeclared")


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_text_that_is_compressed_is_refused(place: Place, extension: str) -> None:
    (place.data / f"x.{extension}.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(BadInput, match="cannot be cut into row ranges\nnext: decompress it"):
        place.register(place.data)


def test_what_is_no_input(place: Place, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file or folder"):
        place.register(tmp_path / "nothing.parquet")
    with pytest.raises(BadInput, match="holds no data files"):
        place.register(place.data)
    save(sample(0), place.data / "x.parquet")
    save(sample(3), place.data / "y.csv")
    with pytest.raises(BadInput, match=r"x.parquet is parquet, but .*y.csv is csv"):
        place.register(place.data)
    (place.data / "z.txt").write_text("a")
    with pytest.raises(BadInput, match="does not say what format"):
        place.register(place.data / "z.txt")
    with pytest.raises(UsageError, match="a list cannot be registered"):
        place.register([1])
    with pytest.raises(UsageError, match="cannot have 0 rows"):
        place.register(place.data, rows=0)
    with pytest.raises(UsageError, match="cannot be an input's name"):
        place.register(place.data, "a/b")
    for name in ("", ".a", "-a", "größe", "a" * 202):
        with pytest.raises(UsageError, match="cannot be an input's name"):
            place.register(place.data, name)
    with pytest.raises(UsageError, match="did you mean delimiter"):
        place.register(place.data / "y.csv", options={"delimeter": ";"})
    assert inputs.names(place.store) == []


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_a_damaged_file_is_named(place: Place, extension: str) -> None:
    whole = save(sample(100), place.data / f"a.{extension}").read_bytes()
    (place.data / f"b.{extension}").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=rf"b.{extension} cannot be read"):
        place.register(place.data)


def test_an_arrow_stream_is_told_from_a_file(place: Place) -> None:
    path = place.data / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, sample(3).schema) as writer:
        writer.write_table(sample(3))
    with pytest.raises(BadInput, match="not an Arrow IPC file"):
        place.register(path)


def test_files_with_other_columns_are_refused_unless_a_table_unites_them(place: Place) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), place.data / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([2], pa.int64()), "x": ["y"]}), place.data / "b.parquet")
    with pytest.raises(BadInput, match=r"b.parquet has other columns than .*id: int64 instead of id: int32"):
        place.register(place.data)
    wanted = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.string())])
    made = place.register(place.data, table_schema=wanted)
    assert place.read(made).to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": "y"}]
    assert place.read(made, columns=["x"])["x"].to_pylist() == [None, "y"]


def test_a_table_that_does_not_fit_is_refused_before_any_run(place: Place) -> None:
    path = save(sample(3), place.data / "x.parquet")
    missing = pa.schema([pa.field("prices", pa.float64(), nullable=False)])
    with pytest.raises(BadInput, match=r"x.parquet has no column prices \(it has price\)"):
        place.register(path, table_schema=missing)
    with pytest.raises(TypeMismatch, match="note is string in the file and int64 in the table"):
        place.register(path, table_schema=pa.schema([("note", pa.int64())]))


def test_a_column_in_folder_names_is_not_lost_in_silence(place: Place) -> None:
    folder = place.data / "day=2024-01-01"
    folder.mkdir()
    save(sample(3), folder / "x.parquet")
    with pytest.raises(BadInput, match="the column day is in the folder's name"):
        place.register(place.data)
    assert place.register(place.data, table_schema=pa.schema([("id", pa.int64())])).total_rows == 3


def test_patterns_and_folders_in_folders(place: Place) -> None:
    for name in ("a/1.parquet", "a/b/2.parquet", "c/3.parquet", ".hidden/4.parquet", "a/_5.parquet"):
        path = place.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save(sample(2), path)
    assert len(place.register(place.data, "all").files) == 3
    assert len(place.register(f"{place.data}/*/*.parquet", "some").files) == 2
    assert len(place.register(f"file://{place.data}/a", "one").files) == 2


@pytest.fixture(params=["parquet", "arrow", "csv", "jsonl"])
def registered(place: Place, request: pytest.FixtureRequest) -> inputs.Input:
    return place.register(save(sample(3000), place.data / f"x.{request.param}", chunk=200), rows=1000)


def test_a_file_that_changed_is_refused(place: Place, registered: inputs.Input) -> None:
    path = Path(registered.files[0].path)
    inputs.check_unchanged(registered)
    old = path.stat()
    copy = shutil.copy2(path, place.data / "copy")

    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns + 1_000_000))
    with pytest.raises(InputChanged, match=r"x.*: modified .* → ") as caught:
        place.read(registered)
    assert "input 'trades' changed" in str(caught.value)
    assert "replace=True" in str(caught.value)

    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputChanged, match=rf"size {old.st_size} → {old.st_size - 10} bytes"):
        inputs.check_unchanged(registered)

    path.unlink()
    with pytest.raises(InputChanged, match="missing"):
        place.read(registered)

    shutil.copy2(copy, path)
    assert place.read(registered).num_rows == 3000


def test_a_change_while_reading_is_noticed_at_the_end(place: Place, registered: inputs.Input) -> None:
    (split,) = inputs.splits(registered, place.storage, registered.partition(0), 1)
    batches = split.batches(100)
    next(batches)
    with Path(registered.files[0].path).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(InputChanged, match="size"):
        list(batches)


def test_a_truncation_while_reading_is_a_change_and_no_crash(place: Place, registered: inputs.Input) -> None:
    (split,) = inputs.splits(registered, place.storage, registered.partition(1), 1)
    batches = split.batches(100)
    next(batches)
    os.truncate(registered.files[0].path, 100)
    with pytest.raises(InputChanged, match="size"):
        list(batches)


def test_content_that_changed_behind_an_equal_stamp_is_bad_input(place: Place) -> None:
    path = save(pa.table({"id": range(100)}), place.data / "x.csv")
    made = place.register(path)
    old = path.stat()
    path.write_bytes(path.read_bytes().replace(b"\n", b" "))
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    with pytest.raises(BadInput, match=r"x\.csv"):
        place.read(made)


def test_at_most_ten_changed_files_are_named(place: Place) -> None:
    for i in range(15):
        save(sample(2), place.data / f"{i:02d}.arrow")
    made = place.register(place.data)
    shutil.rmtree(place.data)
    with pytest.raises(InputChanged, match="… and 5 more") as caught:
        inputs.check_unchanged(made)
    assert str(caught.value).count("missing") == 10


def test_many_register_the_same_at_once(place: Place) -> None:
    path = save(sample(300), place.data / "x.csv")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: place.register(path), range(8)))
    assert len({one.digest for one in made}) == 1
    assert place.read(inputs.load(place.store, place.storage, "trades")).equals(sample(300))


def test_a_file_that_changes_while_it_is_registered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(sample(30), place.data / "x.parquet")
    look = Parquet.facts

    def meddle(self: Parquet, file: FileStamp) -> Facts:
        facts = look(self, file)
        save(sample(31), path)
        return facts

    monkeypatch.setattr(Parquet, "facts", meddle)
    with pytest.raises(InputChanged, match="while they were being registered"):
        place.register(path)
    assert inputs.names(place.store) == []


def test_a_schema_that_the_input_cannot_fill_is_refused_before_reading(place: Place) -> None:
    made = place.register(save(sample(30), place.data / "x.parquet"))
    with pytest.raises(TypeMismatch, match="input 'trades' does not fit the table: note"):
        place.read(made, schema=pa.schema([("note", pa.int64())]))
    wanted = pa.schema([("id", pa.float64()), ("more", pa.string())])
    assert place.read(made, schema=wanted).schema.equals(wanted)


def test_a_late_drop_spares_what_was_registered_anew(place: Place) -> None:
    path = save(sample(30), place.data / "x.parquet")
    old = place.register(path)
    assert inputs.drop(place.store, place.storage, "trades")
    new = place.register(path)
    assert (new.digest, new.id != old.id, new.folder != old.folder) == (old.digest, True, True)
    assert not inputs.drop(place.store, place.storage, "trades", registration=old.id)
    assert place.read(new).num_rows == 30


def test_files_of_a_drop_that_comes_to_its_end_late_are_its_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document is gone, the same table is registered anew, and only then the files are deleted."""
    place.register(sample(30))
    made: list[inputs.Input] = []
    delete = type(place.storage).delete

    def slow(storage: Storage, prefix: str) -> None:
        if not made:
            made.append(place.register(sample(30)))
        delete(storage, prefix)

    with monkeypatch.context() as patch:
        patch.setattr(type(place.storage), "delete", slow)
        assert inputs.drop(place.store, place.storage, "trades")
    assert place.read(made[0]).equals(sample(30))


def test_an_input_that_was_cut_anew_is_another_registration(place: Place) -> None:
    old = place.register(sample(30), rows=10)
    new = place.register(sample(30), rows=7, replace=True)
    assert not inputs.drop(place.store, place.storage, "trades", registration=old.id)
    assert place.partitions(new).equals(sample(30))
    assert inputs.drop(place.store, place.storage, "trades", registration=new.id)
    assert place.storage.list("inputs") == []


def test_cutting_anew_what_is_dropped_at_that_moment_registers_it_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.batch.inputs.build import recut

    place.register(sample(30), rows=10)

    def late(*arguments: Any) -> inputs.Input:
        monkeypatch.undo()
        made = recut(*arguments)
        assert inputs.drop(place.store, place.storage, "trades")
        return made

    monkeypatch.setattr("penstock.batch.inputs.registry.recut", late)
    made = place.register(sample(30), rows=7, replace=True)
    assert place.partitions(made).equals(sample(30))
    assert len({path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}) == 2


def test_what_was_replaced_goes_with_the_input(place: Place) -> None:
    for rows in range(20, 45):
        made = place.register(sample(rows), replace=True)
    folders = {path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}
    assert len(folders) == 2 * 25, "all stay for runs that may read them still"
    place.storage.write("inputs/trades/data-0123456789ab/00000.arrow", b"of a registration that died")
    assert inputs.drop_leftovers(place.store, place.storage, "trades") == 1
    assert place.read(made).num_rows == 44
    with pytest.raises(PenstockError):
        inputs.drop_leftovers(place.store, type(place.storage)(place.data / "another"), "trades")
    assert inputs.drop(place.store, place.storage, "trades")
    assert place.storage.list("inputs") == []


def test_what_a_run_reads_outlives_any_number_of_replacements(place: Place) -> None:
    first = place.register(sample(20), rows=10)
    for rows in range(21, 41):
        last = place.register(sample(rows), replace=True)
    assert place.read(first).equals(sample(20))
    would = inputs.sweep_replaced(place.store, place.storage, "trades", first.digest.__eq__, dry_run=True)
    assert place.read(first).equals(sample(20))
    assert inputs.sweep_replaced(place.store, place.storage, "trades", first.digest.__eq__) == would
    assert would.files == 3 * 19
    assert place.read(first).equals(sample(20))
    assert place.read(last).equals(sample(40))
    folders = {path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}
    assert len(folders) == 2 * 2
    assert inputs.sweep_replaced(place.store, place.storage, "trades", first.digest.__eq__).files == 0
    assert inputs.sweep_replaced(place.store, place.storage, "trades", lambda digest: False).files == 3
    assert "outlived" not in inputs.facts(place.store)[0]
    assert place.read(inputs.load(place.store, place.storage, "trades")).equals(sample(40))
    assert inputs.drop(place.store, place.storage, "trades")
    assert place.storage.list("inputs") == []


def test_rows_that_registrations_share_go_with_the_last_of_them(place: Place) -> None:
    place.register(sample(30), rows=10)
    cut = place.register(sample(30), rows=7, replace=True)
    inputs.sweep_replaced(place.store, place.storage, "trades", lambda digest: False)
    assert place.partitions(cut).equals(sample(30)), "the rows are those of the registered one, too"
    place.register(sample(31), replace=True)
    inputs.sweep_replaced(place.store, place.storage, "trades", cut.digest.__eq__)
    assert place.partitions(cut).equals(sample(30))
    inputs.sweep_replaced(place.store, place.storage, "trades", lambda digest: False)
    assert len({path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}) == 2


def test_a_sweep_that_was_killed_is_finished_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (20, 21, 22):
        made = place.register(sample(rows), replace=True)
    delete = type(place.storage).delete
    for deaths in range(5):
        left = [deaths]

        def dying(storage: Storage, prefix: str, left: list[int] = left) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            delete(storage, prefix)

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(type(place.storage), "delete", dying)
            inputs.sweep_replaced(place.store, place.storage, "trades", lambda digest: False)
    assert len({path.split("/")[2] for path, _ in place.storage.list("inputs/trades")}) == 2
    assert "outlived" not in inputs.facts(place.store)[0]
    assert place.read(made).equals(sample(22))


def test_an_input_that_was_registered_before_ids(place: Place) -> None:
    made = place.register(sample(30))
    document = place.store.get("inputs/trades")
    assert document is not None
    facts = json.loads(document.value)
    old = f"inputs/trades/{made.identity[:32]}"
    for name in ("files.json", "index.arrow"):
        place.storage.write(f"{old}/{name}", place.storage.read(f"{made.folder}/{name}"))
    place.storage.delete(made.folder)
    del facts["id"]
    facts["details"] = f"{old}/files.json"
    place.store.cas(document.key, document.version, json.dumps(facts).encode())
    found = inputs.load(place.store, place.storage, "trades")
    assert (found.id, found.folder) == ("", old)
    assert place.read(found).equals(sample(30))
    assert inputs.drop(place.store, place.storage, "trades", registration="")
    assert place.storage.list("inputs") == []


def test_an_input_of_another_storage_is_not_taken_for_broken(place: Place, tmp_path: Path) -> None:
    path = save(sample(30), place.data / "x.parquet")
    made = place.register(path)
    elsewhere = Storage(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"next: name that one, with --storage"):
        inputs.load(place.store, elsewhere, "trades")
    with pytest.raises(InputError, match="is registered in the storage"):
        inputs.register(None, place.store, elsewhere, "trades", str(path), partition_rows=10, replace=True)
    assert inputs.load(place.store, place.storage, "trades") == made


def test_a_file_list_that_was_changed_is_not_believed(place: Place, tmp_path: Path) -> None:
    place.register(save(sample(10), place.data / "x.parquet"))
    secret = save(sample(10), tmp_path / "secret.parquet")
    [path] = (place.storage.local or tmp_path).rglob("files.json")
    details = json.loads(path.read_bytes())
    details["files"][0][0] = str(secret)
    path.write_text(json.dumps(details))
    with pytest.raises(CorruptFile, match="not the one that was registered"):
        inputs.load(place.store, place.storage, "trades")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        "{}",
        '{"files": [7]}',
        '{"files": [["a"]]}',
        '{"files": [[7, 1]]}',
        "\xff",
        "NaN",
    ],
)
def test_what_is_no_file_list_is_named(place: Place, tmp_path: Path, text: str) -> None:
    """As registrations of earlier releases have it: nothing tells what the list was."""
    place.register(save(sample(10), place.data / "x.parquet"))
    [path] = (place.storage.local or tmp_path).rglob("files.json")
    path.write_text(text, encoding="latin-1")
    document = place.store.get("inputs/trades")
    assert document is not None
    facts = json.loads(document.value)
    del facts["details_sha256"]
    place.store.cas(document.key, document.version, json.dumps(facts).encode())
    with pytest.raises(CorruptFile, match="cannot be read"):
        inputs.load(place.store, place.storage, "trades")
