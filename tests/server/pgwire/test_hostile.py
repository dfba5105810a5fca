"""Whatever clients send: the server stays up, its memory bounded, and others are served meanwhile.

Everything random comes from fixed seeds.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock.server.pgwire.server import ClientLimits
from tests.server.pgwire.raw import (
    CANCEL,
    SSL,
    SYNC,
    Raw,
    bind,
    describe,
    error,
    execute,
    message,
    parse,
    query,
    request,
    rows,
    startup,
)
from tests.server.pgwire.serving import Serving, serving
from tests.server.waiting import wait_until

SOMEONE = {"user": "someone", "database": "penstock"}
LARGEST = 1024 * 1024


@pytest.fixture(scope="module")
def hostile() -> Iterator[Serving]:
    limits = ClientLimits(connections=200, greeting=50, authentication=5.0, message=LARGEST)
    with serving(limits=limits) as running:
        yield running
        wait_until(lambda: running.server.connections == 0)
        wait_until(lambda: running.engine.clients == 0)
        assert not running.engine.running


@pytest.fixture(autouse=True)
def others_are_served(hostile: Serving) -> Iterator[None]:
    """One who was there before, and one who comes after."""
    with Raw(hostile.port) as before:
        before.enter()
        yield
        assert rows(before.ask(query("SELECT 1"))) == [[b"1"]]
    with Raw(hostile.port) as after:
        after.enter()
        assert rows(after.ask(query("SELECT 1"))) == [[b"1"]]


def _memory() -> int:
    """Bytes of memory that this process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _throw(port: int, data: bytes, *, inside: bool) -> None:
    """Send it, and leave without waiting for what comes of it."""
    with Raw(port) as client, suppress(OSError):
        if inside:
            client.enter()
        client.send(data)
        client.sock.shutdown(socket.SHUT_WR)
        assert client.is_closed()


VALID = (
    query("SELECT 1"),
    query("SELECT * FROM numbers(20)"),
    query("BEGIN"),
    query("ROLLBACK"),
    parse("SELECT $1::int", "s"),
    parse("SELECT 1"),
    bind([b"1"], name="s"),
    bind(),
    describe("S", "s"),
    describe("P"),
    execute(),
    execute(limit=1),
    message("H"),
    message("C", b"Ss\0"),
    message("d", b"data"),
    message("c"),
    message("f", b"why\0"),
    message("p", b"secret\0"),
    message("F", bytes(10)),
    SYNC,
    message("X"),
)


def _random(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 400))


def _flipped(chance: random.Random) -> bytes:
    """Messages that are right, but for some bytes."""
    data = bytearray(b"".join(chance.choices(VALID, k=chance.randrange(1, 12))))
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _truncated(chance: random.Random) -> bytes:
    data = b"".join(chance.choices(VALID, k=chance.randrange(1, 8)))
    return data[: chance.randrange(1, len(data))]


def _out_of_order(chance: random.Random) -> bytes:
    return b"".join(chance.choices(VALID, k=chance.randrange(5, 60)))


def _wrong_lengths(chance: random.Random) -> bytes:
    kind = chance.choice("QPBDECHSXdcfpF?\0")
    length = chance.choice([-(2**31), -1, 0, 3, 4, 5, LARGEST, LARGEST + 1, 2**31 - 1])
    return kind.encode() + struct.pack(">i", length) + chance.randbytes(chance.randrange(50))


def _bad_bodies(chance: random.Random) -> bytes:
    """Whole messages whose inside is random."""
    made = []
    for _ in range(chance.randrange(1, 10)):
        made.append(message(chance.choice("QPBDECdfF"), chance.randbytes(chance.randrange(40))))
    return b"".join(made) + SYNC


@pytest.mark.parametrize("make", [_random, _flipped, _truncated, _out_of_order, _wrong_lengths, _bad_bodies])
def test_anything_once_inside(hostile: Serving, make: Callable[[random.Random], bytes]) -> None:
    chance = random.Random(f"inside {make.__name__}")
    for _ in range(60):
        _throw(hostile.port, make(chance), inside=True)


def _bad_startup(chance: random.Random) -> bytes:
    made = bytearray(startup(SOMEONE, chance.choice([0, 2, 7])))
    for _ in range(chance.randrange(1, 5)):
        made[chance.randrange(len(made))] = chance.randrange(256)
    return bytes(made)


def _bad_requests(chance: random.Random) -> bytes:
    codes = [SSL, CANCEL, SSL + 1, (3 << 16) | 0, (2 << 16) | 0, 0, -1]
    return b"".join(request(chance.choice(codes), chance.randbytes(chance.randrange(300))) for _ in range(3))


