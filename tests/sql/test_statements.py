"""Texts cut into statements, and what each asks for."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.sql.parse.lexing import (
    IDENTIFIER,
    LONGEST,
    NUMBER,
    PARAMETER,
    REMEMBERED,
    STRING,
    SYMBOL,
    WORD,
    plain,
    tokens,
)
from penstock.sql.statements.classify import (
    Begin,
    CloseCursor,
    Command,
    Commit,
    CopyIn,
    CopyOptions,
    CopyOut,
    CreateSchema,
    CreateTable,
    CreateView,
    Deallocate,
    Declare,
    Discard,
    Drop,
    Empty,
    ExecuteStatement,
    Explain,
    Fetch,
    Listen,
    Notify,
    PrepareStatement,
    QueryStatement,
    Release,
    Rename,
    Reset,
    Rollback,
    RollbackTo,
    Savepoint,
    SetVariable,
    Show,
    StatementText,
    Unlisten,
    Unsupported,
    classify,
    split,
)

CSV = CopyOptions(format="csv", delimiter=",", null="")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Name", WORD, "name"),
        ('"Na""me"', IDENTIFIER, 'Na"me'),
        ("`a``b`", IDENTIFIER, "a`b"),
        ('U&"\\0061b"', IDENTIFIER, "ab"),
        ("'it''s'", STRING, "it's"),
        ("'back\\'", STRING, "back\\"),
        ("E'a\\'b\\n\\x41\\u00e9'", STRING, "a'b\nAé"),
        ("U&'\\0041\\+01F600'", STRING, "A😀"),
        ("E'\\xC3\\xa9\\303\\251\\v'", STRING, "éé\v"),
        ("E'a'\n'b\\'c'", STRING, "ab'c"),
        ("'a' -- and\n -- so on\n 'b\\'", STRING, "ab\\"),
        ("U&'\\0041'\r\n'\\0042'", STRING, "AB"),
        ("b'01'\n'10'", STRING, "b'0110'"),
        ("E'\\ud83d\\ude00'", STRING, "😀"),
        ("U&'d!0061ta!!' UESCAPE '!'", STRING, "data!"),
        ("U&\"pg!005fsleep\" /* */ uEsCaPe\n'!'", IDENTIFIER, "pg_sleep"),
        ("pg\u00a0sleep", WORD, "pg\u00a0sleep"),
        ("$$a'b$$", STRING, "a'b"),
        ("$x$a$$b$x$", STRING, "a$$b"),
        ("1.5e-3", NUMBER, "1.5e-3"),
        (".5", NUMBER, ".5"),
        ("$12", PARAMETER, "12"),
        ("<=>", SYMBOL, "<=>"),
        ("::", SYMBOL, "::"),
        ("größe", WORD, "größe"),
        ("GRÖSSE", WORD, "grÖsse"),
        ("\u0663a", WORD, "\u0663a"),
        ("$\u0663$a'b$\u0663$", STRING, "a'b"),
    ],
)
def test_a_token(text: str, kind: str, value: str) -> None:
    (token,) = tokens(text)
    assert (token.kind, token.value, token.start, token.end) == (kind, value, 0, len(text))


def test_comments_are_no_tokens() -> None:
    found = tokens("a -- ; '\n /* /* ' */ ; */ b/**/+--\n1")
    assert [token.text for token in found] == ["a", "b", "+", "1"]


@pytest.mark.parametrize(
    ("text", "position", "what"),
    [
        ("select 'a", 7, "unterminated quoted string"),
        ("select E'a\\'", 7, "unterminated quoted string"),
        ('select "a', 7, "unterminated quoted identifier"),
        ("select `a", 7, "unterminated quoted identifier"),
        ("é /* a /* b */", 2, "unterminated /* comment"),
        ("select $a$ $b$", 7, "unterminated dollar-quoted string"),
    ],
)
def test_what_never_ends(text: str, position: int, what: str) -> None:
    with pytest.raises(SqlError, match=what.replace("*", "\\*")) as caught:
        split(text)
    assert (caught.value.sqlstate, caught.value.position) == ("42601", position)


def test_split_keeps_places() -> None:
    text = "select 'é;'; /* ; */ ;select $$;$$ ;\n-- the end;\n"
    assert split(text) == [StatementText("select 'é;'", 0), StatementText("select $$;$$ ", 22)]
    assert all(text[piece.offset :].startswith(piece.text) for piece in split(text))


@pytest.mark.parametrize("text", ["", " ", ";", ";;", "-- only this", "/* x */;"])
def test_nothing(text: str) -> None:
    (piece,) = split(text)
    assert classify(piece.text) == Empty()
    assert classify(text) == Empty()


def test_backslashes_of_spark() -> None:
    assert split("select 'it\\'s; fine'") == [StatementText("select 'it\\'s; fine'", 0)]
    assert len(split("select 'a\\'; select 1")) == 2, "PostgreSQL's rules come first"
    assert len(split("select 'a\\'; select 1'", "spark")) == 1


CASES: list[tuple[str, Command]] = [
    ("BEGIN", Begin()),
    ("begin work", Begin()),
    (
        "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY DEFERRABLE",
        Begin(
            (
                ("transaction_isolation", "repeatable read"),
                ("transaction_read_only", "on"),
                ("transaction_deferrable", "on"),
            ),
            start=True,
        ),
    ),
    ("COMMIT", Commit()),
    ("END TRANSACTION AND NO CHAIN", Commit()),
    ("commit and chain", Commit(chain=True)),
    ("ABORT", Rollback()),
    ("ROLLBACK WORK;", Rollback()),
    ("savepoint A", Savepoint("a")),
    ('RELEASE "A"', Release("A")),
    ("RELEASE SAVEPOINT a", Release("a")),
    ("ROLLBACK TRANSACTION TO SAVEPOINT a", RollbackTo("a")),
    ("SET a.b = 'x y'", SetVariable("a.b", "x y")),
    ("SET SESSION statement_timeout TO 100", SetVariable("statement_timeout", "100")),
    ("SET LOCAL x TO off", SetVariable("x", "off", local=True)),
    ("SET local = 1", SetVariable("local", "1")),
    ("SET x TO -1.5", SetVariable("x", "-1.5")),
    ("SET x TO DEFAULT", SetVariable("x", None)),
    ('SET search_path = "$user", Public, "A b"', SetVariable("search_path", '"$user", public, "A b"')),
    ("SET datestyle TO ISO, MDY", SetVariable("datestyle", "iso, mdy")),
    ("SET TIME ZONE 'Europe/Berlin'", SetVariable("timezone", "Europe/Berlin")),
    ("SET TIME ZONE LOCAL", SetVariable("timezone", None)),
    ("SET TIME ZONE -7", SetVariable("timezone", "-7")),
    ("SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE", SetVariable("timezone", "+02:00")),
    ("SET NAMES 'utf8'", SetVariable("client_encoding", "utf8")),
    ("SET SCHEMA 'X'", SetVariable("search_path", '"X"')),
    ("USE sales", SetVariable("search_path", "sales")),
    (
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
        SetVariable(
            "default_transaction_read_only", "on", more=(("default_transaction_isolation", "serializable"),)
        ),
    ),
    ("SET TRANSACTION READ WRITE", SetVariable("transaction_read_only", "off", local=True)),
    ("SET ROLE NONE", SetVariable("role", "none")),
    ("SET SESSION AUTHORIZATION DEFAULT", SetVariable("session_authorization", None)),
    ("SET spark.sql.ansi.enabled=false and more", SetVariable("spark.sql.ansi.enabled", "false and more")),
    ("SET", Show("all")),
    ("RESET ALL", Reset()),
    ("RESET TIME ZONE", Reset("timezone")),
    ("reset Foo", Reset("foo")),
    ("SHOW ALL", Show("all")),
    ("SHOW TRANSACTION ISOLATION LEVEL", Show("transaction_isolation")),
    ("show Server_Version", Show("server_version")),
    ("DECLARE c CURSOR FOR SELECT 1", Declare("c", "SELECT 1", 21)),
    (
        'DECLARE "C" BINARY INSENSITIVE NO SCROLL CURSOR WITH HOLD FOR SELECT 1',
        Declare("C", "SELECT 1", 62, scroll=False, hold=True, binary=True),
    ),
    ("DECLARE c SCROLL CURSOR WITHOUT HOLD FOR SELECT 1", Declare("c", "SELECT 1", 41, scroll=True)),
    ("FETCH c", Fetch("c")),
    ("FETCH next", Fetch("next")),
    ("FETCH NEXT FROM c", Fetch("c")),
    ("FETCH 10 IN c", Fetch("c", "forward", 10)),
    ("FETCH -10 c", Fetch("c", "backward", 10)),
    ("FETCH ALL c", Fetch("c", "forward", None)),
    ("FETCH FORWARD c", Fetch("c")),
    ("FETCH FORWARD 5 FROM c", Fetch("c", "forward", 5)),
    ("FETCH FORWARD ALL FROM c", Fetch("c", "forward", None)),
    ("FETCH BACKWARD ALL FROM c", Fetch("c", "backward", None)),
    ("FETCH BACKWARD -2 FROM c", Fetch("c", "forward", 2)),
    ("FETCH PRIOR FROM c", Fetch("c", "backward", 1)),
    ("FETCH FIRST FROM c", Fetch("c", "absolute", 1)),
    ("FETCH LAST FROM c", Fetch("c", "absolute", -1)),
    ("FETCH ABSOLUTE -3 FROM c", Fetch("c", "absolute", -3)),
    ("FETCH RELATIVE 0 FROM c", Fetch("c", "relative", 0)),
    ("MOVE 3 FROM c", Fetch("c", "forward", 3, move=True)),
    ("CLOSE c", CloseCursor("c")),
    ("CLOSE ALL", CloseCursor()),
    ("PREPARE p AS SELECT 1", PrepareStatement("p", (), "SELECT 1", 13)),
    (
        "PREPARE p (int, numeric(3, 2), text[]) AS SELECT $1",
        PrepareStatement("p", ("int", "numeric(3, 2)", "text[]"), "SELECT $1", 42),
    ),
    ("EXECUTE p", ExecuteStatement("p")),
    ("EXECUTE p ()", ExecuteStatement("p")),
    (
        "EXECUTE p(1, f(2, 3), 'a,b', ARRAY[1,2])",
        ExecuteStatement("p", ("1", "f(2, 3)", "'a,b'", "ARRAY[1,2]")),
    ),
    ("DEALLOCATE p", Deallocate("p")),
    ("DEALLOCATE PREPARE p", Deallocate("p")),
    ("DEALLOCATE ALL", Deallocate()),
    ("DISCARD temporary", Discard("TEMP")),
    ("DISCARD ALL", Discard("ALL")),
    ("LISTEN x", Listen("x")),
    ("NOTIFY x, 'y'", Notify("x", "y")),
    ("UNLISTEN *", Unlisten()),
    ("SELECT 1", QueryStatement("SELECT 1")),
    ("  /* x */ select 1 -- y\n ;", QueryStatement("select 1", 10)),
    ("VALUES (1), (2)", QueryStatement("VALUES (1), (2)")),
    ("WITH a AS (SELECT 1) SELECT * FROM a", QueryStatement("WITH a AS (SELECT 1) SELECT * FROM a")),
    ("((SELECT 1) UNION (SELECT 2))", QueryStatement("((SELECT 1) UNION (SELECT 2))")),
    ("FROM t SELECT a", QueryStatement("FROM t SELECT a")),
    ("TABLE s.t", QueryStatement("SELECT * FROM s.t", -8)),
    ("select substring(a for update) from t", QueryStatement("select substring(a for update) from t")),
    ("EXPLAIN SELECT 1", Explain("SELECT 1", 8)),
    ("EXPLAIN ANALYZE VERBOSE SELECT 1", Explain("SELECT 1", 24, analyze=True, verbose=True)),
    ("EXPLAIN (SELECT 1)", Explain("(SELECT 1)", 8)),
    (
        "EXPLAIN (ANALYZE true, VERBOSE off, COSTS, FORMAT JSON) VALUES (1)",
        Explain("VALUES (1)", 56, analyze=True, format="json"),
    ),
    ("EXPLAIN EXTENDED SELECT 1", Explain("SELECT 1", 17, verbose=True)),
    ("CREATE VIEW s.V AS SELECT 1", CreateView(("s", "v"), (), "SELECT 1", 19)),
    (
        'CREATE OR REPLACE TEMP VIEW v (a, "B") AS SELECT 1, 2',
        CreateView(("v",), ("a", "B"), "SELECT 1, 2", 42, replace=True, temporary=True),
    ),
    ("CREATE VIEW IF NOT EXISTS v AS TABLE t", CreateView(("v",), (), "TABLE t", 31, if_not_exists=True)),
    ("CREATE TABLE t USING csv LOCATION '/x'", CreateTable(("t",), "", "csv", "/x")),
    (
        """CREATE EXTERNAL TABLE IF NOT EXISTS s.t (a INT, b DECIMAL(3, 2)) LOCATION 's3a://b/x'
        PARTITIONED BY (b, `C`) USING PARQUET OPTIONS (header 'true', 'Sep' = ';', a.b 1)""",
        CreateTable(
            ("s", "t"),
            "a INT, b DECIMAL(3, 2)",
            "parquet",
            "s3a://b/x",
            {"header": "true", "sep": ";", "a.b": "1"},
            ("b", "C"),
            if_not_exists=True,
        ),
    ),
    ("CREATE SCHEMA IF NOT EXISTS s", CreateSchema("s", if_not_exists=True)),
    ("DROP VIEW v", Drop("view", (("v",),))),
    ("ALTER VIEW s.v RENAME TO w", Rename("view", ("s", "v"), "w")),
    (
        'alter table if exists d."s"."T" rename to "U"',
        Rename("table", ("d", "s", "T"), "U", if_exists=True),
    ),
    (
        "DROP TABLE IF EXISTS a, s.b CASCADE",
        Drop("table", (("a",), ("s", "b")), if_exists=True, cascade=True),
    ),
    ("DROP DATABASE s RESTRICT", Drop("schema", (("s",),))),
    ("COPY (SELECT 1) TO STDOUT", CopyOut("SELECT 1", 6)),
    ("COPY t TO STDOUT", CopyOut("SELECT * FROM t", 5 - 14)),
    ('COPY s."T" (a, b) TO STDOUT', CopyOut('SELECT a, b FROM s."T"', 5 - 17)),
    ("COPY t TO STDOUT (FORMAT csv)", CopyOut("SELECT * FROM t", -9, CSV)),
    (
        "COPY t TO STDOUT WITH (FORMAT csv, HEADER true, DELIMITER '|', QUOTE '''', FORCE_QUOTE (a, b))",
        CopyOut(
            "SELECT * FROM t",
            -9,
            CopyOptions("csv", "|", "", header=True, quote="'", escape="'", force_quote=("a", "b")),
        ),
    ),
    ("COPY t TO STDOUT BINARY", CopyOut("SELECT * FROM t", -9, CopyOptions("binary"))),
    ("COPY BINARY t TO STDOUT", CopyOut("SELECT * FROM t", -5 + 3, CopyOptions("binary"))),
    (
        "COPY t TO STDOUT WITH DELIMITER AS ';' NULL AS 'x' CSV HEADER FORCE QUOTE *",
        CopyOut("SELECT * FROM t", -9, CopyOptions("csv", ";", "x", header=True, force_quote=("*",))),
    ),
    ("COPY s.t FROM STDIN", CopyIn(("s", "t"))),
]


@pytest.mark.parametrize(("text", "command"), CASES, ids=[text for text, _ in CASES])
def test_what_it_asks_for(text: str, command: Command) -> None:
    assert classify(text) == command


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("START TRANSACTION", "START TRANSACTION"),
        ("ROLLBACK TO a", "ROLLBACK"),
        ("MOVE ALL c", "MOVE"),
        ("CLOSE c", "CLOSE CURSOR"),
        ("CLOSE ALL", "CLOSE CURSOR ALL"),
        ("DISCARD PLANS", "DISCARD PLANS"),
        ("DROP SCHEMA x", "DROP SCHEMA"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
    ],
)
def test_tags(text: str, tag: str) -> None:
    assert classify(text).tag == tag


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("INSERT INTO t VALUES (1)", "INSERT"),
        ("WITH a AS (SELECT 1) DELETE FROM t", "DELETE"),
        ("UPDATE t SET a = 1", "UPDATE"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE", "MERGE"),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE"),
        ("CREATE UNIQUE INDEX i ON t (a)", "CREATE INDEX"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE MATERIALIZED VIEW"),
        ("CREATE TABLE t (a int)", "CREATE TABLE"),
        ("CREATE TABLE t AS SELECT 1", "CREATE TABLE AS"),
        ("CREATE TABLE t USING parquet LOCATION '/x' AS SELECT 1", "CREATE TABLE AS"),
        ("CREATE TEMP TABLE t (a int)", "CREATE TABLE"),
        ("CREATE FUNCTION f() RETURNS int AS $$ select 1; $$", "CREATE FUNCTION"),
        ("CREATE OR REPLACE TEMPORARY FUNCTION f AS 'a.B' USING JAR '/x.jar'", "CREATE FUNCTION"),
        ("CREATE EXTENSION dblink", "CREATE EXTENSION"),
        ("CREATE USER x", "CREATE USER"),
        ("ALTER TABLE t ADD a int", "ALTER TABLE"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE"),
        ("ALTER VIEW v OWNER TO ann", "ALTER VIEW"),
        ("ALTER SCHEMA s RENAME TO r", "ALTER SCHEMA"),
        ("DROP INDEX i", "DROP INDEX"),
        ("SELECT 1 INTO t", "SELECT INTO"),
        ("SELECT * FROM t FOR NO KEY UPDATE", "SELECT"),
        ("SELECT * FROM t FOR SHARE", "SELECT"),
        ("ADD JAR '/x.jar'", "ADD JAR"),
        ("CACHE TABLE t", "CACHE TABLE"),
        ("LOAD DATA INPATH '/x' INTO TABLE t", "LOAD DATA"),
        ("LOAD 'x.so'", "LOAD"),
        ("REFRESH TABLE t", "REFRESH TABLE"),
        ("EXECUTE IMMEDIATE 'select 1'", "EXECUTE"),
        ("DECLARE VARIABLE x INT", "DECLARE"),
        ("DO $$ begin end $$", "DO"),
        ("CALL f()", "CALL"),
        ("GRANT ALL ON t TO x", "GRANT"),
        ("SET ROLE admin", "SET"),
        ("SET LOCAL SESSION AUTHORIZATION admin", "SET"),
        ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("EXPLAIN INSERT INTO t VALUES (1)", "EXPLAIN"),
        ("SHOW CREATE TABLE t", "SHOW"),
    ],
)
def test_understood_and_refused(text: str, tag: str) -> None:
    command = classify(text)
    assert isinstance(command, Unsupported)
    assert command.tag == tag
    assert command.error().sqlstate == "0A000"


@pytest.mark.parametrize(
    "text", ["COPY t TO '/etc/x'", "COPY t FROM PROGRAM 'id'", "COPY (SELECT 1) TO PROGRAM 'sh'"]
)
def test_copy_touches_no_file(text: str) -> None:
    command = classify(text)
    assert isinstance(command, Unsupported)
    assert command.sqlstate == "42501"


@pytest.mark.parametrize(
    ("text", "sqlstate", "position"),
    [
        ("selec 1", "42601", 0),
        ("BEGIN SELECT 1", "42601", 6),
        ("SET x", "42601", 5),
        ("SET x TO a b", "42601", 11),
        ("FETCH FROM", "42601", 10),
        ("EXPLAIN (NONSENSE) SELECT 1", "42601", 9),
        ("EXPLAIN (FORMAT pdf) SELECT 1", "22023", None),
        ("COPY t TO STDOUT (FORMAT xml)", "22023", None),
        ("COPY t TO STDOUT (QUOTE 'x')", "0A000", None),
        ("COPY t TO STDOUT (FORMAT binary, HEADER)", "42601", None),
        ("COPY t TO STDOUT (DELIMITER 'xx')", "0A000", None),
        ("COPY t TO STDOUT (FREEZE)", "0A000", 18),
        ("CREATE TABLE t USING csv LOCATION x", "42601", 34),
        ("SELECT 1; SELECT 2", "42601", None),
        ("1", "42601", 0),
    ],
)
def test_what_cannot_be_read(text: str, sqlstate: str, position: int | None) -> None:
    with pytest.raises(SqlError) as caught:
        classify(text)
    assert (caught.value.sqlstate, caught.value.position) == (sqlstate, position)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("SHOW TABLES", ["information_schema.tables", "current_schema()"]),
        ("SHOW TABLES IN s LIKE 'a*|b'", ["table_schema = 's'", "'^a.*$|^b$'"]),
        ("SHOW VIEWS FROM s", ["'VIEW'"]),
        ("SHOW DATABASES", ["information_schema.schemata"]),
        ("SHOW COLUMNS IN t IN s", ["table_name = 't'", "table_schema = 's'"]),
        ("DESCRIBE TABLE EXTENDED s.t", ["information_schema.columns", "table_name = 't'"]),
        ("desc `it's`", ["'it''s'"]),
    ],
)
def test_words_of_spark_become_catalog_queries(text: str, parts: list[str]) -> None:
    command = classify(text)
    assert isinstance(command, QueryStatement)
    assert all(part in command.text for part in parts)


def test_texts_are_read_up_to_a_length() -> None:
    many = "SELECT " + "1," * (LONGEST // 2) + "1"
    for read in (split, classify):
        with pytest.raises(SqlError, match="characters") as caught:
            read(many)
        assert caught.value.sqlstate == "54000"
    long = "SELECT " + "1," * REMEMBERED + "1"
    assert isinstance(classify(long), QueryStatement)


@pytest.mark.parametrize(
    ("text", "plainest"),
    [
        ("SELECT E'a\\'b', 1", "SELECT 'a''b' , 1"),
        ("SELECT 'a'\n'b' x", "SELECT 'ab'    x"),
        ("SELECT U&\"d!0061\" UESCAPE '!'", 'SELECT "da"                  '),
        ("SELECT $$it's$$", "SELECT 'it''s'"),
        ("SELECT 'a' 'b'", "SELECT 'a' 'b'"),
        ("SELECT x'1f', b'01'", "SELECT x'1f', b'01'"),
        ("SELECT größe", "SELECT größe"),
        ("SELECT GRÖSSE", 'SELECT "grÖsse"'),
        ("SELECT fal\u017fe", 'SELECT "fal\u017fe"'),
        ("SELECT a\u00a0b, \u0663", 'SELECT "a\u00a0b", "\u0663"'),
    ],
)
def test_literals_in_their_plainest_form(text: str, plainest: str) -> None:
    assert plain(text).rstrip() == plainest.rstrip()


@pytest.mark.parametrize(
    ("literal", "sqlstate"),
    [
        ("E'\\0'", "22021"),
        ("E'\\xC3'", "22021"),
        ("E'\\777'", "22021"),
        ("E'\\u12'", "22025"),
        ("E'\\ud83d'", "42601"),
        ("E'\\ud83d-\\ude00'", "42601"),
        ("E'\\ude00'", "42601"),
        ("E'\\U00110000'", "42601"),
        ("E'\\u0000'", "42601"),
    ],
)
def test_what_an_escape_cannot_be(literal: str, sqlstate: str) -> None:
    with pytest.raises(SqlError) as caught:
        tokens(f"SELECT {literal}")
    assert (caught.value.sqlstate, caught.value.position) == (sqlstate, 7)


def test_an_escape_that_is_none_is_refused() -> None:
    with pytest.raises(SqlError, match="invalid Unicode escape"):
        plain("SELECT U&'\\0000'")
    with pytest.raises(SqlError, match="invalid Unicode escape"):
        plain("SELECT U&'\\zz'")
    with pytest.raises(SqlError, match="invalid Unicode escape character"):
        plain("SELECT U&'a' UESCAPE '1'")


@pytest.mark.parametrize("between", [" " * 5000, "\n" * 5000, " -- so\n" * 5000, "\n \t" * 5000])
def test_what_follows_a_string_is_read_once(between: str) -> None:
    assert [token.value for token in tokens(f"'a'\n{between}x")] == ["a", "x"]
    assert [token.value for token in tokens(f"'a'\n{between}'b'")] == ["ab"]
