"""What clients are told of files: their names, not where they are."""

from __future__ import annotations

import logging

import pytest

from penstock.errors import CorruptFile, SqlError
from penstock.server.engine.faults import translated
from penstock.server.network.redaction import without_places


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "error while reading file file:///srv/data/hr/1.parquet. Why",
            "error while reading file 1.parquet. Why",
        ),
        ("Path does not exist: file:/srv/data/x.", "Path does not exist: x."),
        ("s3a://bucket/a/b.parquet is broken", "b.parquet is broken"),
        ("cannot open '/srv/data/a.csv'", "cannot open 'a.csv'"),
        ("/srv/data/ is no folder", "a folder is no folder"),
        ("a/b/c, 1/2 and https://penstock.example/docs/sql.html", None),
        ("division by zero", None),
    ],
)
def test_places_are_left_out(text: str, shown: str | None) -> None:
    assert without_places(text) == (shown or text)


def test_the_servers_log_has_the_whole_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock.server"):
        told = translated(CorruptFile("/srv/storage/x/1.arrow has 3 rows, not 4"))
    assert told.what == "1.arrow has 3 rows, not 4"
    assert "/srv/storage/x/1.arrow" in caplog.text


def test_values_of_the_users_own_are_left_alone() -> None:
    class CastFailed(Exception):
        def getCondition(self) -> str:  # noqa: N802
            return "CAST_INVALID_INPUT"

        def getSqlState(self) -> str:  # noqa: N802
            return "22018"

    told = translated(CastFailed("[CAST_INVALID_INPUT] The value '/a/b/c' cannot be cast. SQLSTATE: 22018"))
    assert "/a/b/c" in told.what
    assert translated(SqlError('permission denied for path "/x/y"', sqlstate="42501")).what.endswith('"/x/y"')
