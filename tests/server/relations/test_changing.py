"""Files that get other columns: their tables get them, too, at the second try at the latest."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import TableConfig
from penstock.errors import SqlError
from penstock.server.relations import Tables
from penstock.server.relations.files.summary import UNKNOWN, summary
from penstock.server.relations.spec import TableSpec
from tests.server.relations.conftest import ADMIN, Place, say

Rows = Callable[..., list[tuple[Any, ...]]]

OLD = pa.table({"id": [1, 2], "name": ["a", "b"]})
WIDER = pa.table({"id": [1], "name": ["a"], "note": ["new"]})
OTHER = pa.table({"id": ["one"], "price": [1.5]})


def columns(tables: Tables, name: str) -> list[tuple[str, str]]:
    [found] = [info for info in tables.listed(ADMIN) if info.name == name]
    return [(field.name, str(field.type)) for field in found.columns]


def test_other_columns_are_there_at_the_second_try(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    say(tables, "CREATE TABLE c USING parquet LOCATION 't'")
    for name in ("t", "c"):
        assert len(rows(tables, name)) == 2
    (place.data / "t/1.parquet").unlink()
    place.write("t/2.parquet", OTHER)
    for name in ("t", "c"):
        version = tables.version
        with pytest.raises(SqlError, match="have other columns") as caught:
            rows(tables, name)
        assert caught.value.sqlstate == "40001" and caught.value.hint
        assert tables.version > version, "whoever described it must do so anew"
        assert rows(tables, name) == [("one", 1.5)]
        assert columns(tables, name) == [("id", "string"), ("price", "double")]
    assert rows(place.tables(), "c") == [("one", 1.5)], "also after a restart"


def test_a_query_goes_on_when_columns_are_only_added(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    place.write("t/1.parquet", WIDER)
    assert rows(tables, "t") == [(1, "a")]
    assert rows(tables, "t") == [(1, "a", "new")]


def test_nobody_has_to_ask(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.server.relations.relations._WATCH_EVERY", 0.1)
    place.write("t/1.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    tables.follow()
    place.write("t/1.parquet", OTHER)
    deadline = time.monotonic() + 20
    while columns(tables, "t") != [("id", "string"), ("price", "double")]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_views_follow_what_they_read_or_say_what_is_missing(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    say(tables, "CREATE VIEW v AS SELECT id FROM t")
    say(tables, "CREATE VIEW w AS SELECT count(*) AS n FROM v")
    say(tables, "CREATE VIEW named AS SELECT name FROM t")
    say(tables, "CREATE VIEW everything AS SELECT * FROM t")
    place.write("t/1.parquet", WIDER)
    assert rows(tables, "w") == [(1,)]
    assert rows(tables, "named") == [("a",)] and rows(tables, "v") == [(1,)]
    assert rows(tables, "everything") == [(1, "a")]
    place.write("t/1.parquet", OTHER)
    with pytest.raises(SqlError):
        rows(tables, "w")
    assert rows(tables, "w") == [(1,)]
    with pytest.raises(SqlError, match="name"):
        rows(tables, "named")
    place.write("t/1.parquet", OLD)
    with pytest.raises(SqlError):
        rows(tables, "t")
    assert rows(tables, "named") == [("a",), ("b",)], "it is as it was"


def test_columns_that_were_given_stay(place: Place, rows: Rows) -> None:
    place.write("t/1.parquet", OLD)
    tables = place.tables()
    say(tables, "CREATE TABLE t (id bigint, name text) USING parquet LOCATION 't'")
    place.write("t/1.parquet", WIDER)
    assert rows(tables, "t") == [(1, "a")]
    assert [name for name, _ in columns(tables, "t")] == ["id", "name"]


def test_what_the_files_do_not_tell_is_found_when_they_cannot_be_read(
    place: Place, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.relations.spark_tables.summary", lambda _: UNKNOWN)
    place.write("t/1.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    say(tables, "CREATE VIEW v AS SELECT count(id) AS n FROM t")
    place.write("t/1.parquet", OTHER)
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        rows(tables, "t")
    tables.find(("v",), ("public",), ADMIN).doubt()
    assert rows(tables, "t") == [("one", 1.5)] and rows(tables, "v") == [(1,)]


def test_files_that_come_with_the_same_columns_change_nothing(place: Place, rows: Rows) -> None:
    place.write("t/2.parquet", OLD)
    tables = place.tables(TableConfig("t", f"{place.data}/t"))
    version = tables.version
    for name in ("1", "3"):
        place.write(f"t/{name}.parquet", OLD)
        rows(tables, "t")
    (place.data / "t/0.parquet").write_bytes(b"not yet complete")
    with pytest.raises(Exception, match=r"."):
        rows(tables, "t")
    tables.find(("t",), ("public",), ADMIN).doubt()
    (place.data / "t/0.parquet").unlink()
    assert len(rows(tables, "t")) == 6 and tables.version == version


def test_summaries(place: Place, tmp_path: Path) -> None:
    def of(name: str, format_: str, text: str, **options: str) -> str:
        (tmp_path / name).write_text(text)
        return summary(TableSpec(str(tmp_path / name), format_, options))

    assert of("a.csv", "csv", "id,b\n1,2", header="true") == of("a.csv", "csv", '"id",b\n1\n', header="true")
    assert of("a.csv", "csv", "id,b\n", header="true") != of("a.csv", "csv", "id;b\n", header="true")
    assert of("a.csv", "csv", "1,2\n") == of("a.csv", "csv", "3,4\n") != of("a.csv", "csv", "1,2,3\n")
    assert of("a.json", "json", '{"a":1,"b":2}\n') == of("a.json", "json", '{"b":1,"a":"x"}\n')
    assert of("a.json", "json", '{"a":1}\n') != of("a.json", "json", '{"b":1}\n')
    for name, kind, text in (
        ("a.csv.gz", "csv", "id\n"),
        ("a.json", "json", "nonsense"),
        ("a.json", "json", '[{"a":1},{"b":2}]'),
        ("a.json", "json", "5"),
        ("a.parquet", "parquet", "no"),
        ("a.arrow", "arrow", "no"),
        ("a.orc", "orc", "no"),
    ):
        assert of(name, kind, text) == UNKNOWN
    assert summary(TableSpec("s3://bucket/x", "parquet")) == UNKNOWN
    place.write("p/k=1/1.parquet", OLD)
    place.write("q/j=1/1.parquet", OLD)
    one, other = (summary(TableSpec(f"{place.data}/{name}", "parquet")) for name in "pq")
    assert one != other
