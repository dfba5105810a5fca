from __future__ import annotations

import threading

import pytest

from penstock.errors import SqlError, StoreUnavailable, UsageError
from penstock.server.access import Access, Users
from penstock.server.access.access import FRESH, is_loopback
from penstock.server.access.throttle import FREE, LONGEST_WAIT, MOST, Throttle
from penstock.server.base import User
from penstock.store.base import Document
from penstock.store.memory import MemoryStore
from tests.server.access.scram_client import ScramClient


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def users() -> Users:
    return Users(MemoryStore())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(users: Users, clock: Clock) -> Access:
    return Access(users, clock=clock, wall=clock)


def test_users_are_added_changed_and_dropped(users: Users) -> None:
    assert not users.exist()
    users.add("anna", "one", schemas=["shop"])
    users.add("bob", admin=True)
    with pytest.raises(UsageError, match="exists"):
        users.add("anna", "two")
    assert [account.name for account in users.list()] == ["anna", "bob"]
    anna = users.find("anna")
    assert anna is not None
    assert anna.user == User("anna", schemas=frozenset({"shop"}))
    assert users.grant("anna", writes=True).user == User("anna", writes=True, schemas=frozenset({"shop"}))
    assert users.grant("anna", schemas=["a", "b"]).schemas == frozenset({"a", "b"})
    assert users.grant("anna", every_schema=True).schemas is None
    assert users.grant("anna", enabled=False).writes
    users.drop("anna")
    with pytest.raises(UsageError, match="last user"):
        users.drop("bob")
    users.drop("bob", last=True)
    with pytest.raises(UsageError, match="no user"):
        users.drop("bob")
    assert users.find("anna") is None


def test_nothing_of_a_password_is_shown_or_kept(users: Users) -> None:
    account = users.add("anna", "plain words")
    assert "plain words" not in repr(account)
    assert account.to_json() == {
        "name": "anna",
        "admin": False,
        "writes": False,
        "schemas": None,
        "enabled": True,
        "password": True,
        "created": account.created,
    }
    assert b"plain words" not in b"".join(d.value for d in users._store.scan("gateway/"))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "pg_catalog", "public", "../x", "x" * 64, "é", "a\n"])
def test_names_that_nobody_can_have(users: Users, name: str) -> None:
    with pytest.raises(UsageError):
        users.add(name, "x")
    assert users.find(name) is None


@pytest.mark.parametrize("password", ["", "a\0b", "x" * 1025])
def test_passwords_that_nobody_can_have(users: Users, password: str) -> None:
    with pytest.raises(UsageError):
        users.add("anna", password)


