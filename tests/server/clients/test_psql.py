"""psql: what people type all day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.server.clients.conftest import Gateway

META = r"""
\d
\d+
\d nation
\d+ nation
\d kinds
\d+ desk.europe
\dS+ pg_class
\d sys.queries
\da
\dA
\dAc
\dAf
\dAo
\dAp
\db
\dc
\dC
\dconfig
\dd
\dD
\ddp
\dE
\des
\det
\deu
\dew
\df
\df+ public.*
\dF
\dFd
\dFp
\dFt
\dg
\di
\dl
\dL
\dm
\dn
\dn+
\do
\dO
\dp
\dP
\drds
\dRp
\dRs
\ds
\dS
\dt
\dt+ *.*
\dT
\dT+
\du
\dv
\dv *.*
\dx
\dX
\dy
\l
\l+
\z
\sf pg_typeof
\sv desk.europe
\encoding
\conninfo
\timing on
\lo_list
"""


def test_every_command_about_the_catalog(gateway: Gateway) -> None:
    done = gateway.psql("-a", script=META)
    assert done.returncode == 0
    assert not [line for line in done.stderr.splitlines() if "Did not find any" not in line]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (r"\dt", "public|nation|table"),
        (r"\dv sys.*", "sys|queries|view"),
        (r"\dv desk.*", "desk|europe|view"),
        (r"\d kinds", "money|numeric(12,2)"),
        (r"\d kinds", "numbers|integer[]"),
        (r"\d kinds", "instant|timestamp with time zone"),
        (r"\d kinds", "pair|json"),
        (r"\dn", "secret|"),
        (r"\sv desk.europe", "SELECT n_name FROM nation WHERE n_regionkey = 3"),
        (r"\pset tuples_only off \\ \d+ desk.europe", "View definition:\nSELECT n_name FROM nation WHERE"),
        (r"\du", "ann|"),
        (r"\l", "penstock|"),
        (r"\conninfo", 'database "penstock" as user "ann"'),
        ("select n_name, n_nationkey, 1.5 from nation \\gdesc", "n_nationkey|bigint"),
    ],
)
def test_what_is_told(gateway: Gateway, command: str, told: str) -> None:
    assert told in gateway.asked(command)


SCRIPT = r"""
\set who 'UNITED KINGDOM'
SELECT n_nationkey FROM nation WHERE n_name = :'who';
\set FETCH_COUNT 7
SELECT n_name FROM nation ORDER BY n_name DESC;
\unset FETCH_COUNT
SELECT r_name AS first FROM region ORDER BY 1 LIMIT 1 \gset
\echo :first
SELECT 'SELECT ' || r_regionkey || ' + 100' FROM region WHERE r_regionkey < 2 ORDER BY 1 \gexec
\copy (SELECT n_nationkey, n_name FROM nation WHERE n_nationkey < 2 ORDER BY 1) TO 'copied.csv' CSV HEADER
COPY (SELECT words, raw, numbers FROM kinds ORDER BY id) TO STDOUT;
BEGIN;
DECLARE c CURSOR FOR SELECT r_name FROM region ORDER BY 1;
FETCH 2 FROM c;
MOVE 1 IN c;
FETCH ALL IN c;
CLOSE c;
COMMIT;
PREPARE p AS SELECT n_name FROM nation WHERE n_nationkey = $1;
EXECUTE p(3);
\if true
SELECT 'a' || 'b';
\endif
SET TIME ZONE 'Europe/Berlin';
SELECT instant FROM kinds WHERE id = 1;
SHOW timezone;
"""


def test_a_session(gateway: Gateway) -> None:
    lines = gateway.asked(SCRIPT).splitlines()
    assert lines[0] == "23"
    assert lines[1] == "VIETNAM" and lines[25] == "ALGERIA"
    assert lines[26:30] == ["AFRICA", "100", "101", "COPY 2"]
    assert (gateway.folder / "copied.csv").read_text() == "n_nationkey,n_name\n0,ALGERIA\n1,ARGENTINA\n"
    assert lines[30:33] == [
        'it\'s "ünï" \\\\ tab\\t\t\\\\x00ff5c\t{1,NULL,3}',
        "\t\\\\x\t{}",
        "\\N\t\\N\t\\N",
    ]
    assert lines[33:] == [
        *("BEGIN", "DECLARE CURSOR", "AFRICA", "AMERICA", "MOVE 1", "EUROPE", "MIDDLE EAST"),
        *("CLOSE CURSOR", "COMMIT", "PREPARE", "CANADA", "ab", "SET", "2024-02-29 13:34:56.789012+01"),
        "Europe/Berlin",
    ]


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT nope FROM nation", 'ERROR:  42703: column "nope" does not exist\nLINE 1: SELECT nope FROM'),
        ("SELECT * FROM nope", 'ERROR:  42P01: relation "nope" does not exist\nLINE 1: SELECT * FROM nope'),
        ("SELEC 1", 'ERROR:  42601: syntax error at or near "SELEC"\nLINE 1: SELEC 1\n        ^'),
        ("SELECT n_nationkey / 0 FROM nation", "ERROR:  22012: division by zero"),
        ("SELECT CAST(n_name AS int) FROM nation", "ERROR:  22P02: "),
        ("INSERT INTO nation VALUES (1)", "ERROR:  0A000: INSERT is not supported"),
        ("DROP VIEW desk.nothing", "ERROR:  42P01: "),
    ],
)
def test_errors(gateway: Gateway, sql: str, told: str) -> None:
    done = gateway.psql("-v", "VERBOSITY=verbose", script=sql)
    assert told in done.stderr
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


def test_explain(gateway: Gateway) -> None:
    assert "Scan parquet" in gateway.asked("EXPLAIN SELECT count(*) FROM nation")
    assert "Execution Time" in gateway.asked("EXPLAIN ANALYZE SELECT count(*) FROM nation")
