"""to_char of numbers: patterns of 9, 0, comma and point, as PostgreSQL fills them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.sql.rules.core import Call, Typed, between, once, text
from penstock.sql.rules.types import FLOAT8, INT4, ROUGH, TEXT
from penstock.sql.rules.values.casts import to_numeric
from penstock.sql.rules.values.operators import double

_PATTERN = re.compile(r"(FM)?((?:,?[09])*,?)(?:[.D]([09]*))?", re.IGNORECASE)
_SURE = {"float4": 6, "float8": 15}
"""How many digits PostgreSQL shows of a double: the point comes with fewer places where these run out."""
_MOST = 18
"""Digits before the point up to which a double is also exact as a bigint."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A pattern. ``whole`` stands before the point, ``digits`` behind it, None without a point."""

    whole: str
    digits: str | None
    fills: bool

    @property
    def size(self) -> int:
        return len(self.whole.replace(",", ""))

    @property
    def places(self) -> int:
        return len(self.digits or "")

    @property
    def zeros(self) -> int:
        """How many digits stand before the point at least."""
        bare = self.whole.replace(",", "")
        return len(bare) - bare.find("0") if "0" in bare else 0

    @property
    def kept(self) -> int:
        """How many places FM leaves even if they are zeros."""
        return (self.digits or "").rfind("0") + 1

    def aligned(self, sign: str, whole: str) -> str:
        """What stands before the point, with blanks where nothing does."""
        signed = f"concat({sign}, {whole})"
        return signed if self.fills else f"lpad({signed}, {len(self.whole) + 1}, ' ')"


def number_text(call: Call, value: Typed, pattern: str) -> str:
    """A number written by a pattern."""
    form = _form(call, pattern)
    if value.type == ROUGH and form.places > _SURE["float8"]:
        raise call.refuse(f"a value that is computed in double precision has {_SURE['float8']} digits")
    is_double = value.type.floating and value.type != ROUGH
    if form.places > 37 or (is_double and form.size > _MOST):
        raise call.refuse(f'the pattern "{pattern}" has too many digits')
    spare = "0"
    if is_double:
        sure = _SURE[value.type.name]
        written = once(Typed(double(value), FLOAT8), lambda v: _double(v, form, sure))
        # Of NaN and Infinity, which have no places, as many are counted.
        spare = f"greatest(0, least({form.places}, {sure} - length({{left}})))"
    else:
        written = _decimal(to_numeric(value), form)

    def body(t: str) -> str:
        left = Typed(f"ltrim('-', substring_index({t}, '.', 1))", TEXT)
        return once(left, lambda v: _filled(form, t, v, spare.format(left=v)))

    return once(Typed(written, TEXT), body)


def _form(call: Call, pattern: str) -> _Form:
    found = _PATTERN.fullmatch(re.sub("g", ",", pattern, flags=re.IGNORECASE))
    if not found or not (found[2].strip(",") or found[3] is not None):
        raise call.refuse(f'the pattern "{pattern}" is not supported')
    return _Form(found[2], found[3], found[1] is not None)


def _decimal(value: Typed, form: _Form) -> str:
    whole = value.type.precision - value.type.scale + 1
    return f"CAST(CAST({value.sql} AS DECIMAL({min(38, whole + form.places)},{form.places})) AS STRING)"


def _double(v: str, form: _Form, sure: int) -> str:
    """Rounded by its binary digits, as C does it: the nearest decimal may lie on the other side of a half."""
    places = f"least({form.places}, {sure} - length(format_number(abs({v}), '0')))"
    shown = once(Typed(places, INT4), lambda p: f"IF({p} > 0, concat('0.', repeat('0', {p})), '0')")
    large = (
        f" WHEN {between('1e15D', f'abs({v})', '1e18D')} THEN CAST(CAST({v} AS BIGINT) AS STRING)"
        if form.size > _SURE["float8"]
        else ""
    )
    unusual = f"isnan({v}) OR abs({v}) = DOUBLE('Infinity')"
    return f"CASE WHEN {unusual} THEN CAST({v} AS STRING){large} ELSE format_number({v}, {shown}) END"


def _filled(form: _Form, t: str, left: str, spare: str) -> str:
    """The pattern with the digits of ``t``, or with marks if it has no room for ``left``, the whole ones."""
    sign = f"IF(startswith({t}, '-'), '-', '')"
    cents = f"IF(contains({t}, '.'), substring_index({t}, '.', -1), '')"
    marks = re.sub("[09]", "#", form.whole.lstrip(","))
    point, over = "", ""
    if form.digits is not None:
        point = f", IF(contains({t}, '.'), concat('.', {_trimmed(form, cents)}), '')"
        over = f", '.', repeat('#', IF({left} RLIKE '[a-z]', {spare}, length({cents})))"
    digits = _with_commas(form, _before_point(form, t, left))
    return (
        f"IF(length({left}) > {form.size}, concat({form.aligned(sign, text(marks))}{over}),"
        f" concat({form.aligned(sign, digits)}{point}))"
    )


def _trimmed(form: _Form, cents: str) -> str:
    if not form.fills:
        return cents
    rest = f"regexp_replace(substring({cents}, {form.kept + 1}), '0+$', '')"
    return f"concat(left({cents}, {form.kept}), {rest})"


def _before_point(form: _Form, t: str, left: str) -> str:
    """Zeros from the first 0 of the pattern on. Without one, a lone zero before places is left out."""
    if form.zeros:
        return f"lpad({left}, greatest({form.zeros}, length({left})), '0')"
    lone = f"{t} RLIKE '^-?0[.]'"
    if form.fills and not form.kept:
        # Something must be left.
        lone += f" AND NOT {t} RLIKE '^-?0[.]0*$'"
    return f"IF({lone}, '', {left})"


def _with_commas(form: _Form, digits: str) -> str:
    """A comma stands where the pattern has one, if a digit comes before it."""
    behind = [len(part.replace(",", "")) for part in _tails(form.whole)]
    if not behind:
        return digits
    places = "|".join(f".{{{count}}}" for count in behind)
    return f"regexp_replace({digits}, '(?<=.)(?=({places})$)', ',')"


def _tails(whole: str) -> list[str]:
    return [whole[place + 1 :] for place, char in enumerate(whole) if char == ","]
