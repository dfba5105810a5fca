"""Tables: classes with annotated fields, and the Arrow and Spark schemas that follow from them.

::

    class Trades(Table):
        trade_id: int
        symbol: str
        price: Annotated[Decimal, Precision(18, 4)]
        note: str | None
        notional: Annotated[Decimal, Precision(28, 4)] = derived()

A field is read off the class (``Trades.price``), which is how transforms declare what they touch.
A *derived* field is not part of the input: a transform writes it before anything may read it.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from penstock.errors import DefinitionError, UnknownField, UnknownType
from penstock.types.arrow import OF_PYTHON
from penstock.types.spark import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Precision:
    """Digits of a Decimal field: ``Annotated[Decimal, Precision(18, 4)]``."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise DefinitionError(
                f"Precision({self.precision}, {self.scale}) is not possible: 1 to 38 digits, "
                "of which at most all stand after the point"
            )


@dataclass(frozen=True, slots=True)
class Timestamp:
    """What a datetime field means where its source says no zone.

    A plain ``datetime`` is an instant, and a source's time without a zone is taken as UTC.
    ``Annotated[datetime, Timestamp(zone="Europe/Berlin")]`` is an instant too, and a source's time without
    a zone is the local time there. ``Annotated[datetime, Timestamp(naive=True)]`` has no zone at all: what
    a clock on the wall shows (Spark's TIMESTAMP_NTZ).
    """

    zone: str | None = None
    naive: bool = False

    def __post_init__(self) -> None:
        if self.naive and self.zone is not None:
            raise DefinitionError(
                f"Timestamp(zone={self.zone!r}, naive=True) is not possible: a time without a zone has none"
            )
        if self.zone is not None and not _is_zone(self.zone):
            raise DefinitionError(
                f"Timestamp(zone={self.zone!r}): there is no such time zone",
                hint="name it as the IANA database does: 'Europe/Berlin', 'UTC'",
            )


def _is_zone(name: object) -> bool:
    try:
        ZoneInfo(name)  # type: ignore[arg-type]
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        return False
    return True


ZONE = b"penstock.zone"
"""The key, in the metadata of an input's Arrow field, of the zone of times that say none."""


@dataclass(frozen=True, slots=True)
class _Derived:
    """The marker that `derived` leaves in a class body."""


