from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.netns import Network
from tests.faults.conftest import connected

ROOT = Path(__file__).parents[2]
PYTHON = [sys.executable, "-I", "-S", "-c"]
PORT = 7777
RECEIVE = f"""
import socket
box = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
box.bind(("", {PORT}))
print("ready", flush=True)
while True:
    print(box.recv(100).decode(), flush=True)
"""
SEND = f"""
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], {PORT}))
"""
ACCEPT_TWO = f"""
import socket
server = socket.create_server(("", {PORT}))
print("ready", flush=True)
server.accept()
server.accept()
"""


class Post:
    """Sends datagrams between the namespaces of a network, and knows which ones arrived."""

    def __init__(self, network: Network) -> None:
        self.network = network
        count = range(3)
        self.boxes = [network.run(i, [*PYTHON, RECEIVE], stdout=subprocess.PIPE) for i in count]
        for box in self.boxes:
            assert self._line(box) == "ready"

    def send(self, sender: int, receiver: int, text: str) -> None:
        command = [*PYTHON, SEND, self.network.address(receiver), text]
        assert self.network.run(sender, command).wait(10) == 0

    def arrived(self, receiver: int) -> list[str]:
        """What came since the last call. The network is healed: what is sent last must arrive last."""
        self.network.heal()
        self.send(receiver, receiver, "last")
        texts = []
        while (text := self._line(self.boxes[receiver])) != "last":
            texts.append(text)
        return texts

    def everyone_to_everyone(self) -> None:
        for sender in range(3):
            for receiver in {0, 1, 2} - {sender}:
                self.send(sender, receiver, f"{sender}>{receiver}")

    def all_arrived(self) -> set[str]:
        return {text for receiver in range(3) for text in self.arrived(receiver)}

    def _line(self, box: subprocess.Popen[bytes]) -> str:
        assert box.stdout is not None
        return box.stdout.readline().decode().strip()

    def close(self) -> None:
        for box in self.boxes:
            box.kill()
            box.communicate()


@pytest.fixture
def post(network: Network) -> Iterator[Post]:
    post = Post(network)
    yield post
    post.close()


EVERY = {"0>1", "0>2", "1>0", "1>2", "2>0", "2>1"}


def test_everyone_reaches_everyone(post: Post) -> None:
    post.everyone_to_everyone()
    assert post.all_arrived() == EVERY


def test_the_host_reaches_in_and_out(network: Network) -> None:
    with socket.create_server((network.host, 0)) as server:
        connect = (
            "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).send(b'hi')"
        )
        client = network.run(1, [*PYTHON, connect, network.host, str(server.getsockname()[1])])
        server.settimeout(5)
        connection, (address, _) = server.accept()
        with connection:
            assert (address, connection.recv(10)) == (network.address(1), b"hi")
        assert client.wait(5) == 0


def test_one_that_is_cut_off_neither_hears_nor_is_heard(post: Post) -> None:
    post.network.cut(0)
    post.everyone_to_everyone()
    assert post.all_arrived() == {"1>2", "2>1"}
    post.everyone_to_everyone()
    assert post.all_arrived() == EVERY


def test_two_can_be_parted_while_the_third_reaches_both(post: Post) -> None:
    post.network.cut_between(0, 2)
    post.everyone_to_everyone()
    assert post.all_arrived() == EVERY - {"0>2", "2>0"}


def test_loss_in_one_direction_only(post: Post) -> None:
    post.network.one_way(0, 1)
    post.everyone_to_everyone()
    assert post.all_arrived() == EVERY - {"0>1"}
    post.everyone_to_everyone()
    assert post.all_arrived() == EVERY


def test_the_host_is_cut_off_too(network: Network) -> None:
    listen = (
        f"import socket; s = socket.create_server(('', {PORT})); print(flush=True); s.accept(); s.accept()"
    )
    server = network.run(0, [*PYTHON, listen], stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()
    socket.create_connection((network.address(0), PORT), 5).close()
    network.cut(0)
    with pytest.raises(TimeoutError):
        socket.create_connection((network.address(0), PORT), 0.3)
    network.heal()
    socket.create_connection((network.address(0), PORT), 5).close()
    assert server.wait(5) == 0
    server.stdout.close()


def namespaces_of(process: int) -> int:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return listed.count(f"pn{process}-")


def test_two_networks_know_nothing_of_each_other(network: Network) -> None:
    with connected(1) as other:
        assert other.address(0).rsplit(".", 1)[0] != network.address(0).rsplit(".", 1)[0]
        connect = f"import socket; socket.create_connection(('{network.address(0)}', {PORT}), 5)"
        stranger = other.run(0, [*PYTHON, connect], stderr=subprocess.PIPE)
        assert b"Network is unreachable" in stranger.communicate(timeout=10)[1]


def test_closing_ends_what_was_started_and_leaves_nothing(network: Network) -> None:
    before = namespaces_of(os.getpid())
    with connected(1) as other:
        sleeper = other.run(0, ["sleep", "1000"])
        assert is_running(sleeper.pid)
        assert namespaces_of(os.getpid()) == before + 2
    assert sleeper.returncode == -signal.SIGKILL
    assert namespaces_of(os.getpid()) == before


CRASH = """
import os, signal
from servers.netns import Network
network = Network(2)
print(network.run(1, ["sleep", "1000"]).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_crashed_process_left_is_removed_by_the_next_one(network: Network) -> None:
    with subprocess.Popen([sys.executable, "-c", CRASH], cwd=ROOT, stdout=subprocess.PIPE) as crashed:
        assert crashed.stdout is not None
        orphan = int(crashed.stdout.readline())
        assert crashed.wait(30) == -signal.SIGKILL
    with connected(1):
        assert namespaces_of(crashed.pid) == 0
        assert namespaces_of(os.getpid()) > 0
    deadline = time.monotonic() + 10
    while is_running(orphan) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(orphan)


def is_running(process: int) -> bool:
    """Whether the process is there, and more than the entry of a dead one that nobody waited for."""
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
