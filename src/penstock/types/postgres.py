"""PostgreSQL's types, and how they match those of Arrow and Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.types.arrow import Kind


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result: ``type`` is what batches hold; ``oid`` and ``typmod`` are PostgreSQL's type."""

    name: str
    type: pa.DataType
    oid: int
    typmod: int = -1
    nullable: bool = True
    table: int = 0
    """The oid of the table whose column it is, and the column's number there; 0 if it is computed."""
    attribute: int = 0


BOOL = 16
BYTEA = 17
CHAR = 18
NAME = 19
INT8 = 20
INT2 = 21
INT4 = 23
TEXT = 25
OID = 26
JSON = 114
FLOAT4 = 700
FLOAT8 = 701
UNKNOWN = 705
BPCHAR = 1042
VARCHAR = 1043
DATE = 1082
TIME = 1083
TIMESTAMP = 1114
TIMESTAMPTZ = 1184
INTERVAL = 1186
NUMERIC = 1700
RECORD = 2249
VOID = 2278
UUID = 2950
XML = 142
TIMETZ = 1266
INT4RANGE = 3904
NUMRANGE = 3906
TSRANGE = 3908
TSTZRANGE = 3910
DATERANGE = 3912
INT8RANGE = 3926
JSONB = 3802

BOOL_ARRAY = 1000
BYTEA_ARRAY = 1001
CHAR_ARRAY = 1002
NAME_ARRAY = 1003
INT2_ARRAY = 1005
INT4_ARRAY = 1007
TEXT_ARRAY = 1009
BPCHAR_ARRAY = 1014
VARCHAR_ARRAY = 1015
INT8_ARRAY = 1016
FLOAT4_ARRAY = 1021
FLOAT8_ARRAY = 1022
OID_ARRAY = 1028
TIMESTAMP_ARRAY = 1115
DATE_ARRAY = 1182
TIME_ARRAY = 1183
TIMESTAMPTZ_ARRAY = 1185
INTERVAL_ARRAY = 1187
NUMERIC_ARRAY = 1231
JSON_ARRAY = 199
UUID_ARRAY = 2951
JSONB_ARRAY = 3807
RECORD_ARRAY = 2287

_LARGEST_PRECISION = 38
_TYPMOD_HEADER = 4


