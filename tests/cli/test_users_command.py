"""``penstock users``."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner, Result

from penstock.cli import exits
from penstock.cli.app import penstock
from penstock.cli.commands import users
from penstock.server.access import Access, Users
from penstock.store import open_store
from tests.cli.program import Cli


def typed(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, list(arguments), prog_name="penstock", input=text)


def access(cli: Cli) -> Access:
    return Access(Users(open_store(f"sqlite:///{cli.folder}/.penstock/store.db")))


def test_nobody_is_listed_without_making_a_store(cli: Cli) -> None:
    assert cli.json("users", "list") == []
    assert "no users in sqlite:///" in cli("users", "list").stderr
    assert cli("users", "drop", "anna").exit_code == exits.USAGE
    assert not (cli.folder / ".penstock").exists()


def test_a_user_from_beginning_to_end(cli: Cli) -> None:
    done = typed("one two\n", "users", "add", "anna", "--write", "--schema", "shop", "--password-stdin")
    assert done.exit_code == exits.COMPLETE, done.output
    assert "user anna added: read and write, schemas shop, password" in done.stdout
    assert access(cli).password("anna", "one two") is not None
    assert typed("x\n", "users", "add", "anna", "--password-stdin").exit_code == exits.USAGE

    made = cli.json("users", "add", "root", "--admin", "--generate")
    assert access(cli).password("root", made["generated"]) is not None
    assert "generated" not in json.dumps(cli.json("users", "list"))
    text = cli("users", "list").stdout
    assert text.splitlines()[1].split()[:2] == ["anna", "read"]
    assert "everything" in text

    changed = cli.json("users", "alter", "anna", "--read-only", "--all-schemas", "--disable")
    assert (changed["writes"], changed["schemas"], changed["enabled"]) == (False, None, False)
    assert access(cli).password("anna", "one two") is None
    cli("users", "alter", "anna", "--enable")
    assert typed("three\n", "users", "passwd", "anna", "--password-stdin").exit_code == exits.COMPLETE
    assert access(cli).password("anna", "three") is not None

    assert cli.json("users", "drop", "anna") == {"dropped": "anna"}
    refused = cli("users", "drop", "root")
    assert refused.exit_code == exits.USAGE
    assert "--last" in refused.stderr
    assert cli("users", "drop", "root", "--last").exit_code == exits.COMPLETE


def test_a_user_with_a_certificate_alone(cli: Cli) -> None:
    assert "client certificate" in cli("users", "add", "robot", "--no-password").stdout
    assert access(cli).password("robot", "") is None
    assert access(cli).by_certificate("robot") is not None


def test_a_password_is_asked_for_twice_on_a_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["right"])
    asked = {}

    def prompt(text: str, **options: object) -> str:
        asked.update(options)
        return next(answers)

    monkeypatch.setattr("click.prompt", prompt)

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    assert users._password("anna", stdin=False, generated=False) == "right"
    assert asked["hide_input"]
    assert asked["confirmation_prompt"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "anna"),
        ("add", "a b", "--generate"),
        ("add", "pg_x", "--generate"),
        ("add", "anna", "--generate", "--password-stdin"),
        ("add", "anna", "--generate", "--no-password"),
        ("alter", "anna"),
        ("alter", "anna", "--schema", "a", "--all-schemas"),
        ("alter", "anna", "--admin"),
        ("passwd", "anna", "--generate"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: tuple[str, ...]) -> None:
    result = cli("users", *arguments)
    assert result.exit_code == exits.USAGE, result.output
    assert "next:" in result.stderr


def test_an_empty_password_is_refused(cli: Cli) -> None:
    assert typed("\n", "users", "add", "anna", "--password-stdin").exit_code == exits.USAGE
    assert (
        CliRunner().invoke(penstock, ["users", "add", "a", "--password-stdin"], input=b"\xff\n").exit_code
        == exits.USAGE
    )
