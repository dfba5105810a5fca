"""Values that are short to send and long to read: each was minutes of work for one request, or memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest

from penstock.errors import SqlError
from penstock.server.engine.faults import translated
from penstock.server.flight.metadata import matches
from penstock.server.http.parameters import convert
from penstock.server.pgwire.session.arguments import type_oid
from penstock.server.relations.ddl.given import parsed
from penstock.server.relations.files.paths import Roots
from penstock.server.session_settings import Settings
from penstock.sql.statements.analysis import analyse
from penstock.types import postgres

SPACES = " " * 100_000


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("work", "sqlstate"),
    [
        (lambda: type_oid("int" + "[]" * 50_000 + "x"), "42704"),
        (lambda: Settings().set("statement_timeout", f"1{SPACES}!"), "22023"),
        (lambda: Settings().set("statement_timeout", "1e999"), "22023"),
        (lambda: Settings().set("search_path", f'a,{SPACES}"'), "22023"),
        (lambda: parsed(f"a int{SPACES}!"), "42601"),
        (lambda: Roots(["/data"]).checked("/data/" + "{a,b,c,d,e,f,g,h,i,j}" * 8), "22023"),
        (lambda: convert([postgres.INT8], [Decimal("1e999999999")]), "22003"),
        (lambda: convert([postgres.NUMERIC], [Decimal("1e-999999999")]), "22003"),
        (lambda: analyse("SELECT " + "NOT " * 5_000 + "true"), "54001"),
    ],
)
def test_it_is_refused_at_once(work: Callable[[], object], sqlstate: str) -> None:
    with pytest.raises(SqlError) as caught:
        work()
    assert caught.value.sqlstate == sqlstate


def test_an_error_that_quotes_a_long_value_is_cut() -> None:
    told = translated(RuntimeError(f"[CAST] The value '{SPACES}x' is malformed."))
    assert told.what.startswith("RuntimeError: The value") and len(told.what) < 1_000


@pytest.mark.parametrize(
    ("pattern", "name", "like"),
    [
        ("%", "", True),
        ("", "a", False),
        ("a%", "abc", True),
        ("%b", "abc", False),
        ("a_c", "abc", True),
        ("a_", "abc", False),
        ("%a%b%", "xaxbx", True),
        ("%ab", "aab", True),
        ("a.c", "abc", False),
        ("%a" * 30 + "%b", "a" * 60, False),
        ("%" * 60, "a" * 60, True),
    ],
)
def test_patterns_of_metadata(pattern: str, name: str, like: bool) -> None:
    assert matches(pattern, name) is like


def test_search_paths_are_read_as_before() -> None:
    settings = Settings()
    for written, shown in (
        (' "a b" , Public ,x', '"a b", public, x'),
        ("'x', y ", "x, y"),
        ('"a""b"', '"a""b"'),
    ):
        settings.set("search_path", written)
        assert settings.get("search_path") == shown
