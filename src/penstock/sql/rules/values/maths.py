"""Functions on numbers."""

from __future__ import annotations

from penstock.sql.rules.core import Call, Typed, between, function, once
from penstock.sql.rules.types import FLOAT8, INT4, NUMERIC, ROUGH, Type, common, decimal, numeric
from penstock.sql.rules.values import logarithms
from penstock.sql.rules.values.casts import cast, coerce, to_numeric
from penstock.sql.rules.values.operators import arithmetic, double, power, square_root

_SURE = 15
_NUMERIC = ("sqrt", "exp")
"""Functions that PostgreSQL has for numerics, too."""


def _number(call: Call, place: int = 0) -> Typed:
    value = call.args[place]
    if value.type.name == "unknown":
        value = cast(value, FLOAT8)
    if not value.type.number:
        raise call.refuse(f"a number is wanted, not {value.type.name}")
    return value


@function("abs")
def _abs(call: Call) -> Typed:
    call.expect(1)
    value = _number(call)
    return Typed(f"abs({value.sql})", value.type)


@function("sign")
def _sign(call: Call) -> Typed:
    call.expect(1)
    value = _number(call)
    if value.type.floating:
        # Neither NaN nor -0 has a sign to PostgreSQL.
        sql = once(
            Typed(double(value), FLOAT8),
            lambda v: f"IF({v} = 0 OR isnan({v}), IF({v} IS NULL, NULL, 0D), sign({v}))",
        )
        return Typed(sql, FLOAT8)
    kind = FLOAT8 if value.type.integer else numeric(1, 0)
    return Typed(f"CAST(sign({value.sql}) AS {kind.spark})", kind)


@function("ceil", "ceiling", "floor")
def _whole(call: Call) -> Typed:
    call.expect(1)
    value = _number(call)
    word = "floor" if call.name == "floor" else "ceil"
    if value.type.name == "numeric":
        return Typed(f"{word}({value.sql})", numeric(value.type.precision - value.type.scale + 1, 0))
    body = _floor if word == "floor" else _ceiling
    return Typed(once(Typed(double(value), FLOAT8), body), FLOAT8)


def _floor(v: str) -> str:
    """Of a double. Spark's own gives a bigint, which has no large values and no -0."""
    return f"IF(rint({v}) > {v}, rint({v}) - 1D, rint({v}))"


def _ceiling(v: str) -> str:
    return f"(-{_floor(f'(-{v})')})"


@function("round")
def _round(call: Call) -> Typed:
    call.expect(1, 2)
    value = _number(call)
    if len(call.args) == 1:
        if value.type.name == "numeric":
            return Typed(f"round({value.sql}, 0)", numeric(value.type.precision - value.type.scale + 1, 0))
        if value.type == ROUGH:
            return Typed(f"round({value.sql})", ROUGH)
        return Typed(f"rint({double(value)})", FLOAT8)
    return _digits(call, value, "round")


@function("trunc")
def _trunc(call: Call) -> Typed:
    call.expect(1, 2)
    value = _number(call)
    if len(call.args) == 1:
        if value.type.name == "numeric":
            return Typed(
                _cut(value.sql, 0, value.type), numeric(value.type.precision - value.type.scale + 1, 0)
            )
        sql = once(
            Typed(double(value), FLOAT8),
            lambda v: f"IF({v} < 0, {_ceiling(v)}, {_floor(v)})",
        )
        return Typed(sql, FLOAT8)
    return _digits(call, value, "trunc")


def _digits(call: Call, value: Typed, word: str) -> Typed:
    """To a number of digits, which must be known: the type of the answer hangs on it."""
    places = call.args[1]
    digits = places.value if isinstance(places.value, int) else None
    if value.type == ROUGH:
        if digits is not None and digits > _SURE:
            raise call.refuse(f"a value that is computed in double precision has {_SURE} digits")
        value = cast(value, NUMERIC)
    if value.type.floating:
        raise call.refuse("a double has no digits to cut; cast it to numeric")
    if digits is None:
        raise call.refuse("the number of digits must be a constant")
    kind = decimal(value.type)
    sql = value.sql if value.type.name == "numeric" else f"CAST({value.sql} AS {kind.spark})"
    shown = max(0, digits)
    made = f"round({sql}, {digits})" if word == "round" else _cut(sql, digits, kind)
    whole = kind.precision - kind.scale + 1
    target = numeric(whole + shown, min(shown, 38 - whole) if whole < 38 else 0)
    return Typed(f"CAST({made} AS {target.spark})", target)


def _cut(sql: str, digits: int, kind: Type) -> str:
    """Towards zero: round the value after it was moved half a step back."""
    if digits >= kind.scale:
        return sql
    floor = f"floor({{0}}, {digits})"
    return once(Typed(sql, kind), lambda v: f"IF({v} < 0, -{floor.format(f'(-{v})')}, {floor.format(v)})")


@function("mod")
def _mod(call: Call) -> Typed:
    call.expect(2)
    if any(arg.type.number for arg in call.args):
        # A literal takes the type of the other.
        return arithmetic("%", call.args[0], call.args[1], call.node)
    return arithmetic("%", _number(call), _number(call, 1), call.node)


