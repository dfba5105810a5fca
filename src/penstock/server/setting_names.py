"""The settings that a session has, as PostgreSQL names and spells them."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from penstock import __version__
from penstock.errors import SqlError

SERVER_VERSION = f"18.0 (Penstock {__version__})"
"""Clients read the number before the space, and choose by it what they ask the catalog."""
_VERSION_NUM = "180000"

Check = Callable[[str, str], str]
"""The value as it is shown, from the name and what was written. Raises `SqlError` 22023."""


@dataclass(frozen=True, slots=True)
class Known:
    """A setting. ``check`` None means that a client cannot change it."""

    name: str
    default: str
    check: Check | None
    description: str = ""


def invalid(name: str, value: str, hint: str | None = None) -> SqlError:
    return SqlError(f'invalid value for parameter "{name}": "{value}"', sqlstate="22023", hint=hint)


_TRUE = ("on", "true", "yes", "1", "t", "y", "tr", "tru", "ye")
_FALSE = ("off", "false", "no", "0", "f", "n", "of", "fa", "fal", "fals")


def boolean(name: str, value: str) -> str:
    folded = value.strip().lower()
    if folded in _TRUE:
        return "on"
    if folded in _FALSE:
        return "off"
    raise SqlError(f'parameter "{name}" requires a Boolean value', sqlstate="22023")


def only(wanted: str, why: str) -> Check:
    """A switch that has to stay as it is; to set what it is already does no harm."""

    def check(name: str, value: str) -> str:
        if boolean(name, value) != wanted:
            raise SqlError(f'parameter "{name}" has to be {wanted}: {why}', sqlstate="0A000")
        return wanted

    return check


def choice(*options: str, spelled: dict[str, str] | None = None) -> Check:
    """One of a few words; ``spelled`` gives other spellings of them."""
    known = {**{each.lower(): each for each in options}, **(spelled or {})}

    def check(name: str, value: str) -> str:
        found = known.get(value.strip().lower())
        if found is None:
            raise invalid(name, value, f"Available values: {', '.join(options)}.")
        return found

    return check


def text(_name: str, value: str) -> str:
    return value


def _own_role(_name: str, value: str) -> str:
    """Nobody can be another than the one who connected."""
    if value.lower() != "none":
        raise SqlError(
            f'permission denied to set role "{value}"',
            sqlstate="42501",
            hint="Connect as the user whose rights you need.",
        )
    return "none"


def printable(_name: str, value: str) -> str:
    """Names that other people read: what is not plain ASCII becomes a question mark, as in PostgreSQL."""
    return "".join(each if " " <= each <= "~" else "?" for each in value)[:63]


_AMOUNT = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Z]*)")
_TIMES = {"us": 0.001, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {"B": 1 / 1024, "kB": 1, "MB": 1024, "GB": 1024**2, "TB": 1024**3}
_LARGEST = 2**31 - 1


def amount(units: dict[str, float], least: int = 0, most: int = _LARGEST) -> Check:
    """A whole number, perhaps with a unit, shown in the largest unit that fits exactly."""

    def check(name: str, value: str) -> str:
        match = _AMOUNT.fullmatch(value.strip())
        if match is None or (match[2] and match[2] not in units):
            hint = f"Valid units for this parameter are {', '.join(units)}." if units else None
            raise invalid(name, value, hint)
        size = float(match[1]) * units.get(match[2], 1)
        number = round(max(-1e18, min(size, 1e18)))
        if not least <= number <= most:
            message = f'{number} is outside the valid range for parameter "{name}" ({least} .. {most})'
            raise SqlError(message, sqlstate="22023")
        for unit, factor in reversed(units.items()):
            if number and factor >= 1 and number % factor == 0:
                return f"{number // int(factor)}{unit}"
        return str(number)

    return check


def milliseconds(shown: str) -> float:
    """What an amount of time says."""
    match = _AMOUNT.fullmatch(shown)
    return float(match[1]) * _TIMES.get(match[2], 1) if match else 0.0


def real(name: str, value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        raise invalid(name, value) from None


def encoding(name: str, value: str) -> str:
    folded = re.sub(r"[^a-z0-9]", "", value.lower())
    if folded in ("utf8", "unicode"):
        return "UTF8"
    if folded == "sqlascii":
        return "SQL_ASCII"
    raise SqlError(
        f'conversion between {value} and UTF8 is not supported: "{name}" has to be UTF8',
        sqlstate="22023",
        hint="SET client_encoding TO 'UTF8'",
    )


_ORDERS = {"mdy": "MDY", "us": "MDY", "noneuro": "MDY", "noneuropean": "MDY", "dmy": "DMY", "euro": "DMY"}
_ORDERS |= {"european": "DMY", "ymd": "YMD"}


def datestyle(name: str, value: str) -> str:
    order = "MDY"
    for word in re.split(r"[\s,]+", value.strip().lower()):
        if word in ("sql", "postgres", "german"):
            raise SqlError(f'"{name}" has to be ISO', sqlstate="0A000", hint="SET DateStyle TO 'ISO'")
        if word in _ORDERS:
            order = _ORDERS[word]
        elif word not in ("iso", "default", ""):
            raise invalid(name, value)
    return f"ISO, {order}"


@lru_cache(maxsize=1)
def _zones() -> dict[str, str]:
    return {each.lower(): each for each in zoneinfo.available_timezones()}


_HOURS = re.compile(r"([+-]?)(\d{1,2})(?::?([0-5]\d))?(?::00)?")
_POSIX = re.compile(r"(?:[A-Za-z]{3,}|<[^<>]*>)([+-]?)(\d{1,2})(?::([0-5]\d))?")


def timezone(name: str, value: str) -> str:
    """A name of the time zone database, or an offset as POSIX writes it: there west is positive."""
    asked = value.strip().strip("'")
    if asked.upper() in ("UTC", "Z", "ZULU", "LOCAL", "DEFAULT"):
        return "UTC"
    found = _zones().get(asked.lower())
    if found is not None:
        return found
    match, sign = _HOURS.fullmatch(asked), 1
    if match is None:
        match, sign = _POSIX.fullmatch(asked), -1
    if match is None or int(match[2]) > 15:
        raise invalid(name, value, "Give a name such as Europe/Berlin, or an offset such as +02.")
    if int(match[2]) == 0 and not int(match[3] or 0):
        return "UTC"
    east = (match[1] != "-") == (sign > 0)
    size = match[2].zfill(2) + (f":{match[3]}" if match[3] and match[3] != "00" else "")
    return f"<{'+' if east else '-'}{size}>{'-' if east else '+'}{size}"


def offset(zone: str) -> str:
    """A zone as Spark and Arrow spell it: offsets as ``+02:00``, east positive."""
    if not zone.startswith("<"):
        return zone
    size = zone[1 : zone.index(">")]
    return size if ":" in size else f"{size}:00"


_NAME = re.compile(r'(?:"((?:[^"]|"")*)"\s*|([^",]*))(?:,\s*|$)')


def names(value: str) -> list[str]:
    """The names of a list such as ``"$user", public``: folded unless they stand in quotes."""
    found, at, value = [], 0, value.strip()
    while at < len(value):
        match = _NAME.match(value, at)
        if match is None:
            raise invalid("search_path", value)
        quoted, plain = match[1], match[2]
        name = quoted.replace('""', '"') if quoted is not None else plain.strip().strip("'").lower()
        if name:
            found.append(name)
        at = match.end()
    return found


def path(_name: str, value: str) -> str:
    simple = re.compile(r"[a-z_][a-z0-9_]*")
    return ", ".join(
        each if simple.fullmatch(each) else '"' + each.replace('"', '""') + '"' for each in names(value)
    )


_time = amount(dict(_TIMES))
_size = amount(dict(_SIZES))
_plain = amount({}, -_LARGEST)
_isolation = choice("serializable", "repeatable read", "read committed", "read uncommitted")
_level = choice("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")

_REAL = [
    Known(
        "application_name", "", printable, "Sets the application name to be reported in statistics and logs."
    ),
    Known("bytea_output", "hex", choice("hex", "escape"), "Sets the output format for bytea."),
    Known("client_encoding", "UTF8", encoding, "Sets the client's character set encoding."),
    Known("client_min_messages", "notice", _level, "Sets the message levels that are sent to the client."),
    Known("DateStyle", "ISO, MDY", datestyle, "Sets the display format for date and time values."),
    Known("default_transaction_read_only", "off", boolean, "Sets the read-only status of new transactions."),
    Known(
        "extra_float_digits", "1", amount({}, -15, 3), "Sets the number of digits of floating-point values."
    ),
    Known("idle_in_transaction_session_timeout", "0", _time, "Sets the allowed idle time in a transaction."),
    Known("idle_session_timeout", "0", _time, "Sets the allowed idle time outside a transaction."),
    Known("in_hot_standby", "off", None, "Shows whether the server stands by."),
    Known("integer_datetimes", "on", None, "Shows whether datetimes are integer based."),
    Known(
        "IntervalStyle",
        "postgres",
        choice("postgres", "postgres_verbose", "sql_standard", "iso_8601"),
        "Sets the display format for interval values.",
    ),
    Known("is_superuser", "off", None, "Shows whether the current user is an administrator."),
    Known(
        "penstock.sql",
        "auto",
        choice("auto", "postgres", "spark", spelled={"postgresql": "postgres"}),
        "Sets in which SQL statements are written; auto tries to tell.",
    ),
    Known("scram_iterations", "4096", amount({}, 1), "Sets the iteration count for SCRAM."),
    Known("search_path", '"$user", public', path, "Sets the schema search order for names without one."),
    Known("server_encoding", "UTF8", None, "Shows the server's character set encoding."),
    Known("server_version", SERVER_VERSION, None, "Shows the server version."),
    Known("server_version_num", _VERSION_NUM, None, "Shows the server version as an integer."),
    Known("session_authorization", "", None, "Shows the session user name."),
    Known(
        "standard_conforming_strings",
        "on",
        only("on", "backslashes in ordinary strings are what they are"),
        "Causes '...' strings to treat backslashes literally.",
    ),
    Known("statement_timeout", "0", _time, "Sets the maximum allowed duration of any statement."),
    Known("TimeZone", "UTC", timezone, "Sets the time zone for displaying and interpreting time stamps."),
    Known(
        "transaction_isolation", "read committed", _isolation, "Sets the isolation level of this transaction."
    ),
    Known("transaction_read_only", "off", boolean, "Sets the read-only status of this transaction."),
    Known("transaction_deferrable", "off", boolean, "Nothing is deferred here."),
]
"""Those that mean something here."""

_IGNORED: tuple[tuple[str, str, Check | None], ...] = (
    ("array_nulls", "on", boolean),
    ("backslash_quote", "safe_encoding", text),
    ("block_size", "8192", None),
    ("check_function_bodies", "on", boolean),
    ("client_connection_check_interval", "0", _time),
    ("constraint_exclusion", "partition", text),
    ("cursor_tuple_fraction", "0.1", real),
    ("data_checksums", "on", None),
    ("deadlock_timeout", "1s", _time),
    ("default_statistics_target", "100", _plain),
    ("default_table_access_method", "heap", text),
    ("default_tablespace", "", text),
    ("default_transaction_deferrable", "off", boolean),
    ("default_transaction_isolation", "read committed", _isolation),
    ("effective_cache_size", "4GB", _size),
    ("enable_bitmapscan", "on", boolean),
    ("enable_hashagg", "on", boolean),
    ("enable_hashjoin", "on", boolean),
    ("enable_indexonlyscan", "on", boolean),
    ("enable_indexscan", "on", boolean),
    ("enable_material", "on", boolean),
    ("enable_mergejoin", "on", boolean),
    ("enable_nestloop", "on", boolean),
    ("enable_seqscan", "on", boolean),
    ("enable_sort", "on", boolean),
    ("escape_string_warning", "on", boolean),
    ("force_parallel_mode", "off", text),
    ("from_collapse_limit", "8", _plain),
    ("geqo", "on", boolean),
    ("gin_fuzzy_search_limit", "0", _plain),
    ("jit", "off", boolean),
    ("join_collapse_limit", "8", _plain),
    ("lc_collate", "C", None),
    ("lc_ctype", "C", None),
    ("lc_messages", "C", text),
    ("lc_monetary", "C", text),
    ("lc_numeric", "C", text),
    ("lc_time", "C", text),
    ("listen_addresses", "", None),
    ("lock_timeout", "0", _time),
    ("log_min_duration_statement", "-1", _plain),
    ("log_min_messages", "warning", _level),
    ("log_statement", "none", text),
    ("maintenance_work_mem", "64MB", _size),
    ("max_connections", "1000", None),
    ("max_identifier_length", "63", None),
    ("max_index_keys", "32", None),
    ("max_parallel_workers_per_gather", "2", _plain),
    ("max_prepared_transactions", "0", None),
    ("password_encryption", "scram-sha-256", text),
    ("plan_cache_mode", "auto", text),
    ("port", "5432", None),
    ("quote_all_identifiers", "off", boolean),
    ("random_page_cost", "4", real),
    ("role", "none", _own_role),
    ("row_security", "on", boolean),
    ("seed", "unavailable", text),
    ("seq_page_cost", "1", real),
    ("session_replication_role", "origin", text),
    ("ssl", "off", None),
    ("synchronize_seqscans", "on", boolean),
    ("synchronous_commit", "on", text),
    ("temp_buffers", "8MB", _size),
    ("transaction_timeout", "0", _time),
    ("transform_null_equals", "off", boolean),
    ("wal_level", "replica", None),
    ("work_mem", "4MB", _size),
    ("xmlbinary", "base64", text),
    ("xmloption", "content", text),
)
"""Those that clients set or ask for, and that change nothing here."""

KNOWN = {
    each.name.lower(): each
    for each in (
        *_REAL,
        *(Known(name, default, check, "Has no effect here.") for name, default, check in _IGNORED),
    )
}
"""By folded name."""
ALIASES = {
    "time zone": "timezone",
    "transaction isolation level": "transaction_isolation",
    "names": "client_encoding",
}
