from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.cluster.peer import Hello, PeerServer, ask, split
from penstock.errors import PeerUnreachable, UsageError
from servers.pki import Authority

HELLO = Hello("one", "s1", "1.0", "one", 7, True, 3)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[PeerServer]:
    server = PeerServer("127.0.0.1:0", lambda: HELLO, authority.issue("server")).start()
    yield server
    server.stop()


def test_an_instance_tells_who_it_is() -> None:
    server = PeerServer("127.0.0.1:0", lambda: HELLO, None).start()
    try:
        hello, seconds = ask(server.address, None)
    finally:
        server.stop()
    assert hello == HELLO
    assert 0 < seconds < 1


def test_members_of_one_authority_talk_to_each_other(secured: PeerServer, authority: Authority) -> None:
    assert ask(secured.address, authority.issue("client"))[0] == HELLO


def test_without_a_certificate_nobody_is_answered(secured: PeerServer) -> None:
    with pytest.raises(PeerUnreachable, match="cannot be reached"):
        ask(secured.address, None)


def test_a_certificate_of_another_authority_is_refused(
    secured: PeerServer, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    stranger = other.issue("stranger")
    with pytest.raises(PeerUnreachable):
        ask(secured.address, stranger)
    with pytest.raises(PeerUnreachable):
        ask(secured.address, other.trusting(stranger, authority))


def test_an_open_address_needs_certificates() -> None:
    with pytest.raises(UsageError, match=r"no \[tls\] section"):
        PeerServer("0.0.0.0:0", lambda: HELLO, None)


def test_nobody_there_is_said_so() -> None:
    with pytest.raises(PeerUnreachable, match="is the instance running"):
        ask("127.0.0.1:1", None)


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_a_bad_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        split(address)
