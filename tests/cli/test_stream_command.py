"""``penstock stream``: over streams whose epochs a test commits by hand, and with real instances."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.cli import exits
from penstock.cli.actions.joining import Teller
from penstock.cli.actions.streaming import CommittedEpochs, Narrator, progress
from penstock.cli.output import JsonOutput, TextOutput
from penstock.cli.screens import stream as screens
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.model import Member
from penstock.errors import StoreUnavailable
from penstock.store import Store, open_store
from penstock.streams import registry
from penstock.streams.ingest.finished_parts import STATES, StatedPart, StatesFile
from penstock.streams.log.readers import ReaderPositions
from penstock.streams.model import Pointer, Standing
from penstock.streams.outputs.claims import OutputClaims
from penstock.streams.registry import StreamRecord
from penstock.streams.supervisors import SupervisorEntry, Supervisors
from penstock.streams.views.events import epoch_committed, problem
from penstock.streams.views.views import RescaleView
from tests.cli.program import Cli
from tests.streams.log.support import NOON, Made

DEFINITION = {
    "sources": {"numbers": {"table": {"key": "int64"}}},
    "outputs": {"totals": {"mode": "update", "sink": {"kind": "parquet"}, "exactly_once": True}},
}


class Ticks:
    """The stream ``ticks`` of a project."""

    def __init__(self, cli: Cli, store: Store) -> None:
        self.cli = cli
        self.store = store
        self.record = StreamRecord("ticks", "0a1b2c3d", DEFINITION, "2026-01-01T12:00:00Z")
        store.cas("streams/ticks/stream", 0, registry.RECORD.encode(self.record))
        self._made: Made | None = None

    @property
    def made(self) -> Made:
        """The stream as somebody leads it."""
        if self._made is None:
            self._made = Made(self.store, self.cli.folder / ".penstock/storage")
        return self._made

    @property
    def wanted(self) -> str:
        return registry.load(self.store, "ticks").wanted

    def join(self, name: str = "ann") -> Member:
        member = Member(name, self.store.session(60).id, "1", role="stream")
        Roster(self.store, Keys(self.record.layout.cluster)).join(member)
        return member

    def leave(self, member: Member) -> None:
        Roster(self.store, Keys(self.record.layout.cluster)).leave(member)

    def supervise(self) -> SupervisorEntry:
        entry = SupervisorEntry("s", self.store.session(60).id, "here", 17, 1)
        Supervisors(self.store, self.record.layout).enter(entry)
        return entry

    def standing(self, finished: int, open_: int, newest: int | None = None) -> Standing:
        """Where the one instance stands, with so many parts."""
        parts = {f"numbers/p{n}": StatedPart("1:0", n < finished) for n in range(finished + open_)}
        path = f"{self.record.layout.states}/x.json"
        states = Pointer.write(self.made.storage, path, STATES, StatesFile(parts))
        return Standing(states, None, {} if newest is None else {"numbers": newest})

    def status(self) -> Any:
        return json.loads(self.cli("stream", "status", "ticks", "--json").stdout)


@pytest.fixture
def ticks(cli: Cli) -> Iterator[Ticks]:
    with open_store(f"sqlite:///{cli.folder}/.penstock/store.db") as store:
        yield Ticks(cli, store)


def test_without_any_stream(cli: Cli) -> None:
    assert cli.json("stream", "list") == []
    assert "no streams in" in cli("stream", "list").stderr
    result = cli("stream", "status", "ticks")
    assert result.exit_code == exits.USAGE
    assert "there is no store" in result.stderr


def test_a_stream_that_is_not_there(ticks: Ticks) -> None:
    for arguments in (["stop"], ["suspend"], ["resume"], ["status"], ["drop"], ["readers"]):
        result = ticks.cli("stream", *arguments, "tocks")
        assert result.exit_code == exits.USAGE, result.output
        assert "known streams: ticks" in result.stderr


def test_the_status_of_a_stream_that_nobody_has_led(ticks: Ticks) -> None:
    status = ticks.status()
    assert (status["state"], status["epoch"], status["leader"]) == ("stopped", 0, None)
    ticks.supervise()
    assert ticks.status()["state"] == "starting"
    ticks.join()
    assert ticks.status()["instances"] == [
        {"member": "ann", "state": "alive", "leads": False, "parts": 0, "finished": 0}
    ]


def test_the_status_of_a_stream_at_work(ticks: Ticks) -> None:
    made = ticks.made
    ticks.join()
    made.commit(4)
    newest = int(NOON.timestamp() * 1_000_000)
    made.commit(6, late=2, at=NOON + timedelta(seconds=2), standing=ticks.standing(1, 2, newest))
    claim = OutputClaims(ticks.store, ticks.record.layout).take("totals", "ann", ticks.store.session(60).id)
    assert claim is not None
    OutputClaims(ticks.store, ticks.record.layout).update("totals", claim.token, batch=3, epoch=1)
    status = ticks.status()
    assert (status["state"], status["wanted"], status["epoch"]) == ("running", "running", 2)
    assert (status["rows"], status["late"], status["speed"]) == (10, 2, 3.0)
    assert 0 < status["queue"] < 0.01
    (source,) = status["sources"]
    assert (source["parts"], source["finished"], source["newest"]) == (3, 1, "2026-01-01T12:00:00+00:00")
    assert [(each["parts"], each["finished"]) for each in status["instances"]] == [(3, 1)]
    (output,) = status["outputs"]
    assert (output["owner"], output["batch"], output["epoch"]) == ("ann", 3, 1)
    assert (output["behind_epochs"], output["behind_rows"], output["exactly_once"]) == (1, 6, True)
    text = ticks.cli("stream", "status", "ticks").stdout
    assert "ticks (0a1b2c3d): running" in text
    assert "3, 1 finished" in text
    assert "1 epoch, 6 rows" in text and "exactly once" in text


def test_an_owner_that_is_gone_runs_nothing(ticks: Ticks) -> None:
    session = ticks.store.session(60)
    OutputClaims(ticks.store, ticks.record.layout).take("totals", "ann", session.id)
    assert ticks.status()["outputs"][0]["owner"] == "ann"
    session.close()
    assert ticks.status()["outputs"][0]["owner"] is None


def test_a_stream_that_fails_says_why(ticks: Ticks) -> None:
    ticks.join()
    ticks.made.commit(1)
    ticks.made.abort()
    result = ticks.cli("stream", "status", "ticks")
    assert result.exit_code == exits.RESUMABLE
    assert "FAILING: a test" in result.stdout


def test_an_output_with_a_problem_is_not_well(ticks: Ticks) -> None:
    ticks.join()
    ticks.made.commit(1)
    assert ticks.cli("stream", "status", "ticks").exit_code == exits.COMPLETE
    claims = OutputClaims(ticks.store, ticks.record.layout)
    claim = claims.take("totals", "ann", ticks.store.session(60).id)
    assert claim is not None
    claims.update("totals", claim.token, problem="no such bucket")
    result = ticks.cli("stream", "status", "ticks")
    assert result.exit_code == exits.RESUMABLE
    assert "output totals: no such bucket" in result.stdout


def test_the_end_comes_when_the_outputs_have_everything(ticks: Ticks) -> None:
    ticks.made.commit(1, ended=True)
    assert ticks.status()["state"] == "stopped"
    claims = OutputClaims(ticks.store, ticks.record.layout)
    claim = claims.take("totals", "ann", ticks.store.session(60).id)
    assert claim is not None
    claims.update("totals", claim.token, finished=True, epoch=1)
    result = ticks.cli("stream", "status", "ticks")
    assert result.exit_code == exits.COMPLETE and "ended" in result.stdout


def test_several_streams_are_listed(ticks: Ticks) -> None:
    assert [each["name"] for each in ticks.cli.json("stream", "status")] == ["ticks"]
    assert "ticks (0a1b2c3d)" in ticks.cli("stream", "status").stdout
    registry.open_stream(ticks.store, "tocks", {})
    assert [each["name"] for each in ticks.cli.json("stream", "list")] == ["ticks", "tocks"]
    lines = ticks.cli("stream", "status").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["stream", "ticks", "tocks"]


def test_the_status_is_watched(ticks: Ticks) -> None:
    ticks.join()
    ticks.made.commit(1)
    program = [sys.executable, "-m", "penstock", "stream", "status", "ticks", "--watch", "--json"]
    with subprocess.Popen(program, cwd=ticks.cli.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for epoch in (1, 2, 3):
                assert json.loads(process.stdout.readline())["epoch"] == epoch
                ticks.made.commit(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == exits.COMPLETE
        finally:
            process.kill()


def test_suspend_and_resume(ticks: Ticks) -> None:
    assert ticks.cli.json("stream", "suspend", "ticks")["wanted"] == "suspended"
    assert ticks.wanted == "suspended"
    assert ticks.cli.json("stream", "resume", "ticks")["wanted"] == "running"


def test_suspending_waits_until_no_epoch_is_open(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.commands.stream._AT_REST", 0.3)
    ticks.made.commit(1)
    assert ticks.cli("stream", "suspend", "ticks", "--wait", "20").exit_code == exits.COMPLETE
    ticks.made.open()
    result = ticks.cli("stream", "suspend", "ticks", "--wait", "1")
    assert result.exit_code == exits.RESUMABLE
    assert "not yet after 1 s" in result.stderr


def test_a_stopped_stream_is_started_and_not_resumed(ticks: Ticks) -> None:
    assert ticks.cli("stream", "stop", "ticks").exit_code == exits.COMPLETE
    assert ticks.wanted == "stopped"
    result = ticks.cli("stream", "resume", "ticks")
    assert result.exit_code == exits.USAGE and "penstock stream start" in result.stderr
    assert ticks.wanted == "stopped"


def test_stopping_waits_until_everybody_has_left(ticks: Ticks) -> None:
    member = ticks.join()
    assert ticks.cli("stream", "stop", "ticks", "--wait", "0.5").exit_code == exits.RESUMABLE
    assert ticks.status()["state"] == "stopping"
    timer = threading.Timer(0.5, ticks.leave, [member])
    timer.start()
    assert ticks.cli("stream", "stop", "ticks", "--wait").exit_code == exits.COMPLETE
    timer.join()
    assert ticks.status()["state"] == "stopped"


@pytest.mark.parametrize(
    ("moved", "pause", "told"),
    [
        (0.5, 1.25, "to i1, i2: 50% of the parts moved, paused for 1.25 s"),
        (None, 1.25, "to i1, i2: paused for 1.25 s"),
        (0.5, None, "to i1, i2: 50% of the parts moved"),
        (None, None, "to i1, i2"),
    ],
)
def test_what_is_not_known_of_a_rescale_is_left_out(
    moved: float | None, pause: float | None, told: str
) -> None:
    assert screens._rescale(RescaleView(2, ("i1", "i2"), moved, pause)) == told


def test_rescaling_writes_the_wish(ticks: Ticks) -> None:
    result = ticks.cli("stream", "rescale", "ticks", "3")
    assert result.exit_code == exits.COMPLETE
    assert "no supervisor" in result.stderr
    assert registry.load(ticks.store, "ticks").instances == 3
    assert ticks.cli("stream", "rescale", "ticks", "0").exit_code == exits.USAGE


def test_rescaling_waits_for_as_many_as_were_asked_for(ticks: Ticks) -> None:
    ticks.supervise()
    ticks.made.commit(1)
    ticks.join()
    assert ticks.cli("stream", "rescale", "ticks", "1", "--wait", "20").exit_code == exits.COMPLETE
    assert ticks.cli("stream", "rescale", "ticks", "2", "--wait", "0.5").exit_code == exits.RESUMABLE


def test_dropping(ticks: Ticks) -> None:
    ticks.made.commit(5)
    member = ticks.join()
    result = ticks.cli("stream", "drop", "ticks", "--yes")
    assert result.exit_code == exits.FAILED and "instance ann" in result.stderr
    ticks.leave(member)
    dropped = ticks.cli.json("stream", "drop", "ticks", "--yes")
    assert dropped["files"] >= 2 and dropped["bytes"] > 0
    assert registry.names(ticks.store) == []
    assert not list((ticks.cli.folder / ".penstock/storage").rglob("*.arrow"))


def test_rows_of_the_queue(ticks: Ticks) -> None:
    ticks.made.commit(3)
    ticks.made.commit(2, late=1)

    def keys(*arguments: str) -> list[int]:
        return [row["key"] for row in ticks.cli.json("stream", "show", "ticks", "numbers", *arguments)]

    assert keys() == [0, 1, 2, 3, 4, 5]
    assert keys("--limit", "3") == [3, 4, 5]
    assert keys("--at-epoch", "1") == [0, 1, 2]
    assert keys("--late") == [5]
    text = ticks.cli("stream", "show", "ticks", "numbers", "--limit", "1").stdout
    assert text.splitlines()[0].split() == ["key", "word", "at"]


def test_rows_that_cannot_be_shown(ticks: Ticks) -> None:
    ticks.made.commit(3)
    beyond = ticks.cli("stream", "show", "ticks", "numbers", "--at-epoch", "7")
    assert beyond.exit_code == exits.USAGE and "come to epoch 1" in beyond.stderr
    nothing = ticks.cli("stream", "show", "ticks", "letters")
    assert nothing.exit_code == exits.USAGE and "numbers, totals" in nothing.stderr
    assert "late rows belong to a source" in ticks.cli("stream", "show", "ticks", "totals", "--late").stderr
    assert ticks.cli.json("stream", "show", "ticks", "totals") == []
    ticks.made.log.compact(force=True)
    ticks.made.commit(1)
    ticks.made.log.raise_floor(lambda _: 2)
    gone = ticks.cli("stream", "show", "ticks", "numbers", "--at-epoch", "1")
    assert gone.exit_code == exits.FAILED and "not retained" in gone.stderr


def test_readers_are_listed_and_dropped(ticks: Ticks) -> None:
    ticks.made.commit(1)
    ReaderPositions(ticks.made.log).begin("report", 1)
    (reader,) = ticks.cli.json("stream", "readers", "ticks")
    assert (reader["reader"], reader["epoch"]) == ("report", 1)
    assert "report" in ticks.cli("stream", "readers", "ticks").stdout
    wrong = ticks.cli("stream", "readers", "ticks", "--drop", "rapport")
    assert wrong.exit_code == exits.USAGE and "named readers: report" in wrong.stderr
    assert ticks.cli.json("stream", "readers", "ticks", "--drop", "report") == []


# what is told while a stream runs


class Told:
    """A narrator over figures that a test gives."""

    def __init__(self, *, verbose: bool = False, as_json: bool = False) -> None:
        self.now = 0.0
        self.found: CommittedEpochs | Exception = CommittedEpochs(0, 0, 0, 0)
        self._out = io.StringIO()
        output = JsonOutput(out=self._out) if as_json else TextOutput(out=self._out)
        self.narrator = Narrator(Teller(output), self._count, verbose=verbose, clock=lambda: self.now)

    def _count(self, _: int | None) -> CommittedEpochs:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def step(self, found: CommittedEpochs | Exception) -> None:
        self.now += 5.0
        self.found = found
        self.narrator.step()

    @property
    def lines(self) -> list[str]:
        return self._out.getvalue().splitlines()


def test_what_was_committed_is_told_with_its_speed() -> None:
    told = Told()
    told.step(CommittedEpochs(7, 7, 0, 0))
    assert told.lines == []
    told.step(CommittedEpochs(7, 17, 1000, 2))
    assert told.lines[0].endswith("epochs 8 to 17: 1,000 rows (200 rows/s), 2 rows late")
    told.step(StoreUnavailable("x"))
    told.step(CommittedEpochs(17, 20, 0, 0))
    told.step(CommittedEpochs(20, 25, 0, 0))
    told.step(CommittedEpochs(25, 25, 0, 0))
    assert len(told.lines) == 2 and told.lines[1].endswith("epochs 18 to 20: no new rows")
    told.step(CommittedEpochs(25, 26, 1, 0))
    assert told.lines[2].endswith("epoch 26: 1 row (0 rows/s)")


def test_epochs_of_their_own_are_told_only_when_asked_for() -> None:
    epoch = epoch_committed(3, rows=10, late=1, size=100, seconds=0.02)
    for verbose, lines in ((False, 1), (True, 2)):
        told = Told(verbose=verbose, as_json=True)
        told.narrator(epoch)
        told.narrator(problem("the disk is full", "storage-full"))
        found = [json.loads(line) for line in told.lines]
        assert len(found) == lines
        assert (found[-1]["event"], found[-1]["code"]) == ("problem", "storage-full")


def test_progress_is_read_from_the_log(ticks: Ticks) -> None:
    made = ticks.made
    made.commit(3)
    assert progress(made.log, None) == CommittedEpochs(1, 1, 0, 0)
    made.commit(2, late=1)
    made.commit()
    assert progress(made.log, 1) == CommittedEpochs(1, 3, 2, 1)
    made.log.compact(force=True)
    made.log.raise_floor(lambda _: 2)
    assert progress(made.log, 0) == CommittedEpochs(0, 3, 2, 1), "what is gone is left out"
