"""Where records begin and end, against a slow and obvious way to find them."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from penstock.batch.inputs.scan import LoneReturnError, csv_records, json_records


def cut(text: bytes, *, final: bool = True) -> list[bytes]:
    found = csv_records(text, ",", '"', final=final)
    return [text[a:b] for a, b in zip(found.starts, found.ends, strict=True)]


def test_plain_lines() -> None:
    assert cut(b"a,1\nb,2\n") == [b"a,1\n", b"b,2\n"]


def test_the_last_line_may_lack_its_end() -> None:
    assert cut(b"a,1\nb,2") == [b"a,1\n", b"b,2"]
    assert cut(b"a,1\nb,2", final=False) == [b"a,1\n"]


def test_quoted_line_breaks_do_not_end_a_record() -> None:
    assert cut(b'"a\n,b",1\nc,"\n\n"\n') == [b'"a\n,b",1\n', b'c,"\n\n"\n']


def test_doubled_quotes() -> None:
    assert cut(b'"say ""hi\n""",1\nc,2\n') == [b'"say ""hi\n""",1\n', b"c,2\n"]


def test_a_quote_inside_an_unquoted_field_is_an_ordinary_character() -> None:
    assert cut(b'5" pipe,1\n6" pipe,2\n"x"y",3\n') == [b'5" pipe,1\n', b'6" pipe,2\n', b'"x"y",3\n']


def test_blank_lines_are_not_records() -> None:
    assert cut(b"\na\n\r\n\nb\r\n\n") == [b"a\n", b"b\r\n"]


def test_an_open_quote_leaves_the_record_unfinished() -> None:
    assert csv_records(b'a,1\n"b,2\n', ",", '"', final=True).consumed == 4


def test_a_return_alone_is_refused_unless_it_is_quoted() -> None:
    with pytest.raises(LoneReturnError):
        cut(b"a\rb\n")
    assert cut(b'"a\rb"\n') == [b'"a\rb"\n']


def test_json_lines_of_white_space_are_not_records() -> None:
    text = b'{"a":1}\n  \t\n {"a":2}\r\n\r\n\n{"a":3}'
    found = json_records(text, final=True)
    assert [text[a:b].strip() for a, b in zip(found.starts, found.ends, strict=True)] == [
        b'{"a":1}',
        b'{"a":2}',
        b'{"a":3}',
    ]


_FIELD = st.text(st.sampled_from('ab,"\n\r é'), max_size=6)


@given(st.lists(st.tuples(_FIELD, _FIELD), min_size=1, max_size=30), st.sampled_from(["\n", "\r\n"]))
def test_what_a_csv_writer_writes_is_cut_into_its_rows(rows: list[tuple[str, str]], end: str) -> None:
    pieces = []
    for row in rows:
        sink = io.StringIO()
        csv.writer(sink, lineterminator=end, quoting=csv.QUOTE_ALL).writerow(row)
        pieces.append(sink.getvalue().encode())
    assert cut(b"".join(pieces)) == pieces


@given(st.lists(st.text(st.sampled_from('ab"\n '), min_size=1, max_size=5), min_size=1, max_size=12))
def test_any_text_has_as_many_records_as_pyarrow_reads(lines: list[str]) -> None:
    text = "".join(lines).encode()
    found = csv_records(text, ",", '"', final=True)
    whole = text[: found.consumed]
    if not len(found.starts):
        return
    table = arrow_csv.read_csv(
        io.BytesIO(whole),
        read_options=arrow_csv.ReadOptions(column_names=["a"]),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
    )
    assert table.num_rows == len(found.starts)
