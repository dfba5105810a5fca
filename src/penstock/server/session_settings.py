"""The settings of one session as PostgreSQL has them: SET, SET LOCAL, RESET, and what ROLLBACK undoes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.errors import SqlError
from penstock.server.setting_names import ALIASES, KNOWN, Known, milliseconds, names, offset

_REPORTED = (
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "default_transaction_read_only",
    "in_hot_standby",
    "is_superuser",
    "session_authorization",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "scram_iterations",
    "search_path",
)
"""What PostgreSQL tells clients without being asked."""
_MODES = ("transaction_isolation", "transaction_read_only", "transaction_deferrable")
"""What a transaction has, and gets from the setting of the same name with ``default_`` before it."""
_CUSTOM_LENGTH = 64 * 1024
_CUSTOM_COUNT = 1000
_Values = Mapping[str, str]
SessionRows = Mapping[str, Sequence[Mapping[str, object]]]


class Settings:
    """What the session has set. One thread changes it, any may read.

    ``overrides`` are what a client asked for when it connected: RESET goes back to them. ``fixed`` are facts
    of the session that a client cannot set, such as who it is.
    """

    __slots__ = ("_base", "_local", "_longest", "_reported", "_saved", "_session", "session_rows")

    def __init__(self, overrides: Mapping[str, str] = {}, *, fixed: Mapping[str, str] = {}) -> None:
        base = {_fold(name): value for name, value in fixed.items()}
        for name, value in overrides.items():
            base[_fold(name)] = _checked(name, value)
        self._base: _Values = base
        # Never changed in place: a reader in another thread, and a savepoint, keep what they hold.
        self._session: _Values = base
        self._local: _Values = {}
        self._saved: list[tuple[_Values, _Values]] = []
        self._reported: tuple[_Values, _Values] | None = None
        self._longest: float | None = None
        self.session_rows: Callable[[], SessionRows] = dict
        """Rows of ``pg_prepared_statements`` and ``pg_cursors``, by the names of these tables."""

    def bound(self, seconds: float, *, firm: bool = True) -> None:
        """From now on, no statement of the session may take longer, whatever it sets.

        A session that has set nothing is shown this as its ``statement_timeout``. If it is not ``firm``, the
        session may set a longer time, or none.
        """
        self._longest = seconds if firm else None
        shown = _checked("statement_timeout", f"{seconds * 1000:.0f}")
        self._base = {"statement_timeout": shown, **self._base}
        self._session = {"statement_timeout": shown, **self._session}

    def get(self, name: str) -> str:
        folded = _fold(name)
        value = self._local.get(folded)
        if value is None:
            value = self._session.get(folded)
        if value is not None:
            return value
        return _known(name).default

    def set(self, name: str, value: str | None, *, local: bool = False) -> None:
        """Set it, or its default with None. What is ``local`` ends with the transaction."""
        folded = _fold(name)
        if value is None:
            if _is_fixed(name):
                return
            new = self._base.get(folded)
        else:
            new = _checked(name, value)
        if local:
            self._local = _with(self._local, folded, new if new is not None else _known(name).default)
            return
        if folded not in KNOWN and len(self._session) > _CUSTOM_COUNT:
            raise SqlError("too many settings in one session", sqlstate="53400", hint="RESET ALL")
        self._session = _with(self._session, folded, new)
        self._local = _with(self._local, folded, None)

    def reset(self, name: str | None = None) -> None:
        """As it was when the client connected; None means all."""
        if name is None:
            self._session, self._local = self._base, {}
        else:
            self.set(name, None)

    def all(self) -> list[tuple[str, str, str]]:
        """Name, value and description, by name."""
        custom = {*self._session, *self._local} - set(KNOWN)
        found = [(each.name, self.get(each.name), each.description) for each in KNOWN.values()]
        found += [(name, self.get(name), "") for name in custom]
        return sorted(found, key=lambda each: each[0].lower())

    def begin(self) -> None:
        """A transaction or a savepoint in it begins; a transaction with the modes that are the defaults."""
        self._saved.append((self._session, self._local))
        if len(self._saved) == 1:
            for name in _MODES:
                if (usual := self.get(f"default_{name}")) != self.get(name):
                    self._local = _with(self._local, name, usual)

    def commit(self) -> None:
        """The transaction ends well: what was local is gone, the rest stays."""
        if self._saved:
            self._local = self._saved[0][1]
        self._saved.clear()

    def rollback(self, depth: int = 0) -> None:
        """All is as it was when the transaction began, or before its savepoint number ``depth``, from 1."""
        if depth < len(self._saved):
            self._session, self._local = self._saved[depth]
            del self._saved[depth:]

    def release(self, depth: int) -> None:
        """Forget the savepoint number ``depth`` and those after it, and keep what was set since."""
        del self._saved[depth:]

    def reported(self) -> dict[str, str]:
        """Those that PostgreSQL reports to clients when they change."""
        return {name: self.get(name) for name in _REPORTED}

    def changes(self) -> dict[str, str]:
        """Those of `reported` that changed since this was asked before; all, the first time."""
        before, now = self._reported, (self._session, self._local)
        if before is not None and before[0] is now[0] and before[1] is now[1]:
            return {}
        self._reported = now
        if before is None:
            return self.reported()
        changed = {}
        for name, value in self.reported().items():
            folded = name.lower()
            old = before[1].get(folded, before[0].get(folded, KNOWN[folded].default))
            if old != value:
                changed[name] = value
        return changed

    @property
    def timezone(self) -> str:
        """As Spark and Arrow spell it."""
        return offset(self.get("timezone"))

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas to look into. ``$user`` has none here."""
        return tuple(each for each in names(self.get("search_path")) if each != "$user")

    @property
    def statement_timeout(self) -> float | None:
        """In seconds; None where there is no limit."""
        return min(filter(None, (self._seconds("statement_timeout"), self._longest)), default=None)

    @property
    def idle_session_timeout(self) -> float | None:
        return self._seconds("idle_session_timeout")

    @property
    def idle_in_transaction_session_timeout(self) -> float | None:
        return self._seconds("idle_in_transaction_session_timeout")

    @property
    def application_name(self) -> str:
        return self.get("application_name")

    @property
    def dialect(self) -> str:
        return self.get("penstock.sql")

    @property
    def extra_float_digits(self) -> int:
        return int(self.get("extra_float_digits"))

    @property
    def bytea_output(self) -> str:
        return self.get("bytea_output")

    @property
    def datestyle(self) -> str:
        return self.get("datestyle")

    @property
    def intervalstyle(self) -> str:
        return self.get("intervalstyle")

    def _seconds(self, name: str) -> float | None:
        return milliseconds(self.get(name)) / 1000 or None