@dataclass(frozen=True, slots=True)
class _Type:
    oid: int
    array: int
    size: int
    """Bytes of a value as PostgreSQL stores it; -1 if it varies."""
    name: str
    """As `format_type` of PostgreSQL says it, which is also how DDL spells it."""
    spark: str = "STRING"
    arrow: str = "string"
    """Both hold as text what they have no type for. `arrow_type` and `spark_type` know more."""
    short: str = ""
    """The other name that SQL has for it. Of types that have one, `pg_type` has this one."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name, self.short or self.name})


# What SQL can name.
_TYPES = (
    _Type(BOOL, BOOL_ARRAY, 1, "boolean", "BOOLEAN", "bool", "bool"),
    _Type(BYTEA, BYTEA_ARRAY, -1, "bytea", "BINARY", "binary"),
    _Type(NAME, NAME_ARRAY, 64, "name"),
    _Type(INT8, INT8_ARRAY, 8, "bigint", "BIGINT", "int64", "int8"),
    _Type(INT2, INT2_ARRAY, 2, "smallint", "SMALLINT", "int16", "int2"),
    _Type(INT4, INT4_ARRAY, 4, "integer", "INT", "int32", "int4"),
    _Type(TEXT, TEXT_ARRAY, -1, "text"),
    _Type(OID, OID_ARRAY, 4, "oid", "BIGINT", "int64"),
    _Type(JSON, JSON_ARRAY, -1, "json"),
    _Type(FLOAT4, FLOAT4_ARRAY, 4, "real", "FLOAT", "float32", "float4"),
    _Type(FLOAT8, FLOAT8_ARRAY, 8, "double precision", "DOUBLE", "float64", "float8"),
    _Type(BPCHAR, BPCHAR_ARRAY, -1, "character", short="char"),
    _Type(VARCHAR, VARCHAR_ARRAY, -1, "character varying", short="varchar"),
    _Type(DATE, DATE_ARRAY, 4, "date", "DATE", "date32"),
    _Type(TIME, TIME_ARRAY, 8, "time without time zone", arrow="time64[us]", short="time"),
    _Type(TIMESTAMP, TIMESTAMP_ARRAY, 8, "timestamp without time zone", "TIMESTAMP_NTZ", short="timestamp"),
    _Type(TIMESTAMPTZ, TIMESTAMPTZ_ARRAY, 8, "timestamp with time zone", "TIMESTAMP", short="timestamptz"),
    _Type(INTERVAL, INTERVAL_ARRAY, 16, "interval", "INTERVAL DAY TO SECOND", "month_day_nano_interval"),
    _Type(NUMERIC, NUMERIC_ARRAY, -1, "numeric"),
    _Type(UUID, UUID_ARRAY, 16, "uuid"),
    _Type(JSONB, JSONB_ARRAY, -1, "jsonb"),
)
# What only values have that clients send or ask for.
_UNNAMED = (
    _Type(CHAR, CHAR_ARRAY, 1, '"char"'),
    _Type(UNKNOWN, 0, -2, "unknown"),
    _Type(RECORD, RECORD_ARRAY, -1, "record"),
    _Type(VOID, 0, 4, "void"),
    _Type(XML, 143, -1, "xml"),
    _Type(TIMETZ, 1270, 12, "time with time zone"),
    _Type(INT4RANGE, 3905, -1, "int4range"),
    _Type(NUMRANGE, 3907, -1, "numrange"),
    _Type(TSRANGE, 3909, -1, "tsrange"),
    _Type(TSTZRANGE, 3911, -1, "tstzrange"),
    _Type(DATERANGE, 3913, -1, "daterange"),
    _Type(INT8RANGE, 3927, -1, "int8range"),
)
_BY_OID = {kind.oid: kind for kind in (*_TYPES, *_UNNAMED)}
_BY_ARRAY = {kind.array: kind for kind in _BY_OID.values() if kind.array}
OIDS: Mapping[str, int] = {name: kind.oid for kind in _TYPES for name in kind.names}
"""The types that SQL can name, by each of their names."""


def element(oid: int) -> int | None:
    """The type of an array's elements; None if it is no array."""
    kind = _BY_ARRAY.get(oid)
    return None if kind is None else kind.oid


def array_of(oid: int) -> int | None:
    """The type of arrays of a type; None if there is none."""
    kind = _BY_OID.get(oid)
    return kind.array or None if kind is not None else None


def type_size(oid: int) -> int:
    """What a row description tells of a type's size: -1 if it varies."""
    kind = _BY_OID.get(oid)
    return -1 if kind is None else kind.size


def type_name(oid: int) -> str:
    """The name as PostgreSQL prints it: ``integer``, ``numeric[]``."""
    if (inner := element(oid)) is not None:
        return f"{_BY_OID[inner].name}[]"
    return _BY_OID[oid].name if oid in _BY_OID else f"type {oid}"


