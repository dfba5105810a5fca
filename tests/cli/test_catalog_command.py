"""``penstock catalog``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import exits
from penstock.cli.app import penstock
from penstock.control.catalog import Catalog
from penstock.store import open_store
from tests.cli.program import Cli


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A catalog of a table and two views, at version 3."""
    for arguments in (
        ("table", "orders", "--sql", "CREATE TABLE orders (id INT);"),
        (
            "view",
            "shop.daily",
            "--sql",
            "CREATE VIEW daily AS SELECT * FROM orders -- all",
            "--needs",
            "orders",
        ),
        ("view", "top", "--sql", "CREATE VIEW top", "--needs", "shop.daily", "--needs", "orders"),
    ):
        result = cli("catalog", "add", *arguments)
        assert result.exit_code == exits.COMPLETE, result.output
    return cli


def test_looking_at_nothing_makes_no_store(cli: Cli) -> None:
    for command in (["show"], ["show", "--sql"], ["history"]):
        result = cli("catalog", *command)
        assert result.exit_code == exits.COMPLETE
        assert "the catalog in sqlite:///" in result.stderr
    assert cli.json("catalog", "show") == {"version": 0, "statements": []}
    assert cli("catalog", "show", "orders").exit_code == exits.USAGE
    assert cli("catalog", "drop", "orders").exit_code == exits.USAGE
    assert not (cli.folder / ".penstock").exists()


def test_show_lists_in_order(shop: Cli) -> None:
    shown = shop.json("catalog", "show")
    assert shown["version"] == 3
    assert [(s["name"], s["kind"], s["needs"]) for s in shown["statements"]] == [
        ("orders", "table", []),
        ("shop.daily", "view", ["orders"]),
        ("top", "view", ["shop.daily", "orders"]),
    ]
    text = shop("catalog", "show").stdout
    assert text.startswith("version 3, 3 statements\n")
    assert "shop.daily, orders" in text
    assert "CREATE" not in text


def test_show_sql_can_be_replayed(shop: Cli) -> None:
    assert shop("catalog", "show", "--sql").stdout == (
        "CREATE TABLE orders (id INT);\n\n"
        "CREATE VIEW daily AS SELECT * FROM orders -- all\n;\n\n"
        "CREATE VIEW top;\n"
    )
    shown = shop.json("catalog", "show", "--sql")
    assert shown["version"] == 3
    assert [s["sql"] for s in shown["statements"]][2] == "CREATE VIEW top"


def test_show_one(shop: Cli) -> None:
    assert shop.json("catalog", "show", "top")["sql"] == "CREATE VIEW top"
    text = shop("catalog", "show", "shop.daily").stdout
    assert "needs    orders\n" in text
    assert "sql      CREATE VIEW daily" in text
    assert shop("catalog", "show", "top", "--sql").stdout == "CREATE VIEW top;\n"
    missing = shop("catalog", "show", "nope")
    assert missing.exit_code == exits.USAGE
    assert "penstock catalog show" in missing.stderr


