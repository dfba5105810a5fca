"""What people are shown of a cluster, over stores that were prepared step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import ClusterConfig
from penstock.control.cluster.documents.control_document import Room
from penstock.control.cluster.documents.epoch_records import Records
from penstock.control.cluster.documents.members import Roster
from penstock.control.cluster.rules.commands import Prepare
from penstock.control.cluster.rules.model import BarrierAck, BarrierKind, Member, Outcome
from penstock.control.cluster.views.observer import Observer
from penstock.control.cluster.views.views import MemberState, OpenBarrier
from penstock.errors import UsageError
from penstock.store.memory import MemoryStore
from tests.control.cluster.support import CONFIG, KEYS, SCOPE, Instance, World


@pytest.fixture
def world() -> World:
    """Three members that a leads: everybody has a seat, and epoch 1 is committed."""
    world = World("a", "b", "c")
    world.instances[0].leads().epoch()
    return world


def observer(world: World) -> Observer:
    return Observer(world.store, CONFIG, world.clock)


def announce(world: World, leader: Instance, kind: BarrierKind = BarrierKind.EPOCH) -> int:
    """Open a barrier that nobody drives; its number."""
    held, seats = leader.candidate.current(), world.control.assignment.seats
    control, _ = Room(world.store, KEYS).submit(
        Prepare(held.owner, held.token, SCOPE, kind, seats, "by hand")
    )
    barrier = control.scope(SCOPE).open
    assert barrier is not None
    return barrier.epoch


def answer(world: World, instance: Instance, epoch: int, refusal: str | None = None) -> None:
    version = world.control.assignment.version
    ack = BarrierAck(instance.member.id, instance.session.id, epoch, version, refusal=refusal)
    Records(world.store, KEYS).write_ack(SCOPE, ack)


def opened(world: World) -> OpenBarrier:
    (found,) = observer(world).barriers(5).open
    return found


def test_a_cluster_without_worries(world: World) -> None:
    view = observer(world).status(catalog=0)
    assert view.healthy
    assert view.warnings == ()
    assert view.leader is not None
    assert (view.leader.member, view.leader.token, view.leader.how) == ("a", 1, "first")
    assert (view.alive, view.roles) == (3, {"node": 3})
    assert [share.member for share in view.assignment.shares] == ["a", "b", "c"]
    assert sum(share.vnodes for share in view.assignment.shares) == view.assignment.vnodes == CONFIG.vnodes
    assert view.assignment.least == min(share.vnodes for share in view.assignment.shares)
    (scope,) = view.scopes
    assert (scope.name, scope.committed, scope.open, scope.aborted) == (SCOPE, 1, None, None)


def test_the_balance_counts_capacity(world: World) -> None:
    world.join("d", capacity=4)
    world.instances[0].epoch()
    view = observer(world).assignments().current
    (big,) = (share for share in view.shares if share.member == "d")
    assert big.per_capacity == round(big.vnodes / 4, 1)
    assert view.most < big.vnodes


def test_a_renewal_is_no_change(world: World) -> None:
    looking = observer(world)
    before = looking.status(0)
    world.pass_time(CONFIG.renew_every)
    world.instances[0].leads()
    after = looking.status(0)
    assert before == after
    assert before.leader is not None and after.leader is not None
    assert after.leader.sequence == before.leader.sequence + 1


def test_a_leader_that_died(world: World) -> None:
    world.instances[0].die()
    view = observer(world).status(0)
    assert view.leader is None
    assert view.vacancy == "a, who led with token 1, is gone"
    assert view.gone == ("a",)
    assert f"there is no leader: {view.vacancy}" in view.warnings
    assert not view.healthy


def test_a_leader_that_resigned_and_the_next_one(world: World) -> None:
    a, b, _ = world.instances
    a.candidate.resign()
    a.candidate.step()
    assert observer(world).leader().vacancy == "a, who led with token 1, gave it up"
    b.leads()
    view = observer(world).leader()
    assert view.leader is not None
    assert (view.leader.member, view.leader.token) == ("b", 2)
    assert [(term.token, term.member, term.how) for term in view.terms] == [
        (2, "b", "handed over"),
        (1, "a", "first"),
    ]


def test_only_who_looks_on_can_tell_that_a_lease_is_not_renewed(world: World) -> None:
    looking = observer(world)
    assert looking.leader().leader is not None
    world.pass_time(CONFIG.lease_ttl)
    assert looking.leader().vacancy == "a, who led with token 1, has not renewed the lease of 5 s"
    assert observer(world).leader().leader is not None
    world.instances[0].leads()
    assert looking.leader().leader is not None


def test_members(world: World) -> None:
    _, b, c = world.instances
    b.roster.join(replace(b.member, leaving=True, addresses={"peer": "127.0.0.1:9"}))
    c.die()
    Roster(world.store, KEYS).join(
        Member("batch-1", world.store.session(60).id, "1", role="batch", serves=False)
    )
    rows = {row.id: row for row in observer(world).members().members}
    assert [(row.id, row.state, row.leads) for row in rows.values()] == [
        ("a", MemberState.ALIVE, True),
        ("b", MemberState.LEAVING, False),
        ("batch-1", MemberState.ALIVE, False),
        ("c", MemberState.GONE, False),
    ]
    assert rows["a"].vnodes == len(world.control.assignment.vnodes("a"))
    assert rows["b"].addresses == {"peer": "127.0.0.1:9"}
    assert (rows["batch-1"].vnodes, rows["batch-1"].catalog) == (0, None)
    status = observer(world).status(0)
    assert status.roles == {"batch": 1, "node": 2}
    assert status.leaving == ("b",)


def test_a_member_of_the_same_name_under_another_session_owns_nothing(world: World) -> None:
    world.instances[1].die()
    world.join("b")
    (row,) = (row for row in observer(world).members().members if row.id == "b")
    assert (row.state, row.vnodes) == (MemberState.ALIVE, 0)
    warnings = observer(world).status(0).warnings
    assert "b has no seat in the assignment yet: it owns nothing" in warnings
    assert any(text.startswith("b is gone, and its ") for text in warnings)


def test_a_member_without_a_seat_is_warned_of_until_it_has_one(world: World) -> None:
    world.join("d")
    assert observer(world).status(0).warnings == ("d has no seat in the assignment yet: it owns nothing",)
    world.instances[0].epoch()
    assert observer(world).status(0).healthy


def test_different_versions(world: World) -> None:
    a, b, c = world.instances
    a.roster.join(replace(a.member, catalog=4))
    b.roster.join(replace(b.member, catalog=4, version="2"))
    c.roster.join(replace(c.member, catalog=3))
    assert observer(world).status(catalog=4).warnings == (
        "members run different versions of Penstock: 1 (a, c); 2 (b)",
        "the catalog is at version 4, and members have replayed 3 (c); 4 (a, b)",
    )


def test_a_batch_run_follows_no_catalog(world: World) -> None:
    batch = Member("r", world.store.session(60).id, "1", role="batch", serves=False)
    Roster(world.store, KEYS).join(batch)
    for each in world.instances:
        each.roster.join(replace(each.member, catalog=2))
    assert observer(world).status(catalog=2).healthy


def test_when_all_are_gone_one_warning_says_it(world: World) -> None:
    for instance in list(world.instances):
        instance.die()
    view = observer(world).status(0)
    assert view.warnings == ("nobody takes part: start a member with `penstock cluster join`",)
    assert view.leader is None


def test_an_open_barrier_says_who_answered_and_who_did_not(world: World) -> None:
    a, b, c = world.instances
    epoch = announce(world, a)
    assert (opened(world).acked, opened(world).ignored) == ((), {})
    answer(world, a, epoch)
    answer(world, b, epoch, refusal="the disk is full")
    c.die()
    found = opened(world)
    assert found.required == ("a", "b", "c")
    assert found.acked == ("a",)
    assert found.refused == {"b": "the disk is full"}
    assert found.missing == found.gone == ("c",)
    status = observer(world).status(0)
    assert status.scopes[0].open == found


def test_a_barrier_is_overdue_when_it_was_seen_open_for_too_long(world: World) -> None:
    a = world.instances[0]
    epoch = announce(world, a)
    looking = observer(world)
    assert looking.status(0).healthy
    for _ in range(int(CONFIG.barrier_timeout)):
        world.pass_time(1)
        a.leads()
    assert looking.status(0).warnings == (
        f"epoch {epoch} of {SCOPE} is open for too long; it waits for a, b, c",
    )
    assert observer(world).status(0).healthy, "who looks for the first time cannot know"
    a.duties.step()
    (warning,) = looking.status(0).warnings
    assert warning.startswith(f"epoch {epoch} of {SCOPE} was given up: ")
    aborted = looking.status(0).scopes[0].aborted
    assert aborted is not None
    assert (aborted.epoch, aborted.reason) == (epoch, "its leader did not finish it")


def test_epochs_newest_first_and_no_more_than_asked_for(world: World) -> None:
    a = world.instances[0]
    a.epoch()
    announce(world, a)
    a.duties.step()
    a.epoch()
    found = observer(world).epochs(None, 20).epochs
    assert [(each.epoch, each.outcome) for each in found] == [
        (4, Outcome.COMMIT),
        (3, Outcome.ABORT),
        (2, Outcome.COMMIT),
        (1, Outcome.COMMIT),
    ]
    assert found[0].acked == ("a", "b", "c")
    assert (found[0].token, found[0].assignment) == (1, 1)
    assert (found[0].parts, found[0].files) == (6, 3)
    assert [each.epoch for each in observer(world).epochs(SCOPE, 2).epochs] == [4, 3]
    assert [each.epoch for each in observer(world).barriers(1).decided] == [4]
    announce(world, a)
    assert [each.epoch for each in observer(world).epochs(SCOPE, 2).epochs] == [4, 3]


def test_ignored_acks_are_added_up(world: World) -> None:
    a = world.instances[0]
    epoch = announce(world, a)
    records, session = Records(world.store, KEYS), a.session.id
    records.write_ack(SCOPE, BarrierAck("x", "s", epoch, 1))
    records.write_ack(SCOPE, BarrierAck("a", session, epoch, assignment=9))
    assert observer(world).barriers(5).ignored == {"not required": 1, "other assignment": 1}


def test_an_unknown_scope_is_an_error_that_names_the_known(world: World) -> None:
    with pytest.raises(UsageError, match="no scope 'x'") as raised:
        observer(world).epochs("x", 5)
    assert raised.value.hint == f"its scopes: {SCOPE}"


def test_the_history_says_what_moved(world: World) -> None:
    world.join("d")
    world.instances[0].epoch()
    view = observer(world).assignments(history=True, vnodes=True)
    newest, oldest = view.history or ()
    assert (newest.version, newest.members) == (2, ("a", "b", "c", "d"))
    gained = world.control.assignment.vnodes("d")
    assert newest.moved == sum(move.vnodes for move in newest.moves) == len(gained)
    assert {move.target for move in newest.moves} == {"d"}
    assert (oldest.version, oldest.moved) == (1, CONFIG.vnodes)
    assert {(move.source, move.target) for move in oldest.moves} == {("", "a"), ("", "b"), ("", "c")}
    assert view.owners is not None
    assert [number for number, owner in enumerate(view.owners) if owner == "d"] == list(gained)


def test_the_oldest_version_that_is_kept_has_no_comparison(world: World) -> None:
    world.join("d")
    world.instances[0].epoch()
    Records(world.store, KEYS).prune_assignments(2)
    (only,) = observer(world).assignments(history=True).history or ()
    assert (only.version, only.moved, only.moves) == (2, None, ())


def test_history_and_map_are_left_out_unless_asked_for(world: World) -> None:
    view = observer(world).assignments()
    assert (view.history, view.owners) == (None, None)


def test_without_a_cluster_the_error_says_what_to_type(world: World) -> None:
    nowhere = Observer(world.store, ClusterConfig("elsewhere"))
    for look in (nowhere.look, nowhere.members, nowhere.leader):
        with pytest.raises(UsageError, match="no cluster elsewhere") as raised:
            look()
        assert "`penstock cluster join`" in (raised.value.hint or "")
        assert "clusters in this store: test " in (raised.value.hint or "")


def test_instances_of_batch_runs_are_shown_without_a_cluster() -> None:
    store = MemoryStore()
    batch = Member("r", store.session(60).id, "1", role="batch", serves=False)
    Roster(store, KEYS).join(batch)
    looking = Observer(store, CONFIG)
    assert [row.id for row in looking.members().members] == ["r"]
    with pytest.raises(UsageError, match="no cluster"):
        looking.status(0)


def test_a_password_is_not_shown(world: World) -> None:
    world.store.url = "etcd://me:hush@h1,h2/p"
    assert observer(world).status(0).store == "etcd://me:***@h1,h2/p"
    with pytest.raises(UsageError) as raised:
        Observer(world.store, ClusterConfig("elsewhere")).look()
    assert "hush" not in str(raised.value)
