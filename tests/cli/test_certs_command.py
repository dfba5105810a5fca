"""`penstock certs`, and the settings that its files go into."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli import exits
from penstock.config import load
from tests.cli.program import Cli

if TYPE_CHECKING:
    from click.testing import Result


@pytest.fixture
def folder(cli: Cli) -> Path:
    """A CA where it is made by default."""
    assert cli("certs", "init").exit_code == 0
    return cli.folder / ".penstock" / "certs"


def assert_refused(result: Result, *texts: str) -> None:
    assert result.exit_code == exits.USAGE
    assert result.stdout == ""
    assert "\nnext: " in result.stderr
    for text in texts:
        assert text in result.stderr


def test_from_nothing_to_a_configured_node(cli: Cli, folder: Path) -> None:
    result = cli("certs", "issue", "node-1", "--host", "db1.example.com", "--host", "10.0.0.7")
    assert result.exit_code == 0, result.output
    assert f"wrote {folder / 'node-1.key'}" in result.stdout
    (cli.folder / "penstock.toml").write_text(result.stdout.partition("penstock.toml:\n")[2])
    tls = load().tls
    assert tls is not None
    assert tls.cert == str(folder / "node-1.pem")
    tls.credentials()


def test_the_ca_stands_beside_the_project_file(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.folder / "penstock.toml").write_text("")
    (cli.folder / "deep").mkdir()
    monkeypatch.chdir(cli.folder / "deep")
    made = cli.json("certs", "init", "--name", "acme", "--days", "10")
    assert made["cert"] == str(cli.folder / ".penstock/certs/ca.pem")
    assert made["name"].startswith("acme CA ")
    assert made["days"] == 9


def test_init_leaves_a_ca_alone(cli: Cli, folder: Path) -> None:
    before = (folder / "ca.key").read_bytes()
    assert_refused(cli("certs", "init"), "there is a CA in", "penstock certs rotate --ca")
    assert (folder / "ca.key").read_bytes() == before


def test_another_folder(cli: Cli) -> None:
    result = cli("certs", "init", "--dir", "my certs")
    assert "penstock certs issue NODE --host NAME_OR_ADDRESS --dir 'my certs'" in result.stdout
    issued = cli.json("certs", "issue", "a", "--dir", "my certs", "--out", "shipped")
    assert issued["cert"] == str(cli.folder / "shipped/a.pem")
    section = tomllib.loads(issued["toml"])["tls"]
    assert section == {"ca": "my certs/ca.pem", "cert": "shipped/a.pem", "key": "shipped/a.key"}
    assert not (cli.folder / ".penstock").exists()


def test_files_elsewhere_are_named_in_full(cli: Cli, folder: Path) -> None:
    outside = cli.folder.parent / f"{cli.folder.name}-outside"
    section = tomllib.loads(cli.json("certs", "issue", "a", "--out", str(outside))["toml"])["tls"]
    assert section["key"] == str(outside / "a.key")
    assert section["ca"] == ".penstock/certs/ca.pem"


def test_issue_refuses_to_overwrite(cli: Cli, folder: Path) -> None:
    cli.json("certs", "issue", "a")
    before = (folder / "a.pem").read_bytes()
    assert_refused(cli("certs", "issue", "a"), "a has a certificate already", "penstock certs rotate a")
    assert (folder / "a.pem").read_bytes() == before
    assert cli.json("certs", "issue", "a", "--host", "db1", "--force")["names"][:2] == ["a", "db1"]
    assert (folder / "a.pem").read_bytes() != before


def test_rotating_a_node(cli: Cli, folder: Path) -> None:
    before = cli.json("certs", "issue", "a", "--host", "db1")
    key = (folder / "a.key").read_bytes()
    after = cli.json("certs", "rotate", "a", "--days", "20")
    assert after["names"] == before["names"]
    assert after["days"] == 19
    assert (folder / "a.key").read_bytes() != key


def test_rotating_the_ca(cli: Cli, folder: Path) -> None:
    for node in ("a", "b"):
        cli.json("certs", "issue", node)
    text = cli("certs", "rotate", "--ca").stdout
    assert "\n  penstock certs rotate a\n  penstock certs rotate b\n" in text
    assert f"after {folder / 'ca.pem'} has been copied to every machine" in text
    assert_refused(cli("certs", "rotate", "--finish"), "still needed by a, b", "it stays trusted")
    for node in ("a", "b"):
        cli.json("certs", "rotate", node)
    assert "is no longer trusted" in cli("certs", "rotate", "--finish").stdout
    assert "nothing to do" in cli("certs", "rotate", "--finish").stdout
    assert cli.json("certs", "rotate", "--finish")["dropped"] == []


def test_show(cli: Cli, folder: Path) -> None:
    cli.json("certs", "issue", "a", "--host", "db1")
    new = cli.json("certs", "rotate", "--ca")
    assert new["nodes"] == ["a"]
    current, old, node = cli.json("certs", "show")
    assert (current["name"], current["kind"], current["state"]) == (new["name"], "ca", "current")
    assert (old["kind"], old["state"], old["key"]) == ("ca", "old", None)
    assert (node["name"], node["kind"], node["signed_by"]) == ("a", "node", old["name"])
    assert node["days"] == 364
    header, *lines = cli("certs", "show").stdout.splitlines()
    assert header.split()[:5] == ["name", "kind", "state", "days", "expires"]
    assert len(lines) == 3
    assert "a, db1, localhost, 127.0.0.1, ::1" in lines[2]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["rotate"], "one of NODE, --ca and --finish"),
        (["rotate", "a", "--ca"], "one of NODE, --ca and --finish"),
        (["rotate", "--ca", "--finish"], "one of NODE, --ca and --finish"),
        (["rotate", "--ca", "--out", "x"], "--out is for the files of a node"),
        (["rotate", "--finish", "--days", "3"], "--days is for a new certificate"),
        (["rotate", "nobody"], "has issued no certificate to 'nobody'"),
        (["issue", "a/b"], "'a/b' is no name for a node"),
        (["issue", "a", "--host", "db1:2379"], "neither a host name nor an IP address"),
        (["issue", "a", "--days", "0"], "--days"),
        (["init", "--dir", "new", "--name", "a b"], "'a b' is no name for a CA"),
        (["show", "--dir", "nowhere"], "there is no CA in"),
        (["issue", "a", "--dir", "nowhere"], "there is no CA in"),
        (["init", "--dir", "penstock.lock/x"], "cannot be written"),
    ],
)
def test_wrong_usage_changes_nothing(cli: Cli, folder: Path, arguments: list[str], text: str) -> None:
    (cli.folder / "penstock.lock").write_text("a file")
    before = sorted(cli.folder.rglob("*"))
    assert_refused(cli("certs", *arguments), text)
    assert sorted(cli.folder.rglob("*")) == before


def test_a_broken_project_file_is_found_before_anything_is_written(cli: Cli, folder: Path) -> None:
    (cli.folder / "penstock.toml").write_text('[tls]\nca = "x"\n')
    result = cli("certs", "issue", "a", "--dir", ".penstock/certs", "--json")
    assert json.loads(result.stderr)["error"]["code"] == "config"
    assert not (folder / "a.pem").exists()


def test_no_command_shows_the_password_of_the_store(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STORE_PASSWORD", "hush1")
    url = "ftp://ann:hush2@h1:2379,h2/prefix"
    (cli.folder / "penstock.toml").write_text(f'store = "{url}"\nstorage = "s3://key:hush3@bucket/x"\n')
    settings = cli.json("config", "show")["settings"]
    assert settings["store"]["value"] == "ftp://ann:***@h1:2379,h2/prefix"
    assert settings["store_password"]["origin"] == "PENSTOCK_STORE_PASSWORD"
    for arguments in (["config", "show"], ["config", "show", "--json"]):
        result = cli(*arguments)
        assert "ann:***@" in result.output
        assert "hush" not in result.output


def test_a_password_that_is_not_set_is_shown_as_such(cli: Cli) -> None:
    assert cli.json("config", "show")["settings"]["store_password"] == {"value": None, "origin": "default"}
