"""Transactions, settings, cursors and prepared statements as SQL has them."""

from __future__ import annotations

import psycopg
import pytest

from tests.server.pgwire.raw import Raw, error, fields, kinds, query, rows, tags
from tests.server.pgwire.serving import Serving

Said = list[tuple[str, bytes]]


def status(said: Said) -> str:
    assert said[-1][0] == "Z"
    return said[-1][1].decode()


def notices(said: Said) -> list[str]:
    return [fields(body)["C"] for kind, body in said if kind == "N"]


def first(said: Said) -> list[bytes | None]:
    return [each[0] for each in rows(said)]


def test_the_status_of_transactions(raw: Raw) -> None:
    assert status(raw.ask(query("BEGIN"))) == "T"
    assert status(raw.ask(query("SELECT 1"))) == "T"
    assert status(raw.ask(query("SELECT nope"))) == "E"
    said = raw.ask(query("SELECT 1"))
    assert error(said)["C"] == "25P02" and status(said) == "E"
    said = raw.ask(query("COMMIT"))
    assert tags(said) == ["ROLLBACK"] and status(said) == "I"


def test_warnings_about_transactions(raw: Raw) -> None:
    assert notices(raw.ask(query("COMMIT"))) == ["25P01"]
    assert notices(raw.ask(query("ROLLBACK"))) == ["25P01"]
    raw.ask(query("START TRANSACTION READ ONLY"))
    assert notices(raw.ask(query("BEGIN"))) == ["25001"]
    assert first(raw.ask(query("SHOW transaction_read_only"))) == [b"on"]
    assert error(raw.ask(query("CREATE VIEW v AS SELECT 1")))["C"] == "25006"
    raw.ask(query("ROLLBACK"))
    assert first(raw.ask(query("SHOW transaction_read_only"))) == [b"off"]
    assert notices(raw.ask(query("SET LOCAL jit = off"))) == ["25P01"]
    raw.ask(query("SET client_min_messages = error"))
    assert notices(raw.ask(query("COMMIT"))) == []


def test_chains(raw: Raw) -> None:
    raw.ask(query("BEGIN"))
    assert status(raw.ask(query("COMMIT AND CHAIN"))) == "T"
    assert status(raw.ask(query("ROLLBACK AND CHAIN"))) == "T"
    assert status(raw.ask(query("ROLLBACK"))) == "I"


def test_savepoints(raw: Raw) -> None:
    assert error(raw.ask(query("SAVEPOINT a")))["C"] == "25P01"
    raw.ask(query("BEGIN; SET application_name = 'one'; SAVEPOINT a; SET application_name = 'two'"))
    assert status(raw.ask(query("SELECT nope"))) == "E"
    said = raw.ask(query("ROLLBACK TO a"))
    assert tags(said) == ["ROLLBACK"] and status(said) == "T"
    assert first(raw.ask(query("SHOW application_name"))) == [b"one"]
    raw.ask(query("SAVEPOINT b; SET application_name = 'three'; RELEASE a"))
    assert error(raw.ask(query("ROLLBACK TO b")))["C"] == "3B001"
    raw.ask(query("ROLLBACK"))
    assert first(raw.ask(query("SHOW application_name"))) == [b""]


def test_several_statements_are_one_transaction(raw: Raw) -> None:
    said = raw.ask(query("SELECT 1; SELECT 'two'; SET application_name = 'x'"))
    assert tags(said) == ["SELECT 1", "SELECT 1", "SET"] and kinds(said) == "TDCTDCCSZ"
    said = raw.ask(query("SET application_name = 'lost'; SELECT 1; SELECT nope; SELECT 2"))
    assert tags(said) == ["SET", "SELECT 1"]
    assert error(said)["P"] == str("SET application_name = 'lost'; SELECT 1; SELECT nope".index("nope") + 1)
    assert first(raw.ask(query("SHOW application_name"))) == [b"x"]


def test_a_statement_that_cannot_be_read_stops_all(raw: Raw) -> None:
    said = raw.ask(query("SELECT 1; SELEC 2"))
    assert kinds(said) == "EZ" and error(said)["P"] == "11"


