"""Settings of a session, which have to behave as in PostgreSQL."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.server.session_settings import Settings


def test_defaults_are_what_clients_expect() -> None:
    settings = Settings()
    assert settings.get("DateStyle") == settings.get("datestyle") == "ISO, MDY"
    assert settings.timezone == "UTC"
    assert settings.search_path == ("public",)
    assert settings.statement_timeout is None
    assert settings.dialect == "auto"
    assert (settings.extra_float_digits, settings.bytea_output) == (1, "hex")
    assert settings.intervalstyle == "postgres"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("statement_timeout", "5000", "5s"),
        ("statement_timeout", "1.5min", "90s"),
        ("statement_timeout", "1500 ms", "1500ms"),
        ("statement_timeout", "0", "0"),
        ("work_mem", "2048", "2MB"),
        ("jit", "TRUE", "on"),
        ("jit", "no", "off"),
        ("datestyle", "iso, dmy", "ISO, DMY"),
        ("client_encoding", "utf-8", "UTF8"),
        ("client_encoding", "SQL_ASCII", "SQL_ASCII"),
        ("timezone", "europe/berlin", "Europe/Berlin"),
        ("timezone", "5", "<+05>-05"),
        ("timezone", "-3:30", "<-03:30>+03:30"),
        ("timezone", "GMT-01:00", "<+01>-01"),
        ("time zone", "utc", "UTC"),
        ("search_path", 'A, "B c", public', 'a, "B c", public'),
        ("search_path", "", ""),
        ("application_name", "bad\nname", "bad?name"),
        ("my.own", "anything", "anything"),
        ("penstock.sql", "Spark", "spark"),
        ("intervalstyle", "ISO_8601", "iso_8601"),
        ("transaction_isolation", "SERIALIZABLE", "serializable"),
    ],
)
def test_values_are_shown_as_postgres_shows_them(name: str, value: str, shown: str) -> None:
    settings = Settings()
    settings.set(name, value)
    assert settings.get(name) == shown


@pytest.mark.parametrize(
    ("name", "value", "sqlstate"),
    [
        ("nonsense", "1", "42704"),
        ("penstock.nonsense", "1", "42704"),
        ("statement_timeout", "soon", "22023"),
        ("statement_timeout", "-5", "22023"),
        ("statement_timeout", "5 parsecs", "22023"),
        ("extra_float_digits", "9", "22023"),
        ("timezone", "Mars/Phobos", "22023"),
        ("timezone", "+99", "22023"),
        ("client_encoding", "LATIN1", "22023"),
        ("datestyle", "German", "0A000"),
        ("datestyle", "never", "22023"),
        ("standard_conforming_strings", "off", "0A000"),
        ("jit", "maybe", "22023"),
        ("server_version", "9.6", "55P02"),
        ("session_authorization", "root", "55P02"),
        ("is_superuser", "on", "55P02"),
        ("search_path", '"never ends', "22023"),
        ("my.own", "x" * 100_000, "22023"),
    ],
)
def test_what_cannot_be_set(name: str, value: str, sqlstate: str) -> None:
    with pytest.raises(SqlError) as raised:
        Settings().set(name, value)
    assert raised.value.sqlstate == sqlstate


def test_unknown_names_cannot_be_read() -> None:
    with pytest.raises(SqlError) as raised:
        Settings().get("my.own")
    assert raised.value.sqlstate == "42704"


def test_properties_follow() -> None:
    settings = Settings({"timezone": "+2", "search_path": '"$user", Sales', "statement_timeout": "250"})
    assert settings.timezone == "+02:00"
    assert settings.search_path == ("sales",)
    assert settings.statement_timeout == 0.25


def test_a_statement_takes_no_longer_than_the_server_allows() -> None:
    settings = Settings()
    settings.bound(2.5)
    assert settings.get("statement_timeout") == "2500ms" and settings.statement_timeout == 2.5
    settings.set("statement_timeout", "1s")
    assert settings.statement_timeout == 1.0
    settings.set("statement_timeout", "0")
    assert settings.statement_timeout == 2.5, "without a limit of its own, the server's holds"
    settings.set("statement_timeout", "1h")
    assert settings.statement_timeout == 2.5
    settings.reset()
    assert settings.get("statement_timeout") == "2500ms"

    settings = Settings({"statement_timeout": "1s"})
    settings.bound(2.5)
    assert settings.get("statement_timeout") == "1s" and settings.statement_timeout == 1.0


def test_reset_goes_back_to_what_the_client_came_with() -> None:
    settings = Settings({"application_name": "mine"})
    settings.set("application_name", "other")
    settings.set("my.own", "1")
    settings.reset("application_name")
    assert settings.application_name == "mine"
    settings.set("application_name", "other")
    settings.reset()
    assert settings.application_name == "mine"
    with pytest.raises(SqlError):
        settings.get("my.own")


def test_a_transaction_undoes_what_it_set() -> None:
    settings = Settings()
    settings.set("application_name", "before")
    settings.begin()
    settings.set("application_name", "inside")
    settings.set("bytea_output", "escape", local=True)
    assert (settings.application_name, settings.bytea_output) == ("inside", "escape")
    settings.rollback()
    assert (settings.application_name, settings.bytea_output) == ("before", "hex")


def test_local_values_end_with_the_transaction() -> None:
    settings = Settings()
    settings.begin()
    settings.set("application_name", "kept")
    settings.set("application_name", "local", local=True)
    assert settings.application_name == "local"
    settings.commit()
    assert settings.application_name == "kept"


def test_savepoints_nest() -> None:
    settings = Settings()
    settings.begin()
    settings.set("application_name", "a")
    settings.begin()
    settings.set("application_name", "b")
    settings.begin()
    settings.set("application_name", "c")
    settings.release(2)
    assert settings.application_name == "c"
    settings.rollback(1)
    assert settings.application_name == "a"
    settings.commit()
    assert settings.application_name == "a"


def test_changes_are_told_once() -> None:
    settings = Settings()
    first = settings.changes()
    assert first["TimeZone"] == "UTC" and first["integer_datetimes"] == "on"
    assert settings.changes() == {}
    settings.set("timezone", "Europe/Berlin")
    settings.set("jit", "off")
    assert settings.changes() == {"TimeZone": "Europe/Berlin"}
    settings.begin()
    settings.set("timezone", "UTC", local=True)
    assert settings.changes() == {"TimeZone": "UTC"}
    settings.commit()
    assert settings.changes() == {"TimeZone": "Europe/Berlin"}


def test_all_names_every_setting() -> None:
    settings = Settings(fixed={"session_authorization": "me"})
    settings.set("my.own", "1")
    found = {name: value for name, value, _ in settings.all()}
    assert found["my.own"] == "1" and found["session_authorization"] == "me"
    assert [name.lower() for name in found] == sorted(name.lower() for name in found)
