"""What a query touches, and in which dialect it is written."""

from __future__ import annotations

import pytest
from sqlglot import exp

from penstock.errors import SqlError
from penstock.sql.statements.analysis import Analysis, RelationRef, analyse


def paths(sql: str) -> list[str]:
    return [".".join(relation.path) for relation in analyse(sql).relations]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 1", []),
        ('SELECT * FROM A, s.B JOIN "C" ON true', ["a", "s.b", "C"]),
        ("SELECT * FROM db.s.t AS x", ["db.s.t"]),
        ("SELECT (SELECT max(a) FROM u) FROM t WHERE EXISTS (SELECT 1 FROM v)", ["u", "t", "v"]),
        ("SELECT * FROM t JOIN t AS u USING (a)", ["t"]),
        ("TABLE t", ["t"]),
        ("WITH a AS (SELECT * FROM t) SELECT * FROM a", ["t"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", []),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b", []),
        ("WITH b AS (SELECT * FROM a), a AS (SELECT 1) SELECT * FROM b, a", ["a"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) x, a", ["a"]),
        ("WITH a AS (SELECT 1) SELECT (SELECT 1 FROM a), * FROM s.a", ["s.a"]),
        ('WITH "A" AS (SELECT 1) SELECT * FROM a', ["a"]),
        ("WITH A AS (SELECT 1) SELECT * FROM a UNION SELECT * FROM A", []),
        ("WITH `A` AS (SELECT 1) SELECT * FROM a", []),
        ("SELECT /*+ broadcast(b) */ * FROM a JOIN b ON true", ["a", "b"]),
        ("SELECT * FROM t LATERAL VIEW explode(a) x AS y", ["t"]),
        ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.x = t.x) z", ["t", "u"]),
    ],
)
def test_relations(sql: str, found: list[str]) -> None:
    assert paths(sql) == found


def test_relations_have_places() -> None:
    sql = "SELECT 'é', /* t */ a.x FROM\n  s.\"T\" AS a,\n  u"
    places = {relation.path: relation.position for relation in analyse(sql).relations}
    assert places == {("s", "T"): sql.index("s."), ("u",): sql.index("u", 40)}


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT a::int FROM t", "postgres"),
        ("SELECT \"a\", 'b' FROM t", "postgres"),
        ("SELECT `a` FROM t", "spark"),
        ("SELECT * FROM a LEFT SEMI JOIN b ON a.x = b.x", "spark"),
        ("SELECT explode(a) FROM t", "spark"),
        ("SELECT collect_list(a) FROM t", "spark"),
        ("SELECT window(ts, '1 minute'), count(*) FROM t GROUP BY window(ts, '1 minute')", "spark"),
        ("SELECT * FROM range(3)", "spark"),
        ("SELECT transform(a, x -> x + 1) FROM t", "spark"),
        ("SELECT a <=> b FROM t", "spark"),
        ("SELECT a FROM t SORT BY a", "spark"),
        ("SELECT * FROM t WHERE a LIKE 'it\\'s'", "spark"),
        ('SELECT year(d), "Name" FROM t', "postgres"),
    ],
)
def test_the_dialect_is_found(sql: str, dialect: str) -> None:
    assert analyse(sql).dialect == dialect


def test_the_dialect_can_be_told() -> None:
    assert analyse("SELECT 'a\\'b'", "spark").tree.expressions[0].name == "a'b"
    assert analyse('SELECT "a"', "spark").tree.expressions[0].is_string
    with pytest.raises(SqlError):
        analyse("SELECT `a` FROM t", "postgres")


