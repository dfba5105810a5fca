"""What SQL must not reach, tried with psql by users with and without rights. Fails if it becomes possible."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import errors

from tests.server.clients.conftest import ENDLESS, PASSWORDS, Gateway
from tests.server.serve import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECRET = "the-secret-of-this-machine"


@pytest.fixture(scope="module")
def outside(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that no table names, and a link to it from inside of the project."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.csv").write_text(f"word\n{SECRET}\n")
    link = gateway.folder / "data" / "link.csv"
    link.symlink_to(folder / "secret.csv")
    (gateway.folder / "data" / "linked").symlink_to(folder)
    yield folder / "secret.csv"
    link.unlink()
    (gateway.folder / "data" / "linked").unlink()


def _possible(
    gateway: Gateway, statements: Sequence[str], *, user: str = "ann", dialect: str = "auto"
) -> list[str]:
    """Those that were not refused, in one psql."""
    lines = [f"SET penstock.sql = '{dialect}';", "SET search_path = public, secret;"]
    for number, sql in enumerate(statements):
        lines += [f"{sql};", f"\\echo === {number} :ERROR"]
    done = gateway.psql("-At", user=user, script="\n".join(lines) + "\n")
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "TypeError" not in done.stderr
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("===")]
    assert len(told) == len(statements), done.stderr
    return [statements[int(number)] for _, number, failed in told if failed != "true"]


CODE = [
    "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.dir')",
    "SELECT `reflect`('java.lang.System', 'getProperty', 'user.dir') FROM nation",
    "SELECT try_reflect('java.lang.System', 'getProperty', 'user.dir')",
    "SELECT TRANSFORM (n_name) USING 'cat' AS (x STRING) FROM nation",
    "FROM nation SELECT TRANSFORM (n_name) USING 'cat' AS (x)",
    "CREATE FUNCTION f AS 'java.lang.System'",
    "CREATE TEMPORARY FUNCTION f() RETURNS INT LANGUAGE PYTHON AS $$ return 1 $$",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "DO $$ BEGIN PERFORM 1; END $$",
    "ADD JAR '/tmp/x.jar'",
    "ADD FILE '/etc/passwd'",
    "LIST JARS",
    "SELECT * FROM python_worker_logs()",
    "CALL system.x()",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "CREATE EXTENSION plpython3u",
    "LOAD 'x'",
    "DECLARE OR REPLACE VARIABLE v INT",
]


@pytest.mark.parametrize("dialect", ["auto", "spark"])
def test_no_code_runs(gateway: Gateway, dialect: str) -> None:
    assert not _possible(gateway, CODE, dialect=dialect)


FILES = [
    "SELECT * FROM csv.`{path}`",
    "SELECT * FROM text.`{path}`",
    "SELECT * FROM binaryFile.`{path}`",
    "SELECT * FROM csv.`file://{path}`",
    "SELECT * FROM `{path}`",
    'SELECT * FROM csv."{path}"',
    "SELECT * FROM read_files('{path}')",
    "SELECT pg_read_file('{path}')",
    "SELECT pg_read_binary_file('{path}')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_stat_file('{path}')",
    "SELECT lo_import('{path}')",
    "COPY nation TO '/tmp/penstock-must-not-be-there'",
    "COPY (SELECT 1) TO '/tmp/penstock-must-not-be-there'",
    "COPY (SELECT 1) TO PROGRAM 'cat > /tmp/penstock-must-not-be-there'",
    "COPY nation FROM '{path}'",
    "COPY nation FROM PROGRAM 'cat {path}'",
    "SELECT input_file_name() FROM nation",
    "SELECT _metadata.file_path FROM nation",
    "SELECT nation._metadata FROM nation",
    "INSERT OVERWRITE DIRECTORY '/tmp/penstock-must-not-be-there' USING csv SELECT 1",
    "CREATE TABLE desk.t AS SELECT 1",
    "CREATE TABLE desk.t USING csv LOCATION '{path}'",
    "CREATE TABLE desk.t USING csv LOCATION 'file://{path}'",
    "CREATE TABLE desk.t USING csv LOCATION 'data/../../{parent}/secret.csv'",
    "CREATE TABLE desk.t USING csv LOCATION 'data/link.csv'",
    "CREATE TABLE desk.t USING csv LOCATION 'data/linked/secret.csv'",
    "CREATE TABLE desk.t USING csv LOCATION 'data/linked/*'",
    "CREATE TABLE desk.t USING csv LOCATION '/etc'",
    "CREATE TABLE desk.t USING csv LOCATION '/etc/passwd'",
    "CREATE TABLE desk.t USING text LOCATION 'penstock.toml'",
    "CREATE TABLE desk.t USING csv OPTIONS (path '{path}') LOCATION 'data/rates.csv'",
    "CREATE TABLE desk.t USING jdbc OPTIONS (url 'jdbc:postgresql://127.0.0.1/') LOCATION 'data'",
    "CREATE VIEW desk.t AS SELECT * FROM csv.`{path}`",
]


@pytest.mark.parametrize("user", ["ann", "bob"])
@pytest.mark.parametrize("dialect", ["auto", "spark"])
def test_no_file_is_reached(gateway: Gateway, outside: Path, dialect: str, user: str) -> None:
    tried = [each.format(path=outside, parent=outside.parent.name) for each in FILES]
    assert not _possible(gateway, tried, user=user, dialect=dialect)
    assert not Path("/tmp/penstock-must-not-be-there").exists()


SETTINGS = [
    "SET spark.sql.runSQLOnFiles = true",
    "SET spark.sql.variable.substitute = true",
    "SET spark.hadoop.fs.s3a.access.key = 'x'",
    "SET SESSION spark.sql.ansi.enabled TO false",
    "SELECT set_config('spark.sql.ansi.enabled', 'false', false)",
    "SET role = 'penstock_system'",
    "SELECT set_config('role', 'penstock_system', false)",
    "SET session_authorization = 'penstock_system'",
    "SHOW spark.sql.warehouse.dir",
    "ALTER SYSTEM SET fsync = off",
    "SET -v",
]


def test_no_setting_of_spark_is_reached(gateway: Gateway) -> None:
    assert not _possible(gateway, SETTINGS)
    assert not _possible(gateway, SETTINGS, dialect="spark")


def test_nothing_is_put_into_texts(gateway: Gateway) -> None:
    home = os.environ.get("HOME", "/root")
    for name in ("env:HOME", "system:user.home", "spark.app.name", "hivevar:x"):
        text = f"${{{name}}}"
        done = gateway.psql("-At", script=f"SELECT '{text}' || n_name FROM nation WHERE n_nationkey = 3;\n")
        assert done.stdout.strip() == text + "CANADA" or "ERROR" in done.stderr
        assert home not in done.stdout
        with psycopg.connect(gateway.url(), autocommit=True) as connection:
            sql = "SELECT %s || n_name FROM nation WHERE n_nationkey = 3"
            row = connection.execute(sql, (text,)).fetchone()
            assert row == (text + "CANADA",)


CLOSED = [
    "SELECT * FROM secret.plans",
    "SELECT plan FROM secret.plans AS p, region",
    "WITH x AS (SELECT * FROM secret.plans) SELECT * FROM x",
    "SELECT (SELECT max(plan) FROM secret.plans) FROM region",
    "SELECT * FROM `secret`.`plans`",
    "CREATE VIEW public.stolen AS SELECT * FROM secret.plans",
    "COPY secret.plans TO STDOUT",
    "EXPLAIN SELECT * FROM secret.plans",
    "CREATE VIEW secret.mine AS SELECT 1 AS one",
    "DROP VIEW secret.plans",
    "DROP SCHEMA secret CASCADE",
    # The setting was made before.
    "SELECT * FROM plans",
]


@pytest.mark.parametrize("user", ["bob", "eve"])
def test_a_closed_schema_is_closed(gateway: Gateway, user: str) -> None:
    assert not _possible(gateway, CLOSED, user=user)
    assert not _possible(gateway, CLOSED, user=user, dialect="spark")
    assert gateway.asked("SELECT count(*) FROM secret.plans") == "5"


def test_who_only_reads_changes_nothing(gateway: Gateway) -> None:
    tried = ["CREATE VIEW public.v AS SELECT 1 AS one", "CREATE SCHEMA own", "DROP TABLE nation"]
    assert not _possible(gateway, tried, user="eve")
    assert gateway.asked("SELECT count(*) FROM nation", user="eve") == "25"


def test_a_view_of_the_owner_can_be_lent(gateway: Gateway) -> None:
    """Whoever may read a schema reads its views, and they show what their maker saw."""
    assert gateway.asked("SELECT count(*) FROM desk.europe", user="bob") == "5"


def test_a_wrong_password(gateway: Gateway) -> None:
    for user, password in (("ann", "wrong"), ("ann", ""), ("nobody", "x"), ("penstock", "x")):
        with pytest.raises(psycopg.OperationalError, match=r"authentication failed|no password"):
            psycopg.connect(gateway.url(), user=user, password=password)


def test_the_query_of_another_is_not_cancelled_nor_seen(gateway: Gateway) -> None:
    with (
        psycopg.connect(gateway.url("bob"), autocommit=True) as bob,
        psycopg.connect(gateway.url("eve"), autocommit=True) as eve,
        psycopg.connect(gateway.url("ann"), autocommit=True) as ann,
    ):
        ended: list[str] = []
        bob.execute("SET statement_timeout = '60s'")

        def run() -> None:
            try:
                bob.execute(ENDLESS)
            except psycopg.Error as error:
                ended.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        asked = "SELECT count(*) FROM sys.queries WHERE state = 'RUNNING' AND \"user\" = 'bob'"
        wait_until(lambda: ann.execute(asked).fetchone() == (1,), seconds=30)
        assert eve.execute("SELECT count(*) FROM sys.queries WHERE \"user\" <> 'eve'").fetchone() == (0,)
        for sql in ("SELECT pg_cancel_backend({})", "SELECT pg_terminate_backend({})"):
            with pytest.raises(errors.InsufficientPrivilege):
                eve.execute(sql.format(bob.info.backend_pid))
        assert not ended and thread.is_alive()
        bob.cancel_safe()
        thread.join(30)
        assert ended and "user request" in ended[0]


def test_passwords_are_nowhere_to_be_read(gateway: Gateway) -> None:
    for sql in ("SELECT rolpassword FROM pg_authid", "SELECT passwd FROM pg_shadow"):
        done = gateway.psql("-At", script=sql)
        assert "ERROR" in done.stderr or not done.stdout.strip().replace("********", ""), sql
    logs = "".join(path.read_text() for path in gateway.folder.glob("serve-*.log"))
    assert not any(password in logs for password in PASSWORDS.values())