def test_concurrent_changes_are_all_kept(users: Users) -> None:
    users.add("anna", "x", schemas=[])

    def grow(n: int) -> None:
        from dataclasses import replace

        users.alter("anna", lambda a: replace(a, schemas=(a.schemas or frozenset()) | {f"s{n}"}))

    threads = [threading.Thread(target=grow, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    anna = users.find("anna")
    assert anna is not None
    assert anna.schemas == frozenset(f"s{n}" for n in range(8))


def test_trust_is_for_loopback_without_users_only(users: Users, clock: Clock) -> None:
    local, remote = Access(users, clock=clock), Access(users, host="0.0.0.0", clock=clock)
    assert local.trust("127.0.0.1")
    assert local.trust("::1")
    assert not local.trust("10.0.0.1")
    assert not local.trust("")
    assert not remote.trust("127.0.0.1")
    assert "without a password" in local.notice()
    assert "nobody can come in" in remote.notice()
    assert local.trusted("me") == User("me", admin=True)
    users.add("anna", "x")
    clock.now += FRESH
    assert not local.trust("127.0.0.1")
    assert "need a password" in local.notice()
    assert "unencrypted" in remote.notice()
    assert "unencrypted" not in Access(users, host="0.0.0.0", tls=True, clock=clock).notice()


def test_what_loopback_is() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"]))
    assert not any(
        map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.org", "", "::ffff:8.8.8.8"])
    )


def log_in(access: Access, name: str, password: str, address: str = "h") -> User:
    login, client = access.scram(name, address), ScramClient(password)
    assert client.believes(login.final(client.final(login.first(client.first()))))
    return login.user


def test_scram_of_known_unknown_and_disabled_users(access: Access, users: Users, clock: Clock) -> None:
    users.add("anna", "right")
    users.add("cert", None)
    assert log_in(access, "anna", "right") == User("anna")
    messages = []
    for name, password in (("anna", "wrong"), ("nobody", "right"), ("cert", "right"), ("a/b\n", "x")):
        with pytest.raises(SqlError) as caught:
            log_in(access, name, password)
        assert caught.value.sqlstate == "28P01"
        messages.append(caught.value.what.replace(name, "X"))
    assert len(set(messages)) == 1
    salts = {access.scram("nobody").first(b"n,,n=,r=a").split(b",")[1:][0] for _ in range(3)}
    assert len(salts) == 1
    users.grant("anna", enabled=False)
    clock.now += FRESH
    with pytest.raises(SqlError, match="disabled"):
        log_in(access, "anna", "right")
    with pytest.raises(SqlError, match="password authentication failed"):
        log_in(access, "anna", "wrong")


def test_passwords_are_checked_and_changes_elsewhere_are_followed(
    access: Access, users: Users, clock: Clock
) -> None:
    users.add("anna", "right", writes=True)
    for _ in range(3):
        assert access.password("anna", "right") == User("anna", writes=True)
    assert access.password("anna", "wrong") is None
    assert access.password("nobody", "right") is None
    assert access.failures == 2
    users.set_password("anna", "other")
    clock.now += FRESH
    assert access.password("anna", "right") is None
    assert access.password("anna", "other") == User("anna", writes=True)
    users.grant("anna", enabled=False)
    clock.now += FRESH
    assert access.password("anna", "other") is None


def test_a_password_that_was_right_is_not_hashed_again(
    access: Access, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users.add("anna", "right")
    assert access.password("anna", "right")
    monkeypatch.setattr("hashlib.pbkdf2_hmac", None)
    assert access.password("anna", "right")


def test_a_certificate_names_an_enabled_user_or_nobody(access: Access, users: Users, clock: Clock) -> None:
    users.add("anna")
    assert access.by_certificate("anna") == User("anna")
    assert access.by_certificate("node-1") is None
    assert access.by_certificate("") is None
    users.grant("anna", enabled=False)
    clock.now += FRESH
    assert access.by_certificate("anna") is None


def test_tokens_hold_grants_of_now_and_end(access: Access, users: Users, clock: Clock) -> None:
    users.add("anna", "x")
    token = access.issue(User("anna"), ttl=60)
    assert access.bearer(token) == User("anna")
    elsewhere = Access(Users(users._store), host="0.0.0.0", clock=clock, wall=clock)
    assert elsewhere.bearer(token) == User("anna")
    users.grant("anna", writes=True)
    clock.now += FRESH
    assert access.bearer(token) == User("anna", writes=True)
    clock.now += 60
    assert access.bearer(token) is None
    token = access.issue(User("anna"), ttl=60)
    users.set_password("anna", "y")
    clock.now += FRESH
    assert access.bearer(token) is None
    token = access.issue(User("anna"), ttl=60)
    users.grant("anna", enabled=False)
    clock.now += FRESH
    assert access.bearer(token) is None


def test_tokens_cannot_be_made_up(access: Access, users: Users) -> None:
    users.add("anna", "x")
    users.add("bob", "x", admin=True)
    anna, bob = access.issue(User("anna")).split("."), access.issue(User("bob")).split(".")
    for token in (
        "",
        ".",
        "x.y.z",
        f"{anna[0]}.{bob[1]}.{anna[2]}",
        f"{anna[0]}.{anna[1]}.",
        f"{anna[0]}..",
        "é" * 3,
        f"{anna[0]}.{anna[1]}.{anna[2]}x",
        "x" * 100_000,
    ):
        assert access.bearer(token) is None


def test_a_trusted_clients_token_ends_with_trust(access: Access, users: Users, clock: Clock) -> None:
    token = access.issue(access.trusted("me"))
    assert access.bearer(token) == User("me", admin=True)
    users.add("anna", "x")
    clock.now += FRESH
    assert access.bearer(token) is None


def test_guessing_is_slowed_down_for_the_guesser_alone(access: Access, users: Users, clock: Clock) -> None:
    users.add("anna", "right")
    for n in range(FREE):
        assert access.password("anna", f"guess {n}", "evil") is None
    with pytest.raises(SqlError, match="too many failed logins") as caught:
        access.password("anna", "right", "evil")
    assert caught.value.sqlstate == "28000"
    with pytest.raises(SqlError, match="too many"):
        access.scram("anna", "evil")
    assert access.password("anna", "right", "home")
    clock.now += 2
    assert log_in(access, "anna", "right", "evil") == User("anna")
    assert log_in(access, "anna", "right", "evil") == User("anna")


def test_throttle_doubles_forgets_and_stays_small() -> None:
    throttle = Throttle()
    waits = []
    for n in range(20):
        throttle.failed("a", "u", float(n))
        waits.append(throttle.wait("a", "u", float(n)))
    assert waits[: FREE - 1] == [0.0] * (FREE - 1)
    assert waits[FREE - 1 : FREE + 3] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_WAIT
    throttle.failed("a", "u", 10_000.0)
    assert throttle.wait("a", "u", 10_000.0) == 0
    for n in range(MOST + 10):
        throttle.failed("a", str(n), 1.0)
    assert len(throttle._records) == MOST


class _Down(MemoryStore):
    def get(self, key: str) -> Document | None:
        raise StoreUnavailable("no answer")


def test_a_store_that_does_not_answer_is_no_wrong_password() -> None:
    with pytest.raises(SqlError, match="cannot be looked up") as caught:
        Access(Users(_Down())).password("anna", "x")
    assert caught.value.sqlstate == "57P03"


def test_who_is_in_has_the_grants_of_now(access: Access, users: Users, clock: Clock) -> None:
    trusted = access.trusted("anna")
    assert access.current(trusted) == trusted
    users.add("anna", "one", schemas=["shop"])
    users.add("root", "one", admin=True)
    clock.now += FRESH
    anna = access.current(trusted)
    assert anna == User("anna", schemas=frozenset({"shop"}))
    with pytest.raises(SqlError, match="removed") as caught:
        access.current(access.trusted("penstock"))
    assert caught.value.sqlstate == "28000"
    users.grant("anna", schemas=["desk"])
    clock.now += FRESH
    assert access.current(anna).schemas == frozenset({"desk"})
    users.grant("anna", enabled=False)
    clock.now += FRESH
    with pytest.raises(SqlError, match="disabled"):
        access.current(anna)


def test_who_is_in_stays_as_is_while_the_store_is_away(clock: Clock) -> None:
    class Away(MemoryStore):
        asked = 0

        def get(self, key: str) -> Document | None:
            self.asked += 1
            raise StoreUnavailable("nobody there")

    store = Away()
    access, anna = Access(Users(store), clock=clock), User("anna", schemas=frozenset({"shop"}))
    for _ in range(3):
        assert access.current(anna) == anna
    assert store.asked == 1
    clock.now += 60
    assert access.current(anna) == anna
    assert store.asked == 2


def test_throttle_counts_a_site_and_keeps_no_long_names() -> None:
    throttle = Throttle()
    for number in range(20):
        throttle.failed(f"2001:db8::{number:x}", "anna", 0.0)
        throttle.failed("::ffff:10.0.0.1", "anna", 0.0)
    assert throttle.wait("2001:db8::ffff", "anna", 0.0) > 0
    assert throttle.wait("10.0.0.1", "anna", 0.0) > 0
    assert throttle.wait("2001:db8:0:1::1", "anna", 0.0) == 0
    throttle.failed("10.0.0.2", "x" * 1_000_000, 0.0)
    assert max(len(part) for key in throttle._records for part in key) < 100


def test_a_clock_that_ran_ahead_makes_no_token_that_lives_for_ever(users: Users) -> None:
    now = 1_000_000.0
    access = Access(users, wall=lambda: now)
    users.add("anna", "x")
    now += 365 * 86_400
    ahead = access.issue(User("anna"), 86_400)
    now -= 365 * 86_400
    assert access.bearer(ahead) is None
    day = access.issue(User("anna"), 86_400)
    now -= 60
    assert access.bearer(day) == User("anna")
    now += 86_400 + 61
    assert access.bearer(day) is None