def numeric_typmod(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + _TYPMOD_HEADER


def column(name: str, type: pa.DataType, nullable: bool = True) -> Column:  # noqa: A002
    """The column that a client sees for one of Arrow's."""
    oid, typmod = _of_arrow(type)
    return Column(name, type, oid, typmod, nullable)


def _of_arrow(type: pa.DataType) -> tuple[int, int]:  # noqa: A002
    import pyarrow.types as kinds

    from penstock.types.arrow import is_list

    if kinds.is_dictionary(type):
        return _of_arrow(type.value_type)
    if kinds.is_decimal(type):
        # Arrow allows a negative scale and PostgreSQL's typmod is only for those within its own limits.
        within = 0 <= type.scale <= type.precision
        return NUMERIC, numeric_typmod(type.precision, type.scale) if within else -1
    if is_list(type):
        inner, typmod = _of_arrow(type.value_type)
        nested = element(inner) is not None or inner == JSON
        return (JSON, -1) if nested else (_BY_OID[inner].array, typmod)
    return _scalar(type), -1


def _scalar(type: pa.DataType) -> int:  # noqa: A002
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_timestamp(type):
        return TIMESTAMP if type.tz is None else TIMESTAMPTZ
    if kinds.is_struct(type) or kinds.is_map(type):
        return JSON
    if kinds.is_fixed_size_binary(type):
        return BYTEA
    if isinstance(type, pa.BaseExtensionType):
        return UUID if type.extension_name == "arrow.uuid" else _scalar(type.storage_type)
    return _SCALARS.get(str(type), TEXT)


# By the name that Arrow prints, so that this module loads without Arrow.
_SCALARS = {
    "bool": BOOL,
    "int8": INT2,
    "int16": INT2,
    "int32": INT4,
    "int64": INT8,
    "uint8": INT2,
    "uint16": INT4,
    "uint32": INT8,
    "uint64": NUMERIC,
    "halffloat": FLOAT4,
    "float": FLOAT4,
    "double": FLOAT8,
    "date32[day]": DATE,
    "date64[ms]": DATE,
    "time32[s]": TIME,
    "time32[ms]": TIME,
    "time64[us]": TIME,
    "time64[ns]": TIME,
    "duration[s]": INTERVAL,
    "duration[ms]": INTERVAL,
    "duration[us]": INTERVAL,
    "duration[ns]": INTERVAL,
    "month_day_nano_interval": INTERVAL,
    "binary": BYTEA,
    "large_binary": BYTEA,
    "binary_view": BYTEA,
}


def arrow_type(oid: int, typmod: int = -1) -> pa.DataType:
    """What a column of a PostgreSQL type is in Arrow; a type that Arrow has not becomes a string."""
    import pyarrow as pa

    if (inner := element(oid)) is not None:
        return pa.list_(arrow_type(inner, typmod))
    if oid == NUMERIC:
        return pa.decimal128(*_precision(typmod))
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        return pa.timestamp("us", "UTC" if oid == TIMESTAMPTZ else None)
    return pa.type_for_alias(_BY_OID[oid].arrow if oid in _BY_OID else "string")


def _precision(typmod: int) -> tuple[int, int]:
    """Precision and scale of a numeric: Spark's largest, 18 of it after the point, where none is told."""
    if typmod < _TYPMOD_HEADER:
        return _LARGEST_PRECISION, 18
    precision = min((typmod - _TYPMOD_HEADER) >> 16, _LARGEST_PRECISION)
    # PostgreSQL keeps the scale in 11 bits with a sign.
    scale = ((typmod - _TYPMOD_HEADER) & 0x7FF ^ 0x400) - 0x400
    return max(precision, 1), min(max(scale, 0), precision)


def spark_type(oid: int, typmod: int = -1) -> str:
    """The type to which Spark casts a parameter."""
    if (inner := element(oid)) is not None:
        return f"ARRAY<{spark_type(inner, typmod)}>"
    if oid == NUMERIC:
        return "DECIMAL({},{})".format(*_precision(typmod))
    return _BY_OID[oid].spark if oid in _BY_OID else "STRING"


def pg_ddl(type: pa.DataType) -> str:  # noqa: A002
    """The type of a column in CREATE TABLE, as PostgreSQL spells it."""
    oid, typmod = _of_arrow(type)
    inner = element(oid)
    name = _BY_OID[oid if inner is None else inner].name
    if typmod >= 0:
        name += f"({typmod - _TYPMOD_HEADER >> 16},{typmod - _TYPMOD_HEADER & 0x7FF})"
    return name if inner is None else f"{name}[]"


def takes(name: str, type: pa.DataType) -> bool:  # noqa: A002
    """Whether a column of a type in `pg_type` may be given Arrow's values. A text may become anything."""
    from penstock.types.arrow import NESTED, kind_of

    given = kind_of(type)
    if given in NESTED:
        return name in ("json", "jsonb")
    found = _kind(name)
    return given in ("text", found) or (given == "integer" and found == "decimal")


def gives(name: str, category: str, type: pa.DataType) -> bool:  # noqa: A002
    """Whether the values in a column of a type and category in `pg_type` may be read as Arrow's."""
    from penstock.types.arrow import kind_of

    if (wanted := kind_of(type)) == "text":
        # Texts of any kind, enumerations, and addresses in networks.
        return category in ("S", "E", "I") or name in ("uuid", "json", "jsonb", "xml")
    return wanted == _kind(name)


def _kind(name: str) -> Kind | None:
    """The kind of values of a type in `pg_type`. An oid is a name, and no number to count with."""
    from penstock.types.arrow import kind_of

    oid = OIDS.get(name, OID)
    return None if oid == OID else kind_of(arrow_type(oid))