def test_the_statement_comes_from_a_file_or_from_stdin(cli: Cli) -> None:
    (cli.folder / "größe.sql").write_text("CREATE VIEW größe;\n", encoding="utf-8")
    assert cli("catalog", "add", "view", "a", "--file", "größe.sql").exit_code == exits.COMPLETE
    result = CliRunner().invoke(penstock, ["catalog", "add", "view", "b", "-"], input="CREATE VIEW b;")
    assert result.exit_code == exits.COMPLETE, result.output
    assert [s["sql"] for s in cli.json("catalog", "show", "--sql")["statements"]] == [
        "CREATE VIEW größe",
        "CREATE VIEW b",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["view", "x"], "must be given once"),
        (["view", "x", "-", "--sql", "SELECT 1"], "must be given once"),
        (["view", "x", "SELECT 1"], "is not '-'"),
        (["index", "x", "--sql", "SELECT 1"], "'index' is not one of"),
        (["view", "x", "--sql", ""], "empty"),
        (["view", "x", "--sql", "SELECT 1; SELECT 2"], "more than one statement"),
        (["view", "x/y", "--sql", "SELECT 1"], "cannot be a name"),
        (["view", "x", "--file", "nope.sql"], "nope.sql"),
        (["view", "x", "--file", "latin.sql"], "UTF-8"),
        (["view", "x", "--file", "huge.sql"], "131,072 at most"),
        (["view", "x", "--sql", "SELECT 1", "--needs", "order"], "did you mean orders?"),
        (["view", "x", "--sql", "SELECT 1", "--expect", "-1"], "--expect"),
        (["view", "orders", "--sql", "SELECT 1"], "add it with --replace"),
        (["view", "orders", "--sql", "SELECT 1", "--replace"], "penstock catalog drop orders"),
    ],
)
def test_what_cannot_be_added(shop: Cli, arguments: list[str], told: str) -> None:
    (shop.folder / "latin.sql").write_bytes("SELECT 'größe'".encode("latin-1"))
    (shop.folder / "huge.sql").write_text("x" * 1_000_000)
    result = shop("catalog", "add", *arguments)
    assert result.exit_code == exits.USAGE
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert shop.json("catalog", "show")["version"] == 3


def test_replace_and_drop(shop: Cli) -> None:
    made = shop.json("catalog", "add", "view", "top", "--sql", "SELECT 2", "--replace")
    assert (made["version"], made["change"]) == (4, "replace view top")
    refused = shop("catalog", "drop", "orders")
    assert refused.exit_code == exits.USAGE
    assert "needed by shop.daily" in refused.stderr
    assert "--cascade" in refused.stderr
    assert shop("catalog", "drop", "orders", "--cascade").stdout == (
        "version 5: drop table orders and shop.daily\n"
    )
    assert [s["name"] for s in shop.json("catalog", "show")["statements"]] == ["top"]


def test_an_expected_version(shop: Cli) -> None:
    assert shop("catalog", "drop", "top", "--expect", "3").exit_code == exits.COMPLETE
    result = shop("catalog", "add", "view", "x", "--sql", "SELECT 1", "--expect", "3", "--json")
    assert result.exit_code == exits.FAILED
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "catalog-conflict"
    assert "version 4: drop view top, by " in error["what"]
    assert "--expect 4" in error["next"]


def test_history(shop: Cli) -> None:
    shop("catalog", "drop", "top")
    changes = shop.json("catalog", "history")
    assert [(c["version"], c["change"]) for c in changes] == [
        (1, "create table orders"),
        (2, "create view shop.daily"),
        (3, "create view top"),
        (4, "drop view top"),
    ]
    assert "@" in changes[0]["by"]
    assert changes[0]["when"].endswith("Z")
    assert "drop view top" in shop("catalog", "history").stdout


def test_a_broken_head_is_told_without_a_traceback(shop: Cli) -> None:
    with open_store(f"sqlite:///{shop.folder}/.penstock/store.db") as store:
        document = store.get("catalog/head")
        assert document is not None
        store.cas(document.key, document.version, b"garbage")
    for command in (["show"], ["history"], ["drop", "top"], ["add", "view", "x", "--sql", "SELECT 1"]):
        result = shop("catalog", *command)
        assert result.exit_code == exits.FAILED
        assert result.stderr.startswith("error[corrupt-file]: the head of the catalog")
        assert "\nnext: " in result.stderr


def test_commands_of_several_processes_lose_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    command = [sys.executable, "-m", "penstock", "catalog", "add", "view"]
    workers = [
        subprocess.Popen(
            [*command, f"n{n}", "--sql", f"SELECT {n}", "--store", url],
            stdout=subprocess.DEVNULL,
            cwd=tmp_path,
        )
        for n in range(5)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 5
    with open_store(url) as store:
        assert {s.name for s in Catalog(store).read().statements} == {f"n{n}" for n in range(5)}
