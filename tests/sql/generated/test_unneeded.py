"""Which errors Spark may leave out: not those of what is selected."""

from __future__ import annotations

import pytest

from tests.sql.generated.unneeded import may_be_left_out


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT id, ((CAST('8' AS integer) / i) = ANY(NULL::int[])) FROM t", "22012"),
        ("SELECT id, ((' inf '::float8)::int4 = NULL) FROM t", "22003"),
        ("SELECT id, ceil((CASE WHEN ok THEN f END + log10(f))) FROM t", "2201E"),
        (
            "SELECT t.id FROM t LEFT JOIN u ON u.t_id = t.id AND u.v > (s::int)::numeric WHERE t.id < 7",
            "22P02",
        ),
        ("SELECT CASE WHEN (4, NULL) = (i, i) THEN w::int[] ELSE a END FROM t", "22P02"),
        ("SELECT coalesce(i, 1 / i), ok OR 1 / i > 0, count(1 / i) FROM t", "22012"),
        ("SELECT ltrim(s, format('%L %I', NULL::text, g)) FROM t", "22004"),
        ("SELECT id FROM t ORDER BY b DESC, r::int LIMIT 3", "22003"),
        ("SELECT id, ((s::int, g) IS DISTINCT FROM (1, 'x')) FROM t", "22P02"),
    ],
)
def test_parts_that_may_not_be_needed(sql: str, sqlstate: str) -> None:
    assert may_be_left_out(sql, sqlstate)


@pytest.mark.parametrize(
    ("sql", "sqlstate"),
    [
        ("SELECT 1 / i FROM t", "22012"),
        ("SELECT 1 / i, 2 / i = NULL FROM t", "22012"),
        ("SELECT (1 / i) + CASE WHEN ok THEN 1 ELSE 2 END FROM t", "22012"),
        ("SELECT max(s::int) FROM t", "22P02"),
        ("SELECT log10(f) FROM t WHERE i > 0 AND ok", "2201E"),
        ("SELECT width_bucket(f, 0, 10, 5) = NULL FROM t", "2201G"),
        ("SELECT substring(s, 1, -1) FROM t", "22011"),
        ("SELECT format('%I', g), ltrim(s, 'x') FROM t", "22004"),
        ("SELECT id FROM t ORDER BY r::int, b LIMIT 3", "22003"),
        ("SELECT id, s::int IN (1, 2) FROM t", "22P02"),
        ("SELECT id, left(lower(g), -i % 6) FROM t", "22003"),
    ],
)
def test_what_is_selected_is_needed(sql: str, sqlstate: str) -> None:
    assert not may_be_left_out(sql, sqlstate)


def test_a_column_may_be_null_in_the_row_at_hand() -> None:
    assert may_be_left_out("SELECT id, left(lower(g), -i % 6) FROM t", "22003", with_nulls=True)
    assert not may_be_left_out("SELECT id, abs(-i % 6) FROM t", "22003", with_nulls=True)
    assert may_be_left_out("SELECT id, (id / n) / nullif(n, 0) FROM t", "22012", with_nulls=True)
    assert not may_be_left_out("SELECT id, (id / n) / nullif(n, 1) FROM t", "22012", with_nulls=True)