@pytest.mark.parametrize("make", [_random, _bad_startup, _bad_requests, _wrong_lengths])
def test_anything_at_the_door(hostile: Serving, make: Callable[[random.Random], bytes]) -> None:
    chance = random.Random(f"door {make.__name__}")
    for _ in range(100):
        _throw(hostile.port, make(chance), inside=False)


def test_messages_that_claim_to_be_huge_are_not_waited_for(hostile: Serving) -> None:
    with Raw(hostile.port) as client:
        client.enter()
        client.send(b"Q" + struct.pack(">i", LARGEST + 1) + b"x" * 100)
        assert error(client.read_until("E"))["S"] == "FATAL"
        assert client.is_closed()
    with Raw(hostile.port) as client:
        client.send(struct.pack(">i", 20_000) + bytes(100))
        assert client.read()[0] == "E"
        assert client.is_closed()


def test_half_of_a_large_message_from_many_costs_what_was_sent(hostile: Serving) -> None:
    with ExitStack() as stack:
        before = _memory()
        for _ in range(100):
            client = stack.enter_context(Raw(hostile.port))
            client.enter()
            client.send(b"Q" + struct.pack(">i", LARGEST) + b"x" * 50_000)
        wait_until(lambda: hostile.server.connections >= 100)
        assert _memory() - before < 60 * 1024 * 1024


def test_what_is_sent_ahead_is_left_in_the_socket(hostile: Serving) -> None:
    with Raw(hostile.port, timeout=0.5) as client:
        client.enter()
        client.send(query("SELECT * FROM slow()"))
        assert hostile.engine.started.acquire(timeout=10)
        before, sent = _memory(), 0
        with suppress(TimeoutError):
            while sent < 256 * 1024 * 1024:
                sent += client.sock.send(query("SELECT 1") * 1000)
        assert sent < 64 * 1024 * 1024
        assert _memory() - before < 64 * 1024 * 1024
        for _, session, _ in list(hostile.server._sessions.values()):
            session.cancel()


def test_a_flood_at_the_door_does_not_shut_others_out(hostile: Serving) -> None:
    with ExitStack() as stack:
        flood = [stack.enter_context(Raw(hostile.port)) for _ in range(300)]
        for number, client in enumerate(flood):
            with suppress(OSError):
                if number % 3 == 0:
                    client.send(startup(SOMEONE)[:9])
                elif number % 3 == 1:
                    client.send(request(SSL)[:5])
        for _ in range(5):
            with Raw(hostile.port) as honest:
                honest.enter()
                assert rows(honest.ask(query("SELECT 1"))) == [[b"1"]]
        wait_until(lambda: len(hostile.server._greeting) <= 50)
    wait_until(lambda: len(hostile.server._greeting) == 0)


def test_many_slow_readers_cost_little(hostile: Serving) -> None:
    with ExitStack() as stack:
        before = _memory()
        for _ in range(20):
            client = stack.enter_context(Raw(hostile.port))
            client.enter()
            client.send(query("SELECT * FROM wide(1000000)"))
            assert client.read()[0] == "T"
        wait_until(lambda: sum(each.pulled for each in hostile.engine.running) >= 20)
        with Raw(hostile.port) as other:
            other.enter()
            assert rows(other.ask(query("SELECT 1"))) == [[b"1"]]
        # A batch of 2 MB, its rows as messages, what the sockets hold, and what malloc does not give back.
        assert _memory() - before < 20 * 24 * 1024 * 1024


def test_names_without_end_are_refused_at_some_point(hostile: Serving) -> None:
    with Raw(hostile.port) as client:
        client.enter()
        said: list[tuple[str, bytes]] = []
        for start in range(0, 12_000, 1000):
            names = range(start, start + 1000)
            said = client.ask(*(parse("SELECT 1", f"s{n}") for n in names), SYNC)
            if said[-2][0] == "E":
                break
        assert error(said)["C"] == "53400"
        client.ask(query("BEGIN"))
        client.ask(query("DEALLOCATE ALL"))
        client.ask(parse("SELECT 1", "s"), SYNC)
        said = client.ask(*(bind(portal=f"p{n}", name="s") for n in range(1100)), SYNC)
        assert error(said)["C"] == "53400"


def test_idle_connections_cost_little(hostile: Serving) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Raw(hostile.port)).enter()
        before = _memory()
        for _ in range(150):
            client = stack.enter_context(Raw(hostile.port))
            client.enter()
            client.ask(query("SELECT 1"))
        each = (_memory() - before) / 150
        # This counts the client's side too.
        assert each < 64 * 1024
        assert hostile.server.threads < 50