def test_settings_are_told_when_they_change(raw: Raw) -> None:
    said = raw.ask(query("SET TIME ZONE 'Europe/Berlin'"))
    assert kinds(said) == "CSZ" and said[1][1] == b"TimeZone\0Europe/Berlin\0"
    raw.ask(query("BEGIN; SET application_name = 'inside'"))
    assert kinds(raw.ask(query("ROLLBACK"))) == "CSZ"
    assert kinds(raw.ask(query("DISCARD ALL"))) == "CSZ"
    assert error(raw.ask(query("SET nonsense = 1")))["C"] == "42704"
    assert error(raw.ask(query("SHOW nonsense")))["C"] == "42704"
    assert len(rows(raw.ask(query("SHOW ALL")))) > 50


def test_views_made_in_a_transaction_stay(server: Serving, raw: Raw) -> None:
    raw.ask(query("BEGIN"))
    assert sorted(notices(raw.ask(query("CREATE VIEW v AS SELECT 1")))) == ["00000", "01000"]
    raw.ask(query("ROLLBACK"))
    assert any("CREATE VIEW v" in each for each in server.engine.created)
    assert notices(raw.ask(query("CREATE VIEW w AS SELECT 1"))) == ["00000"]


def test_what_nobody_foresaw_is_told_without_its_trace(raw: Raw) -> None:
    told = error(raw.ask(query("SELECT bug")))
    assert told["C"] == "XX000" and "nobody foresaw" not in told["M"]
    assert first(raw.ask(query("SELECT 1"))) == [b"1"]


def test_prepare_and_execute(raw: Raw) -> None:
    assert tags(raw.ask(query("PREPARE p (int, text) AS SELECT $1, $2"))) == ["PREPARE"]
    said = raw.ask(query("EXECUTE p(-5, 'it''s')"))
    assert rows(said) == [[b"-5", b"it's"]] and tags(said) == ["SELECT 1"]
    assert rows(raw.ask(query("EXECUTE p(NULL, 'a')"))) == [[None, b"a"]]
    assert error(raw.ask(query("EXECUTE p(1)")))["C"] == "42601"
    assert error(raw.ask(query("EXECUTE p('x', 'y')")))["C"] == "22P02"
    assert error(raw.ask(query("PREPARE p AS SELECT 1")))["C"] == "42P05"
    assert error(raw.ask(query("PREPARE q (nonsense) AS SELECT 1")))["C"] == "42704"
    assert error(raw.ask(query("PREPARE q AS SELECT nope")))["P"] == "21"
    assert tags(raw.ask(query("DEALLOCATE p"))) == ["DEALLOCATE"]
    assert error(raw.ask(query("EXECUTE p(1, 'x')")))["C"] == "26000"
    assert tags(raw.ask(query("DEALLOCATE ALL"))) == ["DEALLOCATE ALL"]


# cursors


def test_cursors_go_forward(raw: Raw) -> None:
    assert error(raw.ask(query("DECLARE c CURSOR FOR SELECT * FROM numbers(10)")))["C"] == "25P01"
    raw.ask(query("BEGIN"))
    assert tags(raw.ask(query("DECLARE c CURSOR FOR SELECT * FROM numbers(100)"))) == ["DECLARE CURSOR"]
    said = raw.ask(query("FETCH c"))
    assert kinds(said) == "TDCZ" and first(said) == [b"0"] and tags(said) == ["FETCH 1"]
    assert first(raw.ask(query("FETCH FORWARD 2 FROM c"))) == [b"1", b"2"]
    assert tags(raw.ask(query("MOVE 3 IN c"))) == ["MOVE 3"]
    assert first(raw.ask(query("FETCH RELATIVE 2 FROM c"))) == [b"7"]
    assert first(raw.ask(query("FETCH ABSOLUTE 20 FROM c"))) == [b"19"]
    assert first(raw.ask(query("FETCH LAST FROM c"))) == [b"99"]
    assert tags(raw.ask(query("FETCH ALL FROM c"))) == ["FETCH 0"]
    raw.ask(query("SAVEPOINT s"))
    assert error(raw.ask(query("FETCH PRIOR FROM c")))["C"] == "55000"
    raw.ask(query("ROLLBACK TO s"))
    assert error(raw.ask(query("DECLARE c CURSOR FOR SELECT 1")))["C"] == "42P03"
    raw.ask(query("ROLLBACK TO s"))
    assert tags(raw.ask(query("CLOSE c"))) == ["CLOSE CURSOR"]
    assert error(raw.ask(query("FETCH c")))["C"] == "34000"
    raw.ask(query("ROLLBACK"))