@function("div")
def _div(call: Call) -> Typed:
    call.expect(2)
    if any(arg.type.floating for arg in call.args):
        raise call.refuse("numerics are wanted")
    a, b = (to_numeric(arg) for arg in call.args)

    # Not Spark's DIV: of decimals, too, it gives a bigint, which begins again at the other end.
    def body(x: str, y: str) -> str:
        rest = arithmetic("%", Typed(x, a.type), Typed(y, b.type))
        multiple = arithmetic("-", Typed(x, a.type), rest)
        return f"CAST({multiple.sql} / {y} AS DECIMAL(38,0))"

    return Typed(once(a, lambda x: once(b, lambda y: body(x, y))), numeric(38, 0))


@function("power", "pow")
def _power(call: Call) -> Typed:
    call.expect(2)
    return power(_number(call), _number(call, 1))


@function("sqrt", "cbrt", "exp", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh",
          "tanh",
          "asinh", "acosh", "atanh", "degrees", "radians")  # fmt: skip
def _double(call: Call) -> Typed:
    call.expect(1)
    given = _number(call)
    value = double(given)
    kind = ROUGH if call.name in _NUMERIC and logarithms.is_numeric(given.type) else FLOAT8
    checks = {
        **dict.fromkeys(
            ("sin", "cos", "tan", "cot"), ("abs({v}) = DOUBLE('Infinity')", "input is out of range")
        ),
        "asin": ("abs({v}) > 1 AND NOT isnan({v})", "input is out of range"),
        "acos": ("abs({v}) > 1 AND NOT isnan({v})", "input is out of range"),
        "acosh": ("{v} < 1", "input is out of range"),
        "atanh": ("abs({v}) > 1 AND NOT isnan({v})", "input is out of range"),
    }
    if call.name == "sqrt":
        return Typed(square_root(value), kind)
    if call.name == "exp":
        return Typed(logarithms.exponential(given), kind)
    if call.name in checks:
        test, what = checks[call.name]
        sql = once(
            Typed(value, FLOAT8),
            lambda v: f"IF({test.format(v=v)}, CAST(raise_error('{what}') AS DOUBLE), {call.name}({v}))",
        )
        return Typed(sql, kind)
    return Typed(f"{call.name}({value})", kind)


@function("atan2")
def _atan2(call: Call) -> Typed:
    call.expect(2)
    y, x = (Typed(double(_number(call, place)), FLOAT8) for place in (0, 1))

    def body(v: str, w: str) -> str:
        # Spark takes -0 for 0, which turns the angle by half a circle.
        turned = f"atan2(0D, IF({_minus_zero(w)}, -1D, {w}))"
        return (
            f"CASE WHEN {_minus_zero(v)} THEN -{turned} WHEN {v} = 0 THEN {turned} ELSE atan2({v}, {w}) END"
        )

    return Typed(once(y, lambda v: once(x, lambda w: body(v, w))), FLOAT8)


def _minus_zero(value: str) -> str:
    return f"CAST({value} AS STRING) = '-0.0'"


@function("pi")
def _pi(call: Call) -> Typed:
    call.expect(0)
    return Typed("pi()", FLOAT8)


@function("ln", "log", "log10")
def _log(call: Call) -> Typed:
    call.expect(*((1, 2) if call.name == "log" else (1,)))
    values = [_number(call, place) for place in range(len(call.args))]
    kind = ROUGH if len(values) == 2 or logarithms.is_numeric(values[0].type) else FLOAT8
    if len(values) == 2:
        return Typed(f"({logarithms.of(values[1], 'ln')} / {logarithms.of(values[0], 'ln')})", kind)
    return Typed(logarithms.of(values[0], "ln" if call.name == "ln" else "log10"), kind)


@function("factorial")
def _factorial(call: Call) -> Typed:
    call.expect(1)
    value = coerce(call.args[0], INT4).sql
    fault = "CAST(raise_error('factorial is out of range') AS BIGINT)"
    sql = f"IF({between(0, value, 20)}, factorial(CAST({value} AS INT)), {fault})"
    return Typed(f"CAST({sql} AS DECIMAL(20,0))", numeric(20, 0))


@function("gcd", "lcm")
def _gcd(call: Call) -> Typed:
    """Euclid's steps: 90 are enough for 64 bits."""
    call.expect(2)
    kind = common([call.args[0].type, call.args[1].type])
    if not kind.integer:
        raise call.refuse("integers are wanted")
    a, b = (f"CAST({arg.sql} AS BIGINT)" for arg in call.args)
    step = "(s, i) -> IF(s.y = 0, s, struct(s.y AS x, s.x % s.y AS y))"
    sql = f"aggregate(sequence(1, 92), struct(abs({a}) AS x, abs({b}) AS y), {step}, s -> s.x)"
    if call.name == "lcm":
        sql = f"IF({a} = 0 OR {b} = 0, 0L, abs({a} DIV {sql} * {b}))"
    return Typed(f"CAST({sql} AS {kind.spark})", kind)