def derived() -> Any:
    """Mark a field as one that a transform writes; the input does not have it."""
    return _Derived()


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a table: ``Trades.price``."""

    table: str
    name: str
    type: pa.DataType
    nullable: bool
    derived: bool = False
    zone: str | None = None

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"

    def __repr__(self) -> str:
        return f"<field {self} {self.type}{' or null' if self.nullable else ''}>"

    def desc(self) -> Descending:
        """The field, for an order that begins with its largest values: ``order_by=[Trades.price.desc()]``."""
        return Descending(self)

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type, self.nullable)

    @property
    def read(self) -> pa.Field:
        """As `arrow`, with what reading has to know."""
        return self.arrow.with_metadata({ZONE: self.zone.encode()}) if self.zone else self.arrow


@dataclass(frozen=True, slots=True)
class Descending:
    """A field whose largest values come first."""

    field: Field

    def __repr__(self) -> str:
        return f"{self.field!r}.desc()"


class TableMeta(type):
    """Turns the annotations of a `Table` subclass into `Field` attributes."""

    __table_name__: str
    __fields__: Mapping[str, Field]
    __location__: str

    def __new__(
        meta, class_name: str, bases: tuple[type, ...], body: dict[str, Any], *, name: str | None = None
    ) -> TableMeta:
        markers = {key: value for key, value in body.items() if isinstance(value, _Derived)}
        for key in markers:
            del body[key]
        cls = super().__new__(meta, class_name, bases, body)
        # cloudpickle makes a bare class first, without what a class statement puts into every body,
        # and sets the attributes of the original on it.
        if not bases or "__qualname__" not in body:
            cls.__table_name__, cls.__fields__, cls.__location__ = "", {}, ""
            return cls
        frame = sys._getframe(1)  # noqa: SLF001
        cls.__location__ = f"{frame.f_code.co_filename}:{body.get('__firstlineno__', frame.f_lineno)}"
        cls.__table_name__ = name or _snake(class_name)
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", cls.__table_name__):
            raise DefinitionError(
                f"{cls.__location__}: {cls.__table_name__!r} is not a table name (use a-z, 0-9 and _)"
            )
        fields: dict[str, Field] = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= {f.name: f for f in getattr(base, "__fields__", {}).values()}
        own = {
            key: _field(cls, key, hint, key in markers)
            for key, hint in _hints(cls, frame).items()
            if typing.get_origin(hint) is not ClassVar
        }
        fields |= own
        cls.__fields__ = types.MappingProxyType(
            {key: replace(f, table=cls.__table_name__) for key, f in fields.items()}
        )
        _check_body(cls, body, own.keys(), markers.keys())
        for key, field in cls.__fields__.items():
            type.__setattr__(cls, key, field)
        return cls

    def __init__(cls, class_name: str, bases: tuple[type, ...], body: dict[str, Any], **_: Any) -> None:
        super().__init__(class_name, bases, body)

    def __getattr__(cls, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        caller = sys._getframe(1)  # noqa: SLF001
        error = unknown_field(cls.__table_name__, key, cls.__fields__)
        error.what = f"{caller.f_code.co_filename}:{caller.f_lineno}: {error.what}"
        raise error

    def __repr__(cls) -> str:
        return f"<table {cls.__table_name__}>"


class Table(metaclass=TableMeta):
    """The base of all tables. It is never instantiated: it names columns, it holds no rows."""

    __table_name__: ClassVar[str]
    __fields__: ClassVar[Mapping[str, Field]]
    __location__: ClassVar[str]

    def __new__(cls) -> Table:
        raise TypeError(f"{cls.__name__} describes a table; rows live in DataFrames and Arrow batches")

    @classmethod
    def arrow_schema(cls, only: Iterable[str] | None = None) -> pa.Schema:
        """The Arrow schema of all fields, or of those in ``only``, in the order of the class."""
        wanted = None if only is None else set(only)
        return pa.schema([f.arrow for f in cls.__fields__.values() if wanted is None or f.name in wanted])

    @classmethod
    def input_schema(cls) -> pa.Schema:
        """What an input must provide: every field that is not derived."""
        return pa.schema([f.read for f in cls.__fields__.values() if not f.derived])

    @classmethod
    def spark_schema(cls, only: Iterable[str] | None = None) -> StructType:
        return spark_schema(cls.arrow_schema(only))

    @classmethod
    def schema_id(cls) -> str:
        """A stable hash of name, fields, types and nullability."""
        return schema_id(cls.__table_name__, pa.schema([f.read for f in cls.__fields__.values()]))


def schema_id(name: str, schema: pa.Schema) -> str:
    lines = [name, *(f"{f.name} {f.type} {'null' if f.nullable else 'not null'}{_zoned(f)}" for f in schema)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def zone_of(field: pa.Field) -> str | None:
    """The zone of times that say none, as `Timestamp` declared it."""
    return field.metadata[ZONE].decode() if field.metadata and ZONE in field.metadata else None


def refuse_zones(where: str, table: type[Table]) -> None:
    """Raise for a table with local times of a place, where they are not read as such."""
    for field in table.__fields__.values():
        if field.zone:
            raise DefinitionError(
                f"{where}: {field} has the zone {field.zone}, which is not known here",
                hint="declare it with Timestamp(naive=True), and convert it in a transform",
            )


def _zoned(field: pa.Field) -> str:
    zone = zone_of(field)
    return f" in {zone}" if zone else ""


def unknown_field(table: str, name: str, known: Iterable[str]) -> UnknownField:
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return UnknownField(
        f"table {table} has no field {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
        hint=f"fields of {table}: {', '.join(names)}",
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _hints(cls: TableMeta, frame: types.FrameType) -> dict[str, Any]:
    """The annotations of the class itself; those of its bases belong to other scopes and are done."""
    alone = type(cls.__name__, (), {"__annotations__": inspect.get_annotations(cls)})
    try:
        return typing.get_type_hints(alone, frame.f_globals, dict(frame.f_locals), include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise UnknownType(
            f"{cls.__location__}: table {cls.__table_name__}: {error}",
            hint="an annotation can name only what is defined or imported before the table",
        ) from error


def _check_body(cls: TableMeta, body: Mapping[str, Any], own: Set[str], markers: Set[str]) -> None:
    where = f"{cls.__location__}: table {cls.__table_name__}"
    if not cls.__fields__:
        raise DefinitionError(f"{where} has no fields")
    for name in sorted(markers - own):
        raise DefinitionError(
            f"{where}: {name} = derived() has no type", hint=f"write {name}: TYPE = derived()"
        )
    for name in sorted(own & body.keys()):
        raise DefinitionError(
            f"{where}: {name} has the value {body[name]!r}",
            hint="a field has a type only; a transform gives it a value",
        )
    for name in sorted(own & vars(Table).keys()):
        raise DefinitionError(
            f"{where} has a field {name}, which is a method of every table",
            hint="rename the column where it is read",
        )
    spelled: dict[str, str] = {}
    for name in cls.__fields__:
        if (other := spelled.setdefault(name.lower(), name)) != name:
            raise DefinitionError(
                f"{where} has fields {other} and {name}", hint="Spark does not tell upper from lower case"
            )


def _field(cls: TableMeta, name: str, annotation: Any, is_derived: bool) -> Field:
    try:
        kind, nullable = _column(annotation)
    except UnknownType as error:
        raise UnknownType(
            f"{cls.__location__}: {cls.__table_name__}.{name}: {error.what}", hint=error.hint
        ) from None
    return Field(cls.__table_name__, name, kind, nullable, is_derived, _zone(annotation))


def _column(annotation: Any) -> tuple[pa.DataType, bool]:
    """The Arrow type and nullability of an annotation."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in arguments if a is not type(None)]
        if len(inner) != 1 or len(inner) == len(arguments):
            raise UnknownType(
                f"{annotation} is a union", hint="a column has one type; `T | None` makes it nullable"
            )
        return _column(inner[0])[0], True
    if origin is typing.Annotated:
        return _annotated(arguments[0], arguments[1:])
    if annotation is Decimal:
        raise UnknownType(
            "Decimal without precision",
            hint="write Annotated[Decimal, Precision(18, 4)] with the digits you need",
        )
    if isinstance(annotation, Hashable) and annotation in OF_PYTHON:
        return OF_PYTHON[annotation], False
    if origin is list and arguments:
        _refuse_zone(_zone(arguments[0]))
        kind, nullable = _column(arguments[0])
        return pa.list_(pa.field("element", kind, nullable)), False
    if isinstance(annotation, TableMeta) and annotation.__fields__:
        for field in annotation.__fields__.values():
            _refuse_zone(field.zone)
        return pa.struct([f.arrow for f in annotation.__fields__.values()]), False
    raise UnknownType(
        f"{annotation!r} is not a column type",
        hint="use int, float, str, bytes, bool, date, datetime, Annotated[Decimal, Precision(p, s)], "
        "Annotated[datetime, Timestamp(naive=True)], list[T], a Table, or T | None",
    )