def test_cursors_end_with_their_transaction_unless_held(raw: Raw) -> None:
    raw.ask(query("BEGIN; DECLARE a CURSOR FOR SELECT * FROM numbers(5)"))
    raw.ask(query("DECLARE b CURSOR WITH HOLD FOR SELECT * FROM numbers(5)"))
    raw.ask(query("COMMIT"))
    assert error(raw.ask(query("FETCH a")))["C"] == "34000"
    assert first(raw.ask(query("FETCH 2 b"))) == [b"0", b"1"]
    # An error in a later transaction does not take it away.
    raw.ask(query("BEGIN; SELECT nope"))
    raw.ask(query("ROLLBACK"))
    assert first(raw.ask(query("FETCH b"))) == [b"2"]
    raw.ask(query("CLOSE ALL"))
    raw.ask(query("BEGIN; DECLARE d CURSOR WITH HOLD FOR SELECT 1"))
    raw.ask(query("ROLLBACK"))
    assert error(raw.ask(query("FETCH d")))["C"] == "34000"


def test_binary_cursors(raw: Raw) -> None:
    raw.ask(query("BEGIN; DECLARE c BINARY CURSOR FOR SELECT * FROM numbers(5)"))
    assert first(raw.ask(query("FETCH c"))) == [bytes(8)]
    raw.ask(query("COMMIT"))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("source", ["numbers(2)", "relay()"])
def test_cursors_of_psycopg(server: Serving, source: str, binary: bool) -> None:
    with psycopg.connect(server.url) as client, client.cursor("c", binary=binary) as cursor:
        cursor.execute(f"SELECT * FROM {source}")
        found = [each[0] for each in cursor.fetchall()]
        assert found == ([0, 1] if source == "numbers(2)" else [1, 2])


# COPY and the rest


def test_copy(server: Serving, raw: Raw) -> None:
    said = raw.ask(query("COPY (SELECT * FROM numbers(2)) TO STDOUT"))
    assert kinds(said) == "HddcCZ" and tags(said) == ["COPY 2"]
    assert b"".join(body for kind, body in said if kind == "d") == b"0\tn0\n1\tn1\n"
    assert error(raw.ask(query("COPY (SELECT nope) TO STDOUT")))["P"] == "14"
    assert error(raw.ask(query("COPY t FROM STDIN")))["C"] == "0A000"
    with psycopg.connect(server.url) as client, client.cursor() as cursor:
        with cursor.copy("COPY (SELECT * FROM numbers(30000)) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int8", "text"])
            assert [each[0] for each in copy.rows()] == list(range(30_000))
        with cursor.copy("COPY (SELECT * FROM relay()) TO STDOUT (FORMAT csv, HEADER)") as copy:
            assert b"".join(copy) == b"a,b\n1,x\n2,\n"


def test_listening_is_accepted_and_notifying_is_not(raw: Raw) -> None:
    assert tags(raw.ask(query("LISTEN news; UNLISTEN news; UNLISTEN *"))) == [
        "LISTEN",
        "UNLISTEN",
        "UNLISTEN",
    ]
    assert error(raw.ask(query("NOTIFY news")))["C"] == "0A000"


def test_discard(raw: Raw) -> None:
    raw.ask(query("PREPARE p AS SELECT 1"))
    raw.ask(query("BEGIN"))
    assert error(raw.ask(query("DISCARD ALL")))["C"] == "25001"
    raw.ask(query("ROLLBACK"))
    assert tags(raw.ask(query("DISCARD ALL"))) == ["DISCARD ALL"]
    assert error(raw.ask(query("EXECUTE p")))["C"] == "26000"
