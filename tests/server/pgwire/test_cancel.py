"""Clients that go away, change their mind, or do not read."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import psycopg
import pytest

from tests.server.pgwire.raw import SYNC, Raw, bind, error, execute, parse, query, rows
from tests.server.pgwire.serving import Serving
from tests.server.waiting import wait_until


def _idle(server: Serving, clients: int = 0) -> None:
    wait_until(lambda: not server.engine.running and server.engine.clients == clients)


@pytest.mark.parametrize("reset", [False, True])
def test_a_client_that_goes_away_cancels_its_query(server: Serving, reset: bool) -> None:
    server.engine.canceled.clear()
    with Raw(server.port) as client:
        client.enter()
        client.send(query("SELECT * FROM slow()"))
        assert server.engine.started.acquire(timeout=10)
        if reset:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _idle(server)
    assert len(server.engine.canceled) == 1


def test_a_client_that_sent_much_ahead_and_went_away_is_noticed(server: Serving) -> None:
    ahead = parse("SELECT 1") + bind() + execute() + SYNC
    with Raw(server.port) as client:
        client.enter()
        client.send(query("SELECT * FROM slow()"))
        assert server.engine.started.acquire(timeout=10)
        # More than is read ahead, so that the end of the connection is not read either. Less than what fits
        # into the socket besides: the end comes after all that was sent, and may not get through before.
        client.send(ahead * (100_000 // len(ahead)))
    _idle(server)


def test_psycopg_cancels(server: Serving) -> None:
    with psycopg.connect(server.url, autocommit=True) as client:

        def cancel() -> None:
            server.engine.started.acquire(timeout=10)
            client.cancel_safe()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SELECT * FROM slow()")
        thread.join()
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_slow_reader_slows_the_query(server: Serving) -> None:
    with Raw(server.port) as client:
        client.enter()
        # 4 GB, of which a part of a batch is read.
        client.send(query("SELECT * FROM wide(4000000)"))
        assert client.read()[0] == "T"
        [execution] = server.engine.running
        wait_until(lambda: execution.pulled > 0)
        before = -1
        while before != execution.pulled:
            before = execution.pulled
            for _ in range(20):
                with Raw(server.port) as other:
                    other.enter()
                    assert rows(other.ask(query("SELECT 1"))) == [[b"1"]]
        # What fits into the buffers of two sockets and a part or two besides.
        assert execution.pulled <= 10
        for _ in range(10_000):
            assert client.read()[0] == "D"
        assert execution.pulled <= 15
    _idle(server)


def test_a_cursor_is_read_no_further_than_asked(server: Serving) -> None:
    with Raw(server.port) as client:
        client.enter()
        client.ask(query("BEGIN; DECLARE c CURSOR FOR SELECT * FROM numbers(1000000000000)"))
        for _ in range(3):
            assert len(rows(client.ask(query("FETCH 100 c")))) == 100
        assert [execution.pulled for execution in server.engine.running] == [1]
    _idle(server)


def test_cancel_between_statements_of_one_message(server: Serving) -> None:
    with Raw(server.port) as client:
        client.enter()
        client.send(query("SELECT 1; SELECT * FROM slow(); SELECT 2"))
        assert server.engine.started.acquire(timeout=10)
        with psycopg.connect(server.url):
            pass
        for _, session, _ in list(server.server._sessions.values()):
            session.cancel()
        said = client.read_until()
        assert error(said)["C"] == "57014" and rows(said) == [[b"1"]]
    _idle(server)


def test_an_error_ends_what_was_begun_before_it(server: Serving) -> None:
    suspended = parse("SELECT * FROM numbers(50)", "s") + bind(portal="p", name="s") + execute("p", 5)
    with Raw(server.port) as client:
        client.enter()
        said = client.ask(suspended, parse("SELECT nope"), SYNC)
        assert error(said)["C"] == "42703" and len(rows(said)) == 5
        assert not server.engine.running
        # In a transaction, what was begun before may be gone on with after a savepoint; what failed may not.
        client.ask(query("BEGIN"))
        client.ask(bind(portal="p", name="s"), execute("p", 5), parse("SELECT 1/0"), bind(), execute(), SYNC)
        assert len(server.engine.running) == 1
        client.ask(query("ROLLBACK"))
        assert not server.engine.running


def test_clients_can_be_sent_away_without_stopping(server: Serving) -> None:
    with Raw(server.port) as client:
        client.enter()
        dismissed = asyncio.run_coroutine_threadsafe(server.server.dismiss("another leads"), server.loop)
        told = error(client.read_until("E"))
        assert (told["C"], told["M"]) == ("57P01", "another leads")
        dismissed.result(10)
    with Raw(server.port) as client:
        client.enter()
