"""Does the column type that a transform made fit the one it declared?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WIDER = {"byte": 1, "short": 2, "integer": 3, "long": 4}


def same(have: DataType, want: DataType) -> bool:
    """Equal but for nullability and metadata."""
    return bool(_bare(have) == _bare(want))


def widens(have: DataType, want: DataType) -> bool:
    """Whether a cast from ``have`` to ``want`` can neither fail nor lose anything."""
    from pyspark.sql.types import DecimalType, DoubleType, FloatType, NullType

    if same(have, want) or isinstance(have, NullType):
        return True
    if isinstance(have, DecimalType) and isinstance(want, DecimalType):
        return want.scale >= have.scale and want.precision - want.scale >= have.precision - have.scale
    if isinstance(have, FloatType) and isinstance(want, DoubleType):
        return True
    small, large = _WIDER.get(have.typeName()), _WIDER.get(want.typeName())
    return small is not None and large is not None and small <= large


def _bare(kind: DataType) -> Any:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return ("array", _bare(kind.elementType))
    if isinstance(kind, MapType):
        return ("map", _bare(kind.keyType), _bare(kind.valueType))
    if isinstance(kind, StructType):
        return ("struct", *((f.name, _bare(f.dataType)) for f in kind))
    return kind.simpleString()
