"""The reporting side of the benchmarks, and what they count. Nothing here is timed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyarrow import flight

from bench import __main__ as command
from bench import gateway, report, streams
from bench.exchange import data as exchange_data
from bench.gateway import clients, flights, overhead, trades
from bench.gateway.clients import Libpq
from bench.gateway.processes import stored
from bench.lab import Lab
from bench.measuring import compare, say_if_busy
from bench.peers import Environment, PeerMissing
from bench.results import Result
from bench.scenarios import Scenario
from bench.streams import generator, latency, rescale, throughput, trace
from bench.streams.load import Load, PollLog
from bench.streams.sides import Pauses, Rescaling, Steady
from bench.streams.trace import Commit, Poll, Trace, WrongResult

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
    assert [scenario.key for scenario in command.known()["exchange"]] == list("abcde")


def test_a_hot_account_has_its_share_of_the_trades(tmp_path: Path) -> None:
    def largest(folder: Path) -> float:
        owners = pq.read_table(folder)["account"].value_counts().field("counts").to_numpy()
        return float(owners.max() / owners.sum())

    assert largest(exchange_data.trades(tmp_path, 10_000)) < 0.01
    assert largest(exchange_data.trades(tmp_path, 10_000, hot=True)) == pytest.approx(0.3, abs=0.02)


def test_a_busy_machine_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.9, 0.0, 0.0))
    say_if_busy()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(os, "getloadavg", lambda: (3.1, 0.0, 0.0))
    say_if_busy()
    assert "busy: a load of 3.1 on 2 cores" in capsys.readouterr().err


def test_rows_are_the_same_wherever_a_poll_begins() -> None:
    whole = generator.rows(5, 0, 1_000)
    for column, (first, second) in zip(
        whole, zip(generator.rows(5, 0, 300), generator.rows(5, 300, 700), strict=True), strict=True
    ):
        assert np.array_equal(column, np.concatenate([first, second]))
    assert np.array_equal(whole[0], generator.keys(5, 0, 1_000))
    assert whole[0][:4].tolist() == [3773, 1765, 2235, 6046]


def test_parts_have_rows_of_their_own_and_use_all_keys() -> None:
    assert not np.array_equal(generator.keys(0, 0, 100), generator.keys(1, 0, 100))
    counts = generator.counts(0, 0, 200_000)
    assert counts.sum() == 200_000 and counts.min() > 0


def test_a_mark_tells_its_poll_and_is_no_key_of_a_row() -> None:
    assert generator.mark(0, 0) >= generator.KEYS
    assert generator.marked(generator.mark(63, 12_345)) == (63, 12_345)


PACED = Load("", rows=1_000, poll=100, interval=1.0, workers=2, pace=1.0)


def committed(at: float, *starts: int) -> Commit:
    """Part 0 from these rows on, counted from the beginning of the first of them."""
    keys = [key for start in starts for key in PACED.keys(0, start)]
    return Commit(at, {key: keys.count(key) for key in keys})


def test_the_log_of_polls_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = PollLog(tmp_path)
    log.note(3, 200)
    [poll] = trace.polls(tmp_path)
    assert generator.marked(poll.mark) == (3, 200)


def test_a_poll_waits_for_the_commit_that_has_it_first() -> None:
    starts = {1.0: 0, 2.5: 100, 3.0: 200, 4.5: 300}
    polls = [Poll(generator.mark(0, start), at, 7) for at, start in starts.items()]
    run = Trace(polls, [committed(2.0, 0), committed(4.0, 0, 100, 200)])
    run.check(PACED)
    # Neither the one that waited for the start nor the one that is not committed yet.
    assert run.latencies() == [1.5, 1.0]


def test_a_pause_ends_with_the_first_commit_of_a_new_process() -> None:
    polls = [Poll(generator.mark(0, 0), 1.0, 7), Poll(generator.mark(0, 100), 5.0, 8)]
    run = Trace(polls, [committed(3.5, 0), committed(6.0, 0, 100)])
    assert run.resumed(3.0) == 6.0
    with pytest.raises(WrongResult, match="nothing that was polled after"):
        run.resumed(7.0)


def test_wrong_counts_are_found() -> None:
    polls = [Poll(generator.mark(0, 0), 1.0, 7)]
    with pytest.raises(WrongResult, match="nothing was committed"):
        Trace(polls, []).check(PACED)
    with pytest.raises(WrongResult, match="1 of 1 polls were counted more than once"):
        Trace(polls, [committed(2.0, 0, 0)]).check(PACED)
    short = committed(2.0, 0)
    lost = {key: count for key, count in short.counts.items() if key != PACED.keys(0, 0)[1]}
    with pytest.raises(WrongResult, match="1 of 10,000 counts are wrong"):
        Trace(polls, [Commit(2.0, lost)]).check(PACED)


@dataclass(frozen=True, slots=True)
class Pretended:
    name: str
    seconds: float

    def throughput(self, rows: int, interval: float) -> float:
        return self.seconds

    def latency(self, steady: Steady) -> list[float]:
        return [self.seconds, self.seconds]

    def rescale(self, rescaling: Rescaling) -> dict[str, Pauses]:
        return {"": Pauses(self.seconds, 2 * self.seconds)}


def test_streams_are_compared_with_every_peer(tmp_path: Path) -> None:
    lab = Lab(tmp_path, rows=6_400, repeat=2)
    ours, peers = Pretended("us", 1.0), [Pretended("one", 2.0), Pretended("two", 20.0)]
    events = list(throughput.results(lab, ours, peers))
    assert [(r.ratio, r.holds) for r in events] == [(0.5, True), (0.05, True)]
    assert events[0].ours == pytest.approx(1e6 / 6_400)
    delays = list(latency.results(lab, ours, peers))
    assert [(r.ours, r.peer, r.holds) for r in delays[:2]] == [(1_000, 2_000, None)] * 2
    pauses = list(rescale.results(lab, ours, peers))
    assert [(r.peer, r.holds) for r in pauses] == [(2.0, False), (4.0, False), (20.0, True), (40.0, True)]


def test_the_scenarios_of_streams() -> None:
    assert [scenario.key for scenario in streams.SCENARIOS] == list("abcde")


def test_the_scenarios_of_the_gateway() -> None:
    assert [scenario.key for scenario in gateway.SCENARIOS] == list("abcdef")
    assert len(list(overhead.QUERIES.glob("q*.sql"))) == 22


def test_clients_of_the_gateway_take_every_row(tmp_path: Path) -> None:
    lab = Lab(tmp_path, rows=200_000, repeat=1)
    with lab.place("stored") as place, stored(lab, place) as server, Libpq(server.url) as client:
        for binary in (False, True):
            assert client.ask(trades.QUERY, binary=binary) == 20_000
            assert client.stream(trades.QUERY, binary=binary) == 20_000
            assert clients.drained(server.url, trades.QUERY, binary=binary) > 20_000 * 40
        with flight.connect(server.rpc) as other:
            assert flights.fetched(other) == 20_000
        with pytest.raises(RuntimeError, match="no answer"):
            client.stream("SELECT 2")


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PeerMissing, match=r"nobody: /bin/false -m venv .* ended with 1"):
        _ = Environment("nobody", ("nothing==1",)).python
