from __future__ import annotations

import pytest

from penstock.control.catalog.sql import MAX_SQL, one_statement, script
from penstock.errors import UsageError


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SELECT 1", "SELECT 1"),
        ("\n  SELECT 1 ;\n", "SELECT 1"),
        ("SELECT 1;;; -- done; really\n", "SELECT 1"),
        ("-- first\nSELECT 1", "-- first\nSELECT 1"),
        ("SELECT 1 -- last", "SELECT 1 -- last"),
        ("SELECT ';', \";\", `;`", "SELECT ';', \";\", `;`"),
        ("SELECT 'it''s; so'", "SELECT 'it''s; so'"),
        (r"SELECT 'a\';b'", r"SELECT 'a\';b'"),
        (r"SELECT r'\' ;", r"SELECT r'\'"),
        (r"SELECT R'\', r'x;y', 'a\';b'", r"SELECT R'\', r'x;y', 'a\';b'"),
        ("SELECT /* ; */ 1", "SELECT /* ; */ 1"),
        ("SELECT /* a /* ; */ ; */ 1;", "SELECT /* a /* ; */ ; */ 1"),
        ("SELECT 4 - -1 / 2 -- it's", "SELECT 4 - -1 / 2 -- it's"),
        ("SELECT 'größe; 大'", "SELECT 'größe; 大'"),
    ],
)
def test_one_statement(text: str, statement: str) -> None:
    assert one_statement(text) == statement
    assert one_statement(statement) == statement


@pytest.mark.parametrize("text", ["", " \n", ";", "-- nothing", "/* nothing; */;"])
def test_nothing_is_no_statement(text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        one_statement(text)


def test_two_statements_are_refused_with_the_place() -> None:
    with pytest.raises(UsageError, match=r"more than one statement.* in line 2, column 3"):
        one_statement("SELECT\n 1; SELECT 2")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("SELECT 'x", "nothing closes the ' in line 1, column 8"),
        ("SELECT\n `x", "nothing closes the ` in line 2, column 2"),
        ('SELECT "x; y', 'nothing closes the " in line 1'),
        ("SELECT 1 /* a /* b */", r"nothing closes the /\* in line 1, column 10"),
    ],
)
def test_what_is_left_open_would_swallow_what_follows(text: str, place: str) -> None:
    with pytest.raises(UsageError, match=place):
        one_statement(text)


def test_length_is_counted_in_bytes() -> None:
    assert one_statement("x" * MAX_SQL)
    for text in ("x" * (MAX_SQL + 1), "ß" * (MAX_SQL // 2 + 1)):
        with pytest.raises(UsageError, match="131,072 at most"):
            one_statement(text)


def test_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="no text"):
        one_statement("SELECT '\udcff'")


def test_a_script_ends_each_statement() -> None:
    assert (
        script(["SELECT 1", "SELECT 2 -- two", "SELECT 3"]) == "SELECT 1;\n\nSELECT 2 -- two\n;\n\nSELECT 3;"
    )
    assert script([]) == ""
