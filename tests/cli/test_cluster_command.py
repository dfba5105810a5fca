"""``penstock cluster``: members as real processes, with real signals, on the embedded store."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli import exits
from penstock.cli.output import JsonOutput, TextOutput
from penstock.cli.screens import cluster as screens
from penstock.cli.screens import member_events
from penstock.cli.screens.cluster import Screen
from penstock.cli.screens.member_events import SeenCluster
from penstock.cli.watching import watch
from penstock.config import ClusterConfig
from penstock.control.catalog import Catalog, Create, Statement, StatementKind
from penstock.control.cluster.documents.keys import Keys
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.model import Control, Lease, Member, Term
from penstock.control.cluster.views.observation import Sight
from penstock.control.cluster.views.observer import Observer
from penstock.errors import StoreUnavailable
from penstock.store.memory import MemoryStore
from tests.cli.members import FAST, SLOW, Cluster


def leads(name: str, token: int) -> Callable[[Any], bool]:
    def found(status: Any) -> bool:
        leader = status["leader"]
        return leader is not None and (leader["member"], leader["token"]) == (name, token)

    return found


def test_a_killed_leader_is_replaced_within_one_and_a_half_leases(cluster: Cluster) -> None:
    first, _ = cluster.join("n1"), cluster.join("n2")
    assert cluster.wait_for(lambda s: s["healthy"])["leader"]["member"] == "n1"
    assert cluster.cli("cluster", "status").exit_code == exits.COMPLETE
    first.signal(signal.SIGKILL)
    killed = time.monotonic()
    cluster.wait_for(leads("n2", 2))
    assert time.monotonic() - killed < 1.5 * FAST["lease_ttl"]
    status = cluster.wait_for(lambda s: s["healthy"] and s["alive"] == 1)
    assert [share["member"] for share in status["assignment"]["shares"]] == ["n2"]
    terms = cluster.cli.json("cluster", "leader")["terms"]
    assert [(term["token"], term["member"], term["how"]) for term in terms] == [
        (2, "n2", "expired"),
        (1, "n1", "first"),
    ]


def test_sigterm_hands_over_without_waiting_for_a_lease(cluster: Cluster) -> None:
    cluster.configure(**SLOW)
    first, second = cluster.join("n1"), cluster.join("n2")
    cluster.wait_for(lambda s: s["healthy"] and s["alive"] == 2)
    asked = time.monotonic()
    first.signal(signal.SIGTERM)
    second.wait_for(lambda line: "became leader with token 2 (handed over)" in line)
    assert first.end() == exits.COMPLETE
    status = cluster.wait_for(lambda s: leads("n2", 2)(s) and s["healthy"] and s["alive"] == 1)
    assert time.monotonic() - asked < SLOW["lease_ttl"] / 4
    assert status["assignment"]["shares"][0]["vnodes"] == 256
    assert first.lines[-1].endswith("left the cluster")
    second.says("n1 has left")


def test_another_signal_leaves_at_once(cluster: Cluster) -> None:
    cluster.configure(**SLOW)
    first, second = cluster.join("n1"), cluster.join("n2")
    cluster.pause(second)
    first.signal(signal.SIGINT)
    first.wait_for(lambda line: "SIGINT: handing over" in line)
    asked = time.monotonic()
    while first.popen.poll() is None and time.monotonic() < asked + 10:
        # Those that come within a second count as the same one.
        first.signal(signal.SIGINT)
        time.sleep(0.1)
    assert first.end(1) == exits.COMPLETE
    assert time.monotonic() - asked > 1, "nobody could take over, and it did not wait"
    assert first.lines[-1].endswith("left the cluster at once")
    with cluster.store() as store:
        members = {m.id for m in Roster(store, Keys("default")).live()}
    assert members == {"n2"}, "its session is still there"


def test_a_leader_that_was_asleep_does_not_lead_any_more(cluster: Cluster) -> None:
    first, second = cluster.join("n1"), cluster.join("n2")
    cluster.wait_for(lambda s: s["healthy"] and s["alive"] == 2)
    cluster.pause(first)
    second.wait_for(lambda line: "became leader with token 2 (the lease before ran out)" in line)
    cluster.wait_for(lambda s: leads("n2", 2)(s) and s["alive"] == 1)
    first.signal(signal.SIGCONT)
    first.wait_for(lambda line: "joined again as n1" in line)
    status = cluster.wait_for(lambda s: s["healthy"] and s["alive"] == 2)
    assert leads("n2", 2)(status)
    assert sum("became leader" in line for line in first.lines) == 1
    rows = cluster.cli.json("cluster", "members")["members"]
    assert [(row["id"], row["leads"]) for row in rows] == [("n1", False), ("n2", True)]
    epochs = cluster.cli.json("cluster", "epochs")["epochs"]
    assert len({epoch["epoch"] for epoch in epochs}) == len(epochs)


def test_an_id_is_free_again_when_its_session_has_run_out(cluster: Cluster) -> None:
    cluster.configure(lease_ttl=1.0, renew_every=0.3, member_ttl=1.0)
    first = cluster.join("n1")
    taken = cluster.start("join", "--id", "n1")
    taken.wait_for(lambda line: "n1 is still a member" in line)
    assert taken.end() == exits.USAGE
    assert "another instance is a member under the id 'n1'" in "\n".join(taken.lines)
    first.signal(signal.SIGKILL)
    cluster.join("n1")
    assert cluster.wait_for(leads("n1", 2))


def test_join_tells_what_happens_as_json(cluster: Cluster) -> None:
    first = cluster.join("n1")
    second = cluster.start("join", "--json", "-v", "--barrier-every", "0.5", "--capacity", "2")
    second.wait_for(lambda line: json.loads(line)["event"] == "epoch")
    second.signal(signal.SIGTERM)
    assert second.end() == exits.COMPLETE
    events = [json.loads(line) for line in second.lines]
    kinds = [event["event"] for event in events]
    assert kinds[:3] == ["joined", "member-came", "leader"]
    assert events[2] | {"at": ""} == {
        "at": "",
        "event": "leader",
        "text": "n1 leads with token 1",
        "member": "n1",
        "token": 1,
        "how": "first",
        "me": False,
    }
    name = events[0]["member"]
    assert name.endswith(f"-{second.popen.pid}")
    owned = [event["owned"] for event in events if event["event"] == "assignment"]
    assert max(owned) > 256 / 2, "twice the capacity owns more"
    assert kinds[-1] == "left"
    first.says(f"{name} has left")


def test_members_show_how_far_they_follow_the_catalog(cluster: Cluster) -> None:
    member = cluster.join("n1", "--address", "peer=127.0.0.1:9090")
    with cluster.store() as store:
        Catalog(store).change(
            Create(Statement("orders", StatementKind.TABLE, "CREATE TABLE orders (id INT)"))
        )
    member.wait_for(lambda line: line.endswith("the catalog is at version 1"))
    status = cluster.wait_for(lambda s: s["healthy"])
    assert status["catalog"] == 1
    (row,) = cluster.cli.json("cluster", "members")["members"]
    assert (row["catalog"], row["addresses"]) == (1, {"peer": "127.0.0.1:9090"})
    with cluster.store() as store:
        other = Member("old", store.session(60).id, row["version"])
        Roster(store, Keys("default")).join(other)
    text = cluster.wait_for(lambda s: s["alive"] == 2 and not s["healthy"])["warnings"]
    assert "the catalog is at version 1, and members have replayed 0 (old); 1 (n1)" in text
    result = cluster.cli("cluster", "status")
    assert result.exit_code == exits.RESUMABLE
    assert "NEEDS ATTENTION" in result.stdout
    assert "warning: the catalog is at version 1" in result.stdout


def test_watch_shows_changes_as_they_happen(cluster: Cluster) -> None:
    cluster.join("n1")
    watching = cluster.start("members", "--watch", "--json")
    watching.wait_for(lambda line: [row["id"] for row in json.loads(line)["members"]] == ["n1"])
    with cluster.store() as store:
        session = store.session(60)
        joined = time.monotonic()
        Roster(store, Keys("default")).join(Member("n2", session.id, "1", role="batch", serves=False))
        watching.wait_for(lambda line: [r["id"] for r in json.loads(line)["members"]] == ["n1", "n2"])
        assert time.monotonic() - joined < 5
        ended = time.monotonic()
        session.close()
        watching.wait_for(lambda line: [r["state"] for r in json.loads(line)["members"]][1:] != ["alive"])
        assert time.monotonic() - ended < 5
    watching.signal(signal.SIGINT)
    assert watching.end() == exits.COMPLETE


def test_watch_says_each_thing_once_and_ends_after_its_time(cluster: Cluster) -> None:
    cluster.join("n1")
    cluster.wait_for(lambda s: s["healthy"])
    began = time.monotonic()
    result = cluster.cli("cluster", "members", "--watch", "1.5", "--json")
    assert 1.5 <= time.monotonic() - began < 10
    assert result.exit_code == exits.COMPLETE
    assert len(result.stdout.splitlines()) == 1, "renewals are no news"
    text = cluster.cli("cluster", "leader", "--watch", "0").stdout
    assert text.startswith("--- ")
    assert "n1 with token 1" in text


def test_watch_outlives_a_store_that_does_not_answer() -> None:
    terms = iter(["first", None, None, "first", "second"])

    def look() -> Screen[Any]:
        if (term := next(terms, "second")) is None:
            raise StoreUnavailable("no answer")
        return Screen(term, lambda text: [text])

    out, err = io.StringIO(), io.StringIO()
    watch(JsonOutput(out=out, err=err), MemoryStore(), "cluster/", look, 2.5)
    assert out.getvalue().splitlines() == ['"first"', '"second"']
    assert err.getvalue().splitlines() == ["the store does not answer, trying again: no answer"]


def test_watch_redraws_on_a_terminal(cluster: Cluster) -> None:
    cluster.join("n1")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "cluster", "status", "--watch", "1"]
    with subprocess.Popen(command, cwd=cluster.folder, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while chunk := _read(ours):
            seen += chunk
        assert process.wait(20) == exits.COMPLETE
    os.close(ours)
    assert seen.count(b"default, healthy") > 1
    assert b"\x1b[2K" in seen, "it was printed again below instead"
    assert seen.rstrip().endswith(b"\x1b[?25h"), "the cursor did not come back"


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # how a terminal says that nobody writes any more
        return b""


def test_without_a_cluster_the_way_to_one_is_named(cluster: Cluster) -> None:
    for arguments in (["status"], ["members"], ["epochs"], ["leader", "--watch", "1"]):
        result = cluster.cli("cluster", *arguments)
        assert result.exit_code == exits.USAGE
        assert "`penstock cluster join`" in result.stderr
    assert not cluster.store_path.exists()
    with cluster.store():
        pass
    result = cluster.cli("cluster", "status")
    assert result.exit_code == exits.USAGE
    assert "there is no cluster default in sqlite:///" in result.stderr
    assert "`penstock cluster join`" in result.stderr


def test_text_and_json_say_the_same(cluster: Cluster) -> None:
    cluster.join("n1", "--address", "peer=127.0.0.1:9090")
    cluster.join("n2")
    cluster.wait_for(lambda s: s["healthy"] and s["scopes"][0]["committed"] > 2)
    with cluster.store() as store:
        looking = Observer(store, ClusterConfig())
        views: list[tuple[Screen[Any], str]] = [
            (Screen(looking.members(), screens.members), "peer=127.0.0.1:9090"),
            (Screen(looking.assignments(history=True, vnodes=True), screens.assignments), "→ n2"),
            (Screen(looking.epochs(None, 5), screens.epochs), "committed"),
            (Screen(looking.barriers(5), screens.barriers), " ms"),
        ]
    for screen, word in views:
        text = _text(screen)
        assert word in text
        assert json.loads(json.dumps(screen.to_json()))["cluster"] == "default"
    assert "ABORTED" not in _text(views[2][0])
    shares = views[1][0].to_json()["current"]["shares"]
    for share in shares:
        assert f"{share['vnodes'] / 256:.1%}" in _text(views[1][0])
    unknown = cluster.cli("cluster", "epochs", "--scope", "orders")
    assert unknown.exit_code == exits.USAGE
    assert "its scopes: cluster" in unknown.stderr


def _text(screen: Screen[Any]) -> str:
    out = io.StringIO()
    TextOutput(out=out).show(screen)
    return out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--id", "a/b"], "cannot be the id of a member"),
        (["--capacity", "65"], "--capacity"),
        (["--address", "127.0.0.1:80"], "--address NAME=HOST:PORT"),
        (["--address", "a=127.0.0.1:80", "--address", "a=127.0.0.1:81"], "given twice"),
        (["--address", "a=127.0.0.1"], "HOST:PORT"),
        (["--barrier-every", "0"], "--barrier-every"),
    ],
)
def test_wrong_options_of_join(cluster: Cluster, arguments: list[str], said: str) -> None:
    result = cluster.cli("cluster", "join", *arguments)
    assert result.exit_code == exits.USAGE
    assert said in result.stderr
    assert not cluster.store_path.exists()


def test_what_a_member_sees_of_the_others() -> None:
    lease = Lease("n1#s1", "n1", token=1)
    n1, n2 = Member("n1", "s1", "1"), Member("n2", "s2", "1")
    led = Control(lease, (Term(1, "n1", "first"),))
    alone = SeenCluster("n2", "s2", Sight(led, (n1, n2), frozenset({"s1", "s2"})))
    left = SeenCluster("n2", "s2", Sight(led, (n1, n2), frozenset({"s2"})))
    assert [event.text for event in member_events.happened(alone, left, verbose=False)] == [
        "n1 is gone",
        "n1, who led with token 1, is gone",
    ]
    taken = Control(Lease("n2#s2", "n2", token=2), (Term(2, "n2", "expired"),))
    now = SeenCluster("n2", "s2", Sight(taken, (n2,), frozenset({"s2"})))
    (event,) = member_events.happened(left, now, verbose=False)
    assert event.text == "became leader with token 2 (the lease before ran out)"
    assert event.values["me"] is True