def test_functions_and_parameters() -> None:
    found = analyse("SELECT upper(a), pg_catalog.lower($3) FROM generate_series(1, $2) AS g(a)")
    assert found.functions == {"upper", "lower", "generate_series"}
    assert found.table_functions == {"generate_series"}
    assert found.parameters == 3
    assert analyse("SELECT `a` + $2 FROM t").parameters == 2


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        ("SELECT * FROM t LIMIT 5", 5),
        ("(SELECT * FROM t LIMIT 5)", 5),
        ("SELECT * FROM t UNION ALL SELECT * FROM u LIMIT 6", 6),
        ("SELECT * FROM t FETCH FIRST 7 ROWS ONLY", 7),
        ("SELECT * FROM t FETCH FIRST ROW ONLY", 1),
        ("SELECT * FROM t ORDER BY a FETCH FIRST 7 ROWS WITH TIES", None),
        ("SELECT * FROM (SELECT * FROM t LIMIT 5) x", None),
        ("SELECT * FROM t LIMIT ALL", None),
        ("SELECT * FROM t LIMIT $1", None),
        ("SELECT * FROM t", None),
    ],
)
def test_limit(sql: str, limit: int | None) -> None:
    assert analyse(sql).limit == limit


@pytest.mark.parametrize(
    ("sql", "aggregate"),
    [
        ("SELECT count(*) FROM t", True),
        ("SELECT 1 + coalesce(sum(a), 0) FROM t", True),
        ("SELECT a FROM t GROUP BY a", True),
        ("SELECT sum(a) OVER () FROM t", False),
        ("SELECT (SELECT count(*) FROM u) FROM t", False),
        ("SELECT * FROM (SELECT count(*) FROM t) x", False),
        ("SELECT max(`a`) FROM t", True),
    ],
)
def test_aggregate(sql: str, aggregate: bool) -> None:
    assert analyse(sql).aggregate is aggregate


