"""The reporting side of the benchmarks. Nothing here is timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import report
from bench.lab import Lab
from bench.measuring import compare
from bench.results import Result
from bench.scenarios import Scenario

KEYS = ["name", "ours", "peer", "ratio", "spread", "goal", "holds"]


def test_ratio_of_medians_and_spread_of_pairs() -> None:
    result = Result.of("x (s)", [1.0, 2.0, 9.0], [1.0, 4.0, 3.0], goal=0.7)
    assert (result.ours, result.peer) == (2.0, 3.0)
    assert result.ratio == pytest.approx(2 / 3)
    assert result.spread == (0.5, 3.0)
    assert result.holds is True


def test_a_goal_is_the_most_that_the_ratio_may_be() -> None:
    assert Result.of("x (s)", [1.1], [1.0], goal=1.1).holds is True
    assert Result.of("x (s)", [1.11], [1.0], goal=1.1).holds is False
    assert Result.of("x (s)", [5.0], [1.0]).holds is None


def test_nothing_against_nothing_is_equal_and_something_against_nothing_is_not() -> None:
    assert Result.of("rows", [0], [0], goal=1.0).holds is True
    worse = Result.of("rows", [7], [0], goal=1.0)
    assert worse.holds is False
    assert worse.to_json()["ratio"] is None


def test_sides_must_have_been_measured_equally_often() -> None:
    with pytest.raises(ValueError, match="2 measurements of ours and 1"):
        Result.of("x", [1.0, 2.0], [1.0])


def test_measurements_are_interleaved_after_a_warm_up() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    result = compare("x (s)", lambda: side("ours"), lambda: side("peer"), repeat=2)
    assert calls == ["ours", "peer"] * 3
    assert (result.ours, result.peer) == (4.0, 5.0)


def test_table_and_markdown_have_a_line_for_each_result() -> None:
    results = [Result.of("one (s)", [1.0], [2.0], 1.0), Result.of("two (rows)", [1234567], [1234567])]
    line = report.as_text(results).splitlines()[2]
    assert " ".join(line.split()) == "one (s) 1 2 0.50 0.50 to 0.50 ≤ 1.00 yes"
    assert report.as_markdown(results).splitlines()[2:] == [
        "| one (s) | 1 | 2 | 0.50 | 0.50 to 0.50 | ≤ 1.00 | yes |",
        "| two (rows) | 1,234,567 | 1,234,567 | 1.00 | 1.00 to 1.00 |  |  |",
    ]


def good(lab: Lab) -> Iterator[Result]:
    yield Result.of("good (rows)", [lab.rows], [lab.rows], 1.0)


def bad(lab: Lab) -> Iterator[Result]:
    yield Result.of("half (s)", [lab.repeat], [1.0], 1.0)
    raise RuntimeError("broken")


BENCHES = {"stub": (Scenario("a", "good", good), Scenario("b", "bad", bad))}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_json_is_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["stub", "--json", "--only", "a", "--rows", "10_000"], BENCHES) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == ["scenario", "results"]
    assert printed["scenario"] == "stub"
    [result] = printed["results"]
    assert list(result) == KEYS
    assert result == {
        "name": "good (rows)",
        "ours": 10_000,
        "peer": 10_000,
        "ratio": 1.0,
        "spread": [1.0, 1.0],
        "goal": 1.0,
        "holds": True,
    }


def test_a_scenario_that_breaks_does_not_take_the_others_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["stub", "--json", "--repeat", "2"], BENCHES) == 1
    out, err = capsys.readouterr()
    assert [(r["name"], r["holds"]) for r in json.loads(out)["results"]] == [
        ("good (rows)", True),
        ("half (s)", False),
    ]
    assert "RuntimeError: broken" in err


def test_an_unknown_scenario_is_refused_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no scenario z; there are a \(good\), b \(bad\)"):
        command.main(["stub", "--only", "z"], BENCHES)


def test_the_scenarios_of_the_batch_side() -> None:
    assert [scenario.key for scenario in command.known()["batch"]] == list("abcdef")
