from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from penstock import errors
from penstock.cli import exits
from penstock.cli.actions.running import Result
from penstock.cli.output import error_json, in_commands
from penstock.spark.faults import decode, encode
from tests.cli.program import Cli


def test_an_error_says_code_what_and_next(project: Cli) -> None:
    result = project("runs", "show", "nope")
    assert result.exit_code == exits.USAGE
    assert result.stdout == ""
    assert result.stderr.startswith("error[usage]: there is no store at sqlite:///")
    assert "\nnext: " in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_as_json(run: Cli) -> None:
    result = run("runs", "show", "nope", "--json")
    assert result.exit_code == exits.USAGE
    error = json.loads(result.stderr)["error"]
    assert error == {
        "code": "usage",
        "what": "there is no run 'nope'",
        "left": None,
        "next": "known runs: trades",
    }


def test_a_wrong_option_is_an_error_of_the_same_form(project: Cli) -> None:
    result = project("runs", "ls", "--nope")
    assert result.exit_code == exits.USAGE
    assert result.stderr.startswith("error[usage]: No such option")
    assert "next: penstock runs ls --help" in result.stderr


def test_an_unknown_key_in_the_file_is_suggested(project: Cli) -> None:
    (project.folder / "penstock.toml").write_text("[run]\nclaim = 3\n")
    result = project("config", "show")
    assert result.exit_code == exits.USAGE
    assert "error[config]" in result.stderr
    assert "did you mean run.claims?" in result.stderr


def test_an_unknown_variable_is_suggested(project: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUN_CLAIM", "3")
    result = project("config", "show")
    assert result.exit_code == exits.USAGE
    assert "did you mean PENSTOCK_RUN_CLAIMS?" in result.stderr


def test_debug_shows_the_traceback(project: Cli) -> None:
    assert isinstance(project("runs", "show", "nope", "--debug").exception, errors.UsageError)


def test_a_bug_is_told_without_a_traceback(project: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.load", lambda *_: 1 / 0)
    result = project("config", "show")
    assert result.exit_code == exits.FAILED
    assert result.stderr.startswith("error[error]: ZeroDivisionError: ")
    assert "--debug" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError(), exits.USAGE),
        (errors.UndeclaredRead(), exits.USAGE),
        (errors.InputChanged(), exits.FAILED),
        (errors.StoreUnavailable(), exits.FAILED),
        (errors.StorageFull(), exits.RESUMABLE),
        (errors.Interrupted(), exits.RESUMABLE),
    ],
)
def test_errors_have_exit_codes(error: errors.PenstockError, code: int) -> None:
    assert exits.code_for(error) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputChanged(), exits.RESUMABLE),
        (errors.StoreUnavailable(), exits.RESUMABLE),
        (errors.StorageFull(), exits.RESUMABLE),
        (errors.UndeclaredWrite(), exits.USAGE),
    ],
)
def test_a_run_that_halted_is_resumable_whatever_the_cause(error: errors.PenstockError, code: int) -> None:
    assert exits.code_for(error, halted=True) == code


def test_advice_can_be_typed() -> None:
    error = errors.BadInput("x", left="y", hint="pass quote", typed="give --input-option {table}.quote=")
    told = in_commands(error, "trades")
    assert type(told) is errors.BadInput
    assert (told.what, told.left, told.hint) == ("x", "y", "give --input-option trades.quote=")
    assert error_json(error)["next"] == "give --input-option TABLE.quote="
    assert in_commands(told) is told


def test_advice_reaches_the_command_line_from_workers() -> None:
    error = errors.BadInput("x", hint="pass quote", typed="give --input-option {table}.quote=")
    for arrived in (pickle.loads(pickle.dumps(error)), decode(Exception(encode(error)))):
        assert in_commands(arrived).hint == "give --input-option TABLE.quote="


@pytest.mark.parametrize(("ending", "code"), [("halted", exits.RESUMABLE), ("instances lost", exits.FAILED)])
def test_how_a_run_ended_decides_its_exit_code(ending: str, code: int) -> None:
    nothing: Any = None
    result = Result(nothing, ending, nothing, [], [], [], 0.0, errors.InputChanged())
    assert result.code == code