def _annotated(inner: Any, extras: tuple[Any, ...]) -> tuple[pa.DataType, bool]:
    nullable = typing.get_origin(inner) in (typing.Union, types.UnionType)
    for extra in extras:
        if isinstance(extra, Precision):
            _check_bare(inner, "Precision", Decimal)
            return pa.decimal128(extra.precision, extra.scale), nullable
        if isinstance(extra, Timestamp):
            _check_bare(inner, "Timestamp", datetime)
            return pa.timestamp("us") if extra.naive else OF_PYTHON[datetime], nullable
    return _column(inner)


def _check_bare(inner: Any, marker: str, described: type) -> None:
    bare = [a for a in typing.get_args(inner) if a is not type(None)] or [inner]
    if bare != [described]:
        raise UnknownType(f"{marker} describes {described.__name__}, not {inner!r}")


def _refuse_zone(zone: str | None) -> None:
    if zone is not None:
        raise UnknownType(
            f"Timestamp(zone={zone!r}) inside a nested value",
            hint="only a column of the table itself can have a zone; take Timestamp(naive=True) there, "
            "and convert it in a transform",
        )


def _zone(annotation: Any) -> str | None:
    """The zone of an annotation, also of ``Annotated[…] | None``."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next((zone for each in typing.get_args(annotation) if (zone := _zone(each))), None)
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.zone for mark in marks if isinstance(mark, Timestamp)), None)
