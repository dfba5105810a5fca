from __future__ import annotations

import pytest

from penstock.cli import exits
from penstock.cli.actions.inputs import InputFiles, parse
from penstock.project import load
from penstock.store import open_store
from tests.cli.program import Cli


def test_what_is_said_about_an_input_is_gathered(project: Cli) -> None:
    pipeline = load("trades.py").pipeline
    options = [r"trades.delimiter=\t", "trades.quote=", "trades.null_values=", "trades.null_values=NA"]
    found = parse(pipeline, ["trades=x.dat"], ["trades=csv"], options)
    chosen = {"delimiter": "\t", "quote": "", "null_values": ("", "NA")}
    assert found == {"trades": InputFiles("x.dat", "csv", chosen)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input-format", "csv"], "is not NAME=FORMAT"),
        (["--input-format", "trades=xml"], "there is no format 'xml'"),
        (["--input-format", "trade=csv"], "did you mean 'trades'?"),
        (["--input-format", "trades=csv", "--input-format", "trades=csv"], "is given twice"),
        (["--input-option", "delimiter=;"], "write --input-option trades.delimiter=';'"),
        (["--input-option", "trades.delimiter"], "is not NAME.KEY=VALUE"),
        (["--input-option", "trade.quote="], "did you mean 'trades'?"),
        (["--input-option", "trades.quote=", "--input-option", "trades.quote='"], "is given twice"),
        (["--input-option", "trades.delimeter=;"], "did you mean delimiter?"),
        (["--input-option", "trades.delimiter=;;"], "single ASCII character"),
    ],
)
def test_what_makes_no_sense_is_refused(project: Cli, arguments: list[str], message: str) -> None:
    result = project("run", "trades.py", "--input", "trades=data/trades.csv", *arguments)
    assert result.exit_code == exits.USAGE
    assert message in result.stderr


def test_options_need_an_input(project: Cli) -> None:
    result = project("run", "trades.py", "--input-option", "trades.quote=")
    assert result.exit_code == exits.USAGE
    assert "next: add --input trades=PATH" in result.stderr


def test_an_open_quote_has_a_way_out_that_can_be_typed(project: Cli) -> None:
    path = project.folder / "data/trades.csv"
    header, _, rest = path.read_text().partition("\n")
    path.write_text(f'{header}\n"{rest}')
    result = project("run", "trades.py", "--input", "trades=data/trades.csv")
    assert result.exit_code == exits.FAILED
    assert "--input-option trades.quote=" in result.stderr


def test_a_run_may_be_called_by_its_day(project: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project.folder / "data/trades.csv"
    (project.folder / "day.dat").write_text(path.read_text().replace(",", ";"))

    class Reached(Exception):
        """The inputs are registered, and the run would begin."""

    def reached(*_: object, **__: object) -> None:
        raise Reached

    monkeypatch.setattr("penstock.cli.commands.run.execute", reached)
    given = ["--input-format", "trades=csv", "--input-option", "trades.delimiter=;", "--debug"]
    result = project("run", "trades.py", "--run", "2026-01-05", "--input", "trades=day.dat", *given)
    assert isinstance(result.exception, Reached), result.output
    with open_store(f"sqlite:///{project.folder}/.penstock/store.db") as store:
        assert store.get("inputs/2026-01-05.trades") is not None
