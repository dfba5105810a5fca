"""Tables over files: every format, files that come later, and paths that must not be reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from penstock.config import TableConfig
from penstock.errors import SqlError
from penstock.server.base import User
from penstock.server.relations.files import arrow_files
from penstock.server.relations.files.paths import Roots, overlap
from tests.server.relations.conftest import ADMIN, Place, numbers, say

Rows = Callable[..., list[tuple[Any, ...]]]
THREE = [(0, "n0"), (1, "n1"), (2, "n2")]


def test_every_format(place: Place, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    data, table = place.data, numbers(3)
    place.write("p/x=1/a.parquet")
    place.write("p/x=2/b.parquet")
    (data / "c.csv").write_text("id;name\n0;n0\n1;n1\n2;n2\n")
    (data / "j.jsonl").write_text(
        '{"id": 0, "name": "n0"}\n{"id": 1, "name": "n1"}\n{"id": 2, "name": "n2"}\n'
    )
    pyarrow.orc.write_table(table, data / "o.orc")
    (data / "a").mkdir()
    with pa.ipc.new_file(data / "a/1.arrow", table.schema) as file:
        file.write_table(table.slice(0, 2), max_chunksize=1)
    with pa.ipc.new_stream(data / "a/2.arrow", table.schema) as stream:
        stream.write_table(table.slice(2))
    tables = place.tables(
        TableConfig("p", f"{data}/p", "parquet"),
        TableConfig("c", f"{data}/c.csv", "auto", {"delimiter": ";"}),
        TableConfig("j", f"{data}/*.jsonl", "jsonl"),
        TableConfig("o", f"file://{data}/o.orc"),
        TableConfig("a", f"{data}/a"),
    )
    assert tables.broken() == {}
    monkeypatch.setattr(arrow_files, "_SPLIT_BYTES", 100)
    assert all(rows(tables, name) == THREE for name in ("c", "j", "o", "a"))
    assert rows(tables, "p") == sorted((*row, x) for row in THREE for x in (1, 2))
    assert dict(tables.find(("c",), ("public",), ADMIN).spark_columns) == {"id": "INT", "name": "STRING"}

    say(tables, "CREATE VIEW v AS SELECT a.id, c.name FROM a JOIN c ON a.id = c.id")
    say(tables, "CREATE VIEW w AS SELECT max(id) AS id FROM v")
    assert rows(tables, "v") == THREE and rows(tables, "w") == [(2,)]
    say(
        tables,
        'CREATE TABLE given ("ID" integer, name text) '
        "USING csv OPTIONS (header true, sep ';') LOCATION 'c.csv'",
    )
    assert rows(tables, "given") == THREE
    say(tables, "CREATE TABLE some (name text) USING parquet LOCATION 'p'")
    assert tables.find(("some",), ("public",), ADMIN).columns.names == ["name", "x"]
    assert rows(tables, "some") == sorted((name, x) for _, name in THREE for x in (1, 2))
    with pytest.raises(SqlError, match="option"):
        say(tables, "CREATE TABLE bad USING csv OPTIONS (path '/etc/passwd') LOCATION 'c.csv'")


def test_quotes_in_csv_are_written_twice_unless_options_say_else(place: Place, rows: Rows) -> None:
    (place.data / "q.csv").write_text('id,name\n1,"a ""b"", c"\n')
    (place.data / "s.csv").write_text('id,name\n1,"a \\"b\\", c"\n')
    tables = place.tables(
        TableConfig("q", f"{place.data}/q.csv"),
        TableConfig("s", f"{place.data}/s.csv", options={"escape": "\\"}),
    )
    assert rows(tables, "q") == rows(tables, "s") == [(1, 'a "b", c')]


def test_new_and_replaced_files_are_seen_by_every_session(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet")
    tables = place.tables(TableConfig("t", f"{place.data}/t"), TableConfig("g", f"{place.data}/t/*.parquet"))
    (place.data / "empty").mkdir()
    say(tables, "CREATE TABLE none (id int) USING arrow LOCATION 'empty'")
    assert rows(tables, "none") == []
    say(tables, "CREATE VIEW v AS SELECT count(*) AS n FROM t")
    other = place.spark.newSession()
    assert rows(tables, "v") == [(3,)] and rows(tables, "v", spark=other) == [(3,)]
    place.write("t/2.parquet", numbers(2))
    assert rows(tables, "v") == [(5,)] and rows(tables, "v", spark=other) == [(5,)]
    place.write("t/deep.parquet/part.parquet", numbers(4))
    assert len(rows(tables, "g")) == 9
    place.write("t/2.parquet", numbers(1))
    (place.data / "t/1.parquet").unlink()
    assert rows(tables, "v", spark=other) == [(1,)]


def test_paths_stay_below_the_roots(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "in", root / "it's `odd`", outside):
        folder.mkdir(parents=True)
    (outside / "secret.csv").write_text("x")
    (root / "link").symlink_to(outside)
    (root / "inner").symlink_to(root / "in")
    roots = Roots([str(root), "s3://bucket/public/"])
    for path in (
        "in",
        f"{root}/in",
        f"file:{root}/in",
        f"FILE://localhost{root}/in",
        f"file://{root}//in/.",
        "inner",
    ):
        assert roots.checked(path) == f"{root}/in"
    assert roots.checked("it's `odd`") == f"{root}/it's `odd`"
    assert roots.checked("in/*.csv") == f"{root}/in/*.csv"
    assert roots.checked("s3a://bucket/public/x") == "s3a://bucket/public/x"
    up = os.path.relpath(outside, root)
    for path in (
        *(
            "..",
            up,
            f"{root}/{up}",
            str(outside),
            f"file://{outside}",
            f"file:{root}/../outside",
            "/",
            "/etc/passwd",
        ),
        *("link", "link/secret.csv", "*/secret.csv", "l*", "{in,../outside}/*", "{.,x}./outside", f"{root}x"),
        *("in/../../outside/*", "file://other.host/etc", "hdfs://host/x", "http://host/x", "jar:file:/x"),
        *(
            "s3://bucket/private",
            "s3://bucket/public/../private",
            "s3://bucket/publicity",
            "s3://k:p@bucket/public",
        ),
        *("s3://bucket/public/{a,../../b}", "s3://bucket2/public"),
    ):
        with pytest.raises(SqlError, match=r"serve\.paths") as caught:
            roots.checked(path)
        assert caught.value.sqlstate == "42501", path
    for path in ("", "in\\..", "in\n"):
        with pytest.raises(SqlError) as caught:
            roots.checked(path)
        assert caught.value.sqlstate == "22023"


def test_files_that_are_no_data_are_not_read(place: Place, rows: Rows) -> None:
    (place.data / "penstock.toml").write_text('store_password = "secret"')
    (place.data / "mixed").mkdir()
    (place.data / "mixed/a.csv").write_text("1")
    (place.data / "mixed/key.pem").write_text("secret")
    (place.data / ".hidden").mkdir()
    place.write(".hidden/1.parquet")
    place.write("secret/1.parquet")
    place.storage.write("x.parquet", place.write("open/1.parquet").read_bytes())
    (place.data / "loop").symlink_to(place.folder)
    tables = place.tables(TableConfig("kept.secret", f"{place.data}/secret"))
    limited = User("lim", writes=True, schemas=frozenset({"public"}))
    for user, using, location in (
        (ADMIN, "csv", "penstock.toml"),
        (ADMIN, "json", "*.toml"),
        (ADMIN, "csv", "."),
        (ADMIN, "csv", "mixed"),
        (ADMIN, "parquet", ".hidden"),
        (ADMIN, "parquet", "*/1.parquet"),
        (limited, "parquet", "secret/1.parquet"),
        (limited, "parquet", "sec*"),
        (limited, "parquet", "."),
    ):
        with pytest.raises(SqlError) as caught:
            say(tables, f"CREATE TABLE x (a text) USING {using} LOCATION '{location}'", user)
        assert caught.value.sqlstate == "42501", location
    say(tables, "CREATE TABLE x (a text) USING csv LOCATION 'mixed/*.csv'", limited)
    say(tables, "CREATE TABLE y USING parquet LOCATION 'open'", limited)
    (place.data / "mixed/key.pem").unlink()
    say(tables, "CREATE TABLE z (a text) USING csv LOCATION 'mixed'")
    (place.data / "mixed/key.pem").write_text("secret")
    assert rows(tables, "z") == [("1",)]
    wide = Roots([str(place.folder)], [place.storage.root])
    for path in ("storage", "storage/x.parquet", ".", "*", "stor*/*"):
        with pytest.raises(SqlError, match="of its own"):
            wide.checked(path)
    assert wide.checked("data/open")


@pytest.mark.parametrize("folder", ["_hr", "hr", "_k=1", "a/_hr"])
def test_no_spelling_of_a_path_leads_to_files_of_a_schema_that_is_closed(place: Place, folder: str) -> None:
    place.write(f"{folder}/pay/1.parquet")
    place.write("open/1.parquet")
    (place.data / "way").symlink_to(place.data / folder)
    limited = User("lim", writes=True, schemas=frozenset({"public"}))
    names = folder.split("/")
    marked = "/".join(["?" + each[1:] for each in names])
    chosen = "/".join(f"[{each[0]}x]{each[1:]}" for each in names)
    braced = "/".join("{x," + each + "}" for each in names)
    starred = "/".join(["*"] * len(names))
    for spec in (f"{folder}", f"{folder}/pay", f"{folder}/*/*.parquet", f"{starred}/pay/?.parquet"):
        tables = place.tables(TableConfig("kept.secret", f"{place.data}/{spec}"))
        for way in (folder, marked, chosen, braced, starred, "w*", "way", f"{marked[:-1]}*"):
            for end in ("pay/1.parquet", "pay", "*/*", "p?y/*.parquet", "[a-z]*/1*"):
                with pytest.raises(SqlError) as caught:
                    say(tables, f"CREATE TABLE x USING parquet LOCATION '{way}/{end}'", limited)
                assert caught.value.sqlstate == "42501", (spec, way, end)
        if not spec.startswith("*"):
            say(tables, "CREATE TABLE fine USING parquet LOCATION 'op*/*.parquet'", limited)
            say(tables, "DROP TABLE fine")


def test_folders_that_spark_passes_over_hide_nothing_and_close_nothing() -> None:
    assert overlap("/data", "/data/_hr") is False
    assert overlap("/data", "/data/.hr/x") is False
    assert overlap("/data", "/data/_k=1/x") is True
    assert overlap("/data/?hr", "/data/_hr") is True
    assert overlap("s3://b/[_x]hr/*", "s3a://b/_hr/pay") is True
    assert overlap("s3://b/{a,_hr}", "s3://b/_hr/*.parquet") is True
    assert overlap("s3://b/x*", "s3://b/_hr/*.parquet") is False
    assert overlap("/data/_hr/pay/1.parquet", "/data/*/pay") is True
    assert overlap("/data/a?b", "/data/ab") is False


def test_odd_names_of_files_and_columns(place: Place, rows: Rows) -> None:
    odd = pa.table({"it's `odd`": [1], 'a "b" ${env:HOME}': [2], "ü": [{"x y": 3}]})
    place.write("it's `odd` -- ; 100%/1.parquet", odd)
    tables = place.tables()
    say(tables, "CREATE TABLE odd USING parquet LOCATION 'it''s `odd` -- ; 100%'")
    say(tables, "CREATE VIEW v AS SELECT *, '`penstock`.`public`.`odd` $HOME' AS text FROM odd")
    found = rows(place.tables(), "v")
    assert found[0][:2] == (1, 2) and found[0][3] == "`penstock`.`public`.`odd` $HOME"
    assert tables.find(("odd",), ("public",), ADMIN).spark_columns["ü"] == "STRUCT<`x y`: BIGINT>"
