"""CSV and JSON lines as they are found in the wild."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.core.ranges import Range
from penstock.errors import BadInput, UsageError

if TYPE_CHECKING:
    from tests.batch.inputs.support import Place


def rows_of(
    place: Place, file: str, text: str | bytes, name: str = "trades", **more: Any
) -> list[dict[str, Any]]:
    path = place.data / file
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    made = place.register(path, name, rows=1, **more)
    return [row for row in place.partitions(made).to_pylist() if isinstance(row, dict)]


def test_line_ends_blank_lines_and_a_missing_last_one(place: Place) -> None:
    assert rows_of(place, "x.csv", "a,b\r\n1,x\r\n\r\n2,y\n\n3,z") == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        {"a": 3, "b": "z"},
    ]


def test_an_empty_field_is_null_and_a_quoted_one_is_empty(place: Place) -> None:
    assert rows_of(place, "x.csv", 'a,b\n,1\n"",\nNA,3\n') == [
        {"a": None, "b": 1},
        {"a": "", "b": None},
        {"a": "NA", "b": 3},
    ]


def test_an_empty_field_of_a_text_that_cannot_be_null_is_empty(place: Place) -> None:
    schema = pa.schema([pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int64())])
    assert rows_of(place, "x.csv", "a,b\n,1\n", table_schema=schema) == [{"a": "", "b": 1}]


def test_other_words_for_null(place: Place) -> None:
    found = rows_of(place, "x.csv", "a,b\nNA,1\nx,-\n", options={"null_values": ["NA", "-"]})
    assert found == [{"a": None, "b": 1}, {"a": "x", "b": None}]


def test_delimiters_quotes_and_a_byte_order_mark(place: Place) -> None:
    assert rows_of(place, "x.tsv", "a\tb\n1\t'\n") == [{"a": 1, "b": "'"}]
    found = rows_of(
        place, "y.csv", "\ufeff'a;x';b\n'1;\n2';3\n", name="y", options={"delimiter": ";", "quote": "'"}
    )
    assert found == [{"a;x": "1;\n2", "b": 3}]
    assert rows_of(place, "z.csv", 'a\n"b\n', name="z", options={"quote": ""}) == [{"a": '"b'}]


def test_without_a_header_the_names_come_from_the_table(place: Place) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert rows_of(place, "x.csv", "1,x\n", table_schema=schema, options={"header": False}) == [
        {"a": 1, "b": "x"}
    ]
    with pytest.raises(UsageError, match="without a header needs a schema"):
        rows_of(place, "y.csv", "1,x\n", name="y", options={"header": "false"})


def test_types_come_from_the_table(place: Place) -> None:
    schema = pa.schema(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("z", pa.timestamp("us", "UTC")),
            ("d", pa.date32()),
            ("m", pa.decimal128(10, 2)),
            ("s", pa.string()),
        ]
    )
    expected = {
        "t": datetime(2024, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC),
        "z": datetime(2024, 1, 2, 1, tzinfo=UTC),
        "d": date(2024, 1, 2),
        "m": Decimal("1.50"),
        "s": "007",
    }
    line = "x,2024-01-02 03:04:05.25,2024-01-02T03:00:00+02:00,2024-01-02,1.5,007\n"
    assert rows_of(place, "x.csv", "more,t,z,d,m,s\n" + line, table_schema=schema) == [expected]
    document = (
        '{"more": [1], "t": "2024-01-02 03:04:05.25", "z": "2024-01-02T03:00:00+02:00", '
        '"d": "2024-01-02", "m": "1.5", "s": "007"}'
    )
    assert rows_of(place, "x.jsonl", document, name="json", table_schema=schema) == [expected]


def test_nested_documents(place: Place) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field(
                "lines",
                pa.list_(
                    pa.field("element", pa.struct([pa.field("on", pa.date32(), nullable=False)]), False)
                ),
            ),
        ]
    )
    text = '{"id":1,"lines":[{"on":"2024-01-02","x":1}]}\n{"id":2,"lines":[]}\n{"id":3}\n'
    assert rows_of(place, "x.jsonl", text, table_schema=schema) == [
        {"id": 1, "lines": [{"on": date(2024, 1, 2)}]},
        {"id": 2, "lines": []},
        {"id": 3, "lines": None},
    ]
    bad = '{"id":1}\n{"id":2,"lines":[{"on":"2024-01-02"},{"on":null}]}\n'
    with pytest.raises(BadInput, match=r"row 1 .counted from 0.: lines.element.on is null"):
        rows_of(place, "y.jsonl", bad, name="y", table_schema=schema)


def test_white_space_and_unicode_in_json_lines(place: Place) -> None:
    text = '{"a":"ü\\n"}\r\n \t\n\n {"a":"日本"}  \n{"a":null}'
    assert rows_of(place, "x.ndjson", text) == [{"a": "ü\n"}, {"a": "日本"}, {"a": None}]


def test_a_field_that_appears_late_is_not_lost(place: Place) -> None:
    early = '{"a":1}\n' * 140_000
    path = place.data / "x.jsonl"
    path.write_text(early + '{"a":1,"b":2}\n')
    made = place.register(path, rows=70_000)
    place.read(made, Range(0, 140_000), columns=["a"])
    with pytest.raises(BadInput, match="declare the table's schema"):
        place.read(made, Range(139_999, 140_001), columns=["a"])


def test_a_value_of_another_type_than_the_first_ones_is_named(place: Place) -> None:
    path = place.data / "x.csv"
    path.write_text("a\n" + "123456\n" * 200_000 + "x\n")
    made = place.register(path, rows=70_000)
    with pytest.raises(BadInput, match=r"x.csv, rows 140000-200001, cannot be read.*'x'"):
        place.read(made, made.partition(2))


def test_csv_that_is_broken(place: Place) -> None:
    with pytest.raises(BadInput, match="does not end"):
        rows_of(place, "a.csv", 'a,b\n1,"x\n')
    with pytest.raises(BadInput, match="carriage return alone"):
        rows_of(place, "b.csv", "a\r1\r2\n")
    with pytest.raises(BadInput, match="Expected 2 columns, got 3"):
        rows_of(place, "c.csv", "a,b\n1,2,3\n")
    with pytest.raises(BadInput, match="column a twice"):
        rows_of(place, "d.csv", "a,a\n1,2\n")
    with pytest.raises(BadInput, match="nothing tells which columns"):
        rows_of(place, "f.csv", "")
    with pytest.raises(BadInput, match="cannot be read as JSON lines"):
        rows_of(place, "g.json", '[\n{"a":1}\n]\n')
    (place.data / "sub").mkdir()
    (place.data / "sub/1.csv").write_text("a,b\n1,2\n")
    (place.data / "sub/2.csv").write_text("b,a\n1,2\n")
    with pytest.raises(BadInput, match=r"2.csv has the columns b, a; other files of the input have a, b"):
        place.register(place.data / "sub")


def test_a_record_longer_than_a_block(place: Place) -> None:
    long = "x" * (9 << 20)
    found = rows_of(
        place, "x.csv", f'a,b\n1,s\n2,"{long}\n"\n3,t\n', table_schema=pa.schema([("a", pa.int64())])
    )
    assert found == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_a_declared_type_that_the_first_rows_do_not_have_is_found_at_once(place: Place) -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(BadInput, match=r"x.csv does not fit: .*'1.5'"):
        rows_of(place, "x.csv", "a\n1.5\n", table_schema=schema)
    with pytest.raises(BadInput, match=r"x.jsonl does not fit"):
        rows_of(place, "x.jsonl", '{"a": "1"}\n', table_schema=schema)


def test_errors_name_columns_and_count_rows_from_0(place: Place) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    text = "note,price,id\n" + "x,1.5,1\n" * 9_000
    cases = {
        "a.csv": (text + "y,oops,2\n", r"column price, row 9000 \(counted from 0\).*'oops'"),
        "b.csv": ("note,price,id\nx,1.5,1\ny,2,two\n", r"column id, row 1 \(counted from 0\).*'two'"),
        "c.csv": ("note,price,id\nx,1,2\nx,1\n", r"row 1 \(counted from 0\): Expected 3 columns, got 2"),
        "d.jsonl": ('{"id":1}\n{"id":"x"}\n', r"column id changed .* in row 1 \(counted from 0\)"),
    }
    for name, (written, expected) in cases.items():
        (place.data / name).write_text(written)
        with pytest.raises(BadInput, match=expected):
            place.read(place.register(place.data / name, name, rows=10_000, table_schema=schema))
