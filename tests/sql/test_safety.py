"""What no query may do, whichever dialect it is written in."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.sql.statements.analysis import analyse
from penstock.sql.statements.classify import QueryStatement, classify
from penstock.sql.statements.safety import refused_function

PATHS = [
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM PARQUET.`/etc/passwd`",
    "SELECT * FROM `parquet`.`/etc/passwd`",
    'SELECT * FROM parquet."/etc/passwd"',
    'SELECT * FROM "parquet"."x"',
    "SELECT * FROM csv.`s3a://bucket/x`",
    "SELECT * FROM json.x",
    "SELECT * FROM text.`/etc/passwd` AS t",
    "SELECT * FROM orc.`x`, binaryFile.`/root`, t",
    "SELECT * FROM spark_catalog.json.`/x`",
    "SELECT * FROM delta.`/x`",
    "SELECT (SELECT value FROM text.`/etc/passwd` LIMIT 1)",
    "WITH a AS (SELECT * FROM text.`/x`) SELECT * FROM a",
    "SELECT * FROM t WHERE a IN (SELECT value FROM text.`/x`)",
    "SELECT * FROM a.`/etc/passwd`",
    "SELECT * FROM t LEFT JOIN xml.`x` ON true",
    "SELECT _metadata.file_path FROM t",
    "SELECT `_METADATA` FROM t",
    "SELECT t._metadata FROM t",
]
CALLS = [
    "SELECT reflect('java.lang.System', 'exit', 1)",
    "SELECT REFLECT('java.lang.System', 'exit', 1)",
    "SELECT `reflect`('java.lang.System', 'exit', 1)",
    "SELECT \"reflect\"('java.lang.System', 'exit', 1)",
    "SELECT system.builtin.reflect('a', 'b')",
    "SELECT builtin.`java_method`('a', 'b')",
    "SELECT reflect /* x */ ('a', 'b')",
    "SELECT try_reflect('a', 'b')",
    "SELECT transform(`a`, x -> reflect('a', x)) FROM t",
    "SELECT * FROM t ORDER BY java_method('a', 'b')",
    "SELECT * FROM t JOIN u ON reflect('a', 'b') = t.x",
    "SELECT count(*) FILTER (WHERE reflect('a', 'b') = '1') FROM t",
    "SELECT sum(a) OVER (ORDER BY reflect('a', 'b')) FROM t",
    "SELECT * FROM t LATERAL VIEW explode(array(reflect('a', 'b'))) x AS y",
    "SELECT input_file_name() FROM t",
    "SELECT input_file_block_start() FROM t",
    "SELECT from_avro(a, 'x') FROM t",
    "SELECT to_protobuf(a, 'x', '/etc/passwd') FROM t",
    "SELECT from_xml(`a`, 'x INT', map('rowValidationXSDPath', '/etc/passwd')) FROM t",
    "SELECT from_xml(`a`, 'x INT', map(concat('rowValidation', 'XSDPath'), '/x')) FROM t",
    "SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '/x'))",
    "SELECT * FROM read_files('/etc/passwd')",
    "SELECT * FROM read_kafka('x')",
    "SELECT * FROM python_worker_logs()",
    "SELECT * FROM my_table_function(1)",
    "SELECT * FROM identifier('t')",
    "SELECT identifier('a') FROM t",
    "SELECT * FROM IDENTIFIER('par' || 'quet.`/etc/passwd`')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_catalog.pg_read_file('/etc/passwd')",
    "SELECT \"pg_read_file\"('/etc/passwd')",
    "SELECT U&\"\\0070g_read_file\"('/etc/passwd')",
    "SELECT U&\"!0070g_read_file\" UESCAPE '!' ('/etc/passwd')",
    "SELECT $\u0663$ ' $\u0663$, pg_read_file('/x'), $\u0663$ ' $\u0663$ FROM pg_class",
    "SELECT pg_read_binary_file('/x') FROM pg_class",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT * FROM pg_class, pg_ls_logdir()",
    "SELECT pg_stat_file('/x')",
    "SELECT lo_import('/etc/passwd'), lo_export(1, '/x')",
    "SELECT * FROM dblink('host=x', 'select 1') AS t(a int)",
    "SELECT dblink_connect('host=x')",
    "SELECT pg_terminate_backend(1)",
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "SELECT pg_reload_conf()",
    "SELECT query_to_xml('select 1', true, true, '')",
    "SELECT table_to_xml('t', true, true, '')",
    "SELECT ts_stat('select 1')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT nextval('q'), currval('q')",
    "SELECT pg_notify('a', 'b')",
    "SELECT pg_create_restore_point('x')",
    "SELECT CASE WHEN true THEN pg_read_file('x') END FROM pg_class, XMLTABLE('/a' PASSING x COLUMNS b int)",
]
FORMS = [
    "SELECT TRANSFORM(a) USING 'cat /etc/passwd' AS (b) FROM t",
    "SELECT TRANSFORM (a, b) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' USING 'sh' FROM t",
    "FROM t SELECT TRANSFORM(a) USING 'id'",
    "SELECT * FROM (SELECT TRANSFORM(a) USING 'id' FROM t) x",
    "FROM t INSERT OVERWRITE DIRECTORY '/x' SELECT *",
    "FROM t INSERT INTO u SELECT *",
    "WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a",
    "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
    "SELECT * INTO u FROM t",
    "SELECT * FROM (SELECT * FROM t FOR UPDATE) x",
    "SELECT /*+ my_hint(3) */ `a` FROM t",
    "SELECT :name FROM t",
    "SELECT ? FROM t",
    "SELECT `a`, @x",
    "SELECT ${env:HOME}",
    "SELECT '${env:HOME}'",
    "SELECT '${system:user.home}'",
    "SELECT '${spark.hadoop.fs.s3a.secret.key}'",
    "SELECT E'\\x24{env:HOME}'",
    "SELECT '$\\{env:HOME}' AS `a`",
    'SELECT 1 AS "${env:HOME}"',
    "SELECT 1 AS `${sparkConf:x}`",
    "SELECT * FROM t VERSION AS OF 1",
    "CREATE TABLE x AS SELECT 1",
    "DROP TABLE t",
    "SET spark.sql.ansi.enabled = false",
    "ADD JAR '/x.jar'",
    "CACHE TABLE t",
    "REFRESH TABLE t",
    "DESCRIBE FUNCTION reflect",
    "EXECUTE IMMEDIATE 'select 1'",
    "DECLARE VARIABLE x INT",
    "BEGIN SELECT 1; END",
    "CALL f()",
    "DO $$ begin end $$",
    "COPY t TO PROGRAM 'sh'",
    "SELECT 1; DROP TABLE t",
    "EXPLAIN SELECT 1",
]


@pytest.mark.parametrize("dialect", ["auto", "postgres", "spark"])
@pytest.mark.parametrize("sql", [*PATHS, *CALLS, *FORMS])
def test_refused(sql: str, dialect: str) -> None:
    with pytest.raises(SqlError) as caught:
        analyse(sql, dialect)
    assert caught.value.sqlstate in ("42501", "0A000", "42601")


@pytest.mark.parametrize("sql", [*PATHS, *CALLS])
def test_refused_for_the_right_reason(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        analyse(sql)
    assert caught.value.sqlstate in ("42501", "0A000"), caught.value


@pytest.mark.parametrize("sql", [f"EXPLAIN {sql}" for sql in FORMS[:3]])
def test_a_wrapping_command_hands_on_what_must_be_looked_at(sql: str) -> None:
    command = classify(sql)
    text = getattr(command, "query", None)
    assert text is not None
    with pytest.raises(SqlError):
        analyse(text)


def test_a_schema_may_bear_the_name_of_a_format() -> None:
    found = analyse("SELECT * FROM text.words", schema_exists=lambda name: name == "text")
    assert [relation.path for relation in found.relations] == [("text", "words")]
    with pytest.raises(SqlError, match="path"):
        analyse("SELECT * FROM text.`/etc/passwd`", schema_exists=lambda _: True)


def test_the_place_and_the_name_are_told() -> None:
    with pytest.raises(SqlError, match='"pg_read_file"') as caught:
        analyse("SELECT 1, pg_catalog.pg_read_file('x')")
    assert caught.value.position == 21
    with pytest.raises(SqlError, match='"csv"') as caught:
        analyse("SELECT * FROM csv.`x`")
    assert caught.value.position == 14


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'reflect(1)', 'pg_read_file', \"reflect\" FROM t",
        "SELECT reflect, lo_import FROM t -- reflect(1)",
        "SELECT a AS json, csv.b FROM t AS csv",
        "SELECT json FROM text",
        "SELECT '$1 ${x} {env:y}'",
        "SELECT * FROM t WHERE path LIKE '/etc/%'",
        "SELECT /*+ broadcast(u) */ * FROM t JOIN u USING (a)",
        "SELECT * FROM explode(array(1, 2))",
        "SELECT from_xml(`a`, 'x INT') FROM t",
        "SELECT * FROM checkpoint('run', 'stage')",
        "SELECT current_setting('x'), pg_backend_pid(), version()",
        # Drivers call both around their own queries; the shadow catalog sees to it that they do nothing.
        "SELECT set_config('jit', 'off', false)",
        "SELECT pg_advisory_unlock_all()",
        "SELECT transform(a, x -> x + 1) FROM t",
    ],
)
def test_allowed(sql: str) -> None:
    assert isinstance(classify(sql), QueryStatement)
    analyse(sql)


def test_sparks_functions_were_gone_through(spark: object) -> None:
    """All that call Java, read files, or tell paths. A new Spark has new functions: look, then extend."""
    rows = spark.sql("SHOW ALL FUNCTIONS").collect()  # type: ignore[attr-defined]
    refused = {row[0] for row in rows if refused_function(row[0])}
    assert refused == {
        "from_avro",
        "from_protobuf",
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "java_method",
        "python_worker_logs",
        "reflect",
        "schema_of_avro",
        "to_avro",
        "to_protobuf",
        "try_reflect",
    }