@pytest.mark.parametrize(
    ("sql", "constant"),
    [
        ("SELECT 1", True),
        ("SELECT current_user, version(), now() - interval '1 day'", True),
        ("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(x, y)", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("SELECT pg_sleep(10)", True),
        ("SELECT $1::int + 1", True),
        ("SELECT * FROM pg_catalog.pg_get_keywords()", True),
        ("SELECT generate_series(1, 1000000000)", False),
        ("SELECT unnest(ARRAY[1, 2])", False),
        ("SELECT * FROM unnest(current_schemas(true))", True),
        ("SELECT * FROM current_schemas(true)", True),
        ("SELECT current_schemas(true), g FROM generate_series(1, 9) AS g", False),
        ("SELECT * FROM generate_series(1, 10)", False),
        ("SELECT repeat('a', 1000000000)", False),
        ("WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT * FROM a", False),
        ("SELECT date_format(now(), 'yyyy')", False),
        ("SELECT 1 AS `a`", False),
        ("SELECT * FROM t", False),
    ],
)
def test_constant(sql: str, constant: bool) -> None:
    assert analyse(sql).constant is constant


@pytest.mark.parametrize(
    ("sql", "catalog"),
    [
        ("SELECT * FROM pg_catalog.pg_class", True),
        ("SELECT * FROM pg_class, information_schema.tables", True),
        ("SELECT * FROM PG_CLASS", True),
        ("SELECT * FROM pg_mine", False),
        ("SELECT * FROM public.pg_class", False),
        ("SELECT * FROM pg_class JOIN t ON true", False),
        ("SELECT 1", False),
        (
            "SELECT 1 FROM pg_class WHERE relname OPERATOR(pg_catalog.~) 't' COLLATE pg_catalog.default",
            True,
        ),
        ("SELECT oid::regclass, reltype::regtype FROM pg_class WHERE oid = 't'::regclass", True),
    ],
)
def test_catalog(sql: str, catalog: bool) -> None:
    assert analyse(sql).catalog is catalog


def test_catalog_queries_that_only_postgresql_can_read() -> None:
    sql = """WITH RECURSIVE tree(oid, depth) AS (SELECT oid, 1 FROM pg_class
             UNION ALL SELECT t.oid, t.depth + 1 FROM tree t, LATERAL (SELECT 1 FROM pg_catalog.pg_type) x)
             SELECT *, extract(epoch from now()) FROM tree, XMLTABLE('/a' PASSING x COLUMNS b int PATH 'c')
             WHERE depth IS DISTINCT FROM $2"""
    found = analyse(sql)
    assert found.catalog
    assert isinstance(found.tree, exp.Command)
    assert {relation.path for relation in found.relations} == {("pg_class",), ("pg_catalog", "pg_type")}
    assert found.parameters == 2
    for other in ("FROM tree, secrets,", "FROM tree JOIN s.secrets ON true,", "FROM (secrets),"):
        with pytest.raises(SqlError):
            analyse(sql.replace("FROM tree,", other))


@pytest.mark.parametrize(
    ("sql", "position"),
    [
        ("SELECT a b c FROM t", 11),
        ("SELECT\n  a FROM t\nWHERE x y", 26),
        ("SELECT 'é' 'ü', a FROM FROM", 23),
        ("SELECT (1", None),
        ("", None),
        ("SELECT 1; SELECT 2", 8),
    ],
)
def test_what_cannot_be_read(sql: str, position: int | None) -> None:
    with pytest.raises(SqlError) as caught:
        analyse(sql)
    assert caught.value.sqlstate == "42601"
    assert position is None or caught.value.position == position


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "NOT " * 20_000 + "true",
        "SELECT " + "- " * 20_000 + "1",
        "SELECT " + "CASE WHEN true THEN " * 3000 + "1" + " END" * 3000,
        "SELECT * FROM " + "(SELECT * FROM " * 500 + "t" + ") x" * 500,
    ],
)
def test_depth_is_an_error_and_no_crash(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        analyse(sql)
    assert caught.value.sqlstate in ("54001", "42601")


def test_long_chains_are_fine() -> None:
    assert isinstance(analyse("SELECT 1" + " + 1" * 2000), Analysis)
    assert analyse("SELECT * FROM t WHERE a IN (" + ",".join(map(str, range(5000))) + ")").relations == (
        RelationRef(("t",)),
    )


def test_comments_do_not_reach_spark() -> None:
    found = analyse("SELECT a /* ${env:HOME} */ FROM t -- x")
    assert "env" not in found.tree.sql(dialect="spark")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MAX_BY(`a`, b, 2) FROM t",
        "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY `a`) FROM t",
        "SELECT TO_CHAR(`a`, '99G999'), INSTR(a, 'b', 1, 2), NVL(a, b) FROM t",
        "SELECT LISTAGG(`a`) FROM t",
        "SELECT PARSE_JSON(`a`) FROM t",
    ],
)
def test_functions_of_spark_stay_as_written(sql: str) -> None:
    assert analyse(sql).tree.sql(dialect="spark") == sql


def test_sparks_type_time_is_refused_because_it_would_become_another() -> None:
    with pytest.raises(SqlError, match="TIME"):
        analyse("SELECT CAST(`a` AS TIME) FROM t")


def test_a_later_with_query_is_a_table_for_who_names_it_before() -> None:
    found = analyse("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT * FROM b, a) SELECT * FROM a, b")
    assert [relation.path for relation in found.relations] == [("b",)]
    assert [relation.position for relation in found.relations] == [35]


@pytest.mark.parametrize(
    ("sql", "catalog"),
    [
        (
            "SELECT has_any_column_privilege(relname) AS update, 1 AS select, 2 AS from FROM pg_class",
            True,
        ),
        ("SELECT relname AS select FROM pg_class AS c JOIN pg_namespace AS n ON true", True),
        # What looks like a name behind AS and is none must not hide a table.
        ("SELECT 1 AS select, t.as FROM secret t", False),
        ("SELECT 1 AS select, 2 AS as FROM secret", False),
        ('SELECT 1 AS select, "as" FROM secret', False),
        ("WITH x AS (DELETE FROM pg_class RETURNING 1 AS select) SELECT 1 AS select FROM pg_class", False),
    ],
)
def test_names_that_are_words_elsewhere(sql: str, catalog: bool) -> None:
    if catalog:
        assert analyse(sql).catalog
    else:
        with pytest.raises(SqlError):
            analyse(sql)
