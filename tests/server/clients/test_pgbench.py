"""pgbench in its three modes, and pgcli."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.clients.conftest import Gateway, program


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(gateway: Gateway, tmp_path: Path, mode: str) -> None:
    (tmp_path / "one.sql").write_text("\\set n random(1, 100)\nSELECT :n + 1;\n")
    sql = "SELECT n_name FROM nation WHERE n_nationkey = :n;"
    (tmp_path / "table.sql").write_text(f"\\set n random(0, 24)\n{sql}\n")
    bench = [program("pgbench", "postgresql"), "-n", "-M", mode, "-c", "2", "-j", "2"]
    for script, count in (("one.sql", "50"), ("table.sql", "3")):
        done = subprocess.run(
            [*bench, "-t", count, "-f", tmp_path / script],
            env=gateway.environ(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert f"number of transactions actually processed: {int(count) * 2}/{int(count) * 2}" in done.stdout
        assert "number of failed transactions: 0" in done.stdout


def test_pgcli(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "pgclirc").write_text("[main]\nless_chatty = True\nenable_pager = False\n")
    script = "SELECT n_name FROM nation WHERE n_nationkey = 3;\n\\d nation\n\\dt\n\\dv desk.*\n\\l\n\\q\n"
    done = subprocess.run(
        [Path(sys.executable).with_name("pgcli"), "--pgclirc", tmp_path / "pgclirc", gateway.url()],
        input=script,
        env={**gateway.environ(), "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for told in ("CANADA", "n_regionkey", "lineitem", "europe", "penstock"):
        assert told in done.stdout
    assert "Traceback" not in done.stdout + done.stderr and "does not exist" not in done.stdout + done.stderr


def test_completion(gateway: Gateway) -> None:
    """What pgcli asks in the background, so that it can complete names."""
    from pgcli.pgexecute import PGExecute

    host, port = "127.0.0.1", str(gateway.serve.ports["sql"])
    executor = PGExecute("penstock", "ann", gateway.environ()["PGPASSWORD"], host, port, dsn="")
    assert "desk" in executor.schemata()
    assert ("public", "nation") in set(executor.tables())
    assert ("desk", "europe") in set(executor.views())
    columns = {(each[1], each[2], each[3]) for each in executor.table_columns()}
    assert ("kinds", "money", "numeric") in columns
    for ask in (executor.view_columns, executor.foreignkeys, executor.functions, executor.datatypes):
        assert list(ask()) is not None
    assert executor.databases() == ["penstock"] and executor.search_path()
    executor.conn.close()