def _fold(name: str) -> str:
    folded = name.lower()
    return ALIASES.get(folded, folded)


def _known(name: str) -> Known:
    known = KNOWN.get(_fold(name))
    if known is None:
        raise SqlError(
            f'unrecognized configuration parameter "{name}"', sqlstate="42704", hint="SHOW ALL lists them"
        )
    return known


def _is_fixed(name: str) -> bool:
    folded = _fold(name)
    if folded not in KNOWN and "." in folded:
        return False
    return _known(name).check is None


def _checked(name: str, value: str) -> str:
    """The value as it is shown. A name with a dot may be anybody's, as long as it is not ours."""
    if _is_fixed(name):
        raise SqlError(f'parameter "{name}" cannot be changed', sqlstate="55P02")
    folded = _fold(name)
    if folded.startswith("spark."):
        raise SqlError(
            f'"{name}" cannot be set by SQL: settings of Spark are the server\'s',
            sqlstate="42501",
            hint="put it under [spark.conf] in penstock.toml",
        )
    known = KNOWN.get(folded)
    if known is not None and known.check is not None:
        return known.check(known.name, value)
    if folded.startswith("penstock."):
        raise SqlError(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
    if len(value) > _CUSTOM_LENGTH:
        raise SqlError(f'the value of "{name}" is too long', sqlstate="22023")
    return value


def _with(values: _Values, name: str, value: str | None) -> _Values:
    """``values`` with this one changed, or left out."""
    if value is None:
        return values if name not in values else {key: each for key, each in values.items() if key != name}
    return {**values, name: value}
