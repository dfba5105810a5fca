"""to_char, to_date and to_timestamp: PostgreSQL's patterns, piece by piece."""

from __future__ import annotations

import re

from penstock.sql.rules.core import Call, Typed, once, text
from penstock.sql.rules.types import TEXT, TIMESTAMP
from penstock.sql.rules.values.casts import cast, to_numeric
from penstock.sql.rules.values.texts import plain

_PIECES = re.compile(
    r"(FM|TM)?(YYYY|IYYY|YYY|YY|Y,YYY|Y|MONTH|Month|month|MON|Mon|mon|MM|DDD|IDDD|DD|DAY|Day|day|DY|Dy|dy|D|ID|HH24|HH12"
    r"|HH|MI|SSSSS|SSSS|SS|MS|US|FF[1-6]|AM|PM|am|pm|A\.M\.|P\.M\.|a\.m\.|p\.m\.|Q|WW|IW|W|CC|J|TZH|TZM|TZ|tz|OF|BC|AD|RM)"
    r'|"([^"]*)"',
    re.IGNORECASE,
)
_SUFFIX = re.compile(r"(th|TH|SP)")
_FORMS = {
    "YYYY": ("y", 4), "YY": ("yy", 0), "MM": ("M", 2), "DD": ("d", 2), "DDD": ("D", 3), "HH24": ("H", 2),
    "HH12": ("h", 2), "HH": ("h", 2), "MI": ("m", 2), "SS": ("s", 2),
}  # fmt: skip


def moment_text(call: Call, value: Typed, pattern: str) -> str:
    """A moment written by a pattern."""
    at, parts = 0, []
    sql = value.sql if value.type.name != "date" else f"CAST({value.sql} AS TIMESTAMP_NTZ)"
    if value.type.name == "date":
        value = Typed(sql, TIMESTAMP)
    while at < len(pattern):
        found = _PIECES.match(pattern, at)
        if not found:
            if pattern[at] == "\\":
                raise call.refuse("a backslash in the pattern is not supported")
            parts.append(text(pattern[at]))
            at += 1
            continue
        if found[3] is not None:
            parts.append(text(found[3]) if found[3] else "")
        else:
            parts.append(_field(call, sql, found[2], fill=found[1] is None, translated=found[1] == "TM"))
        at = found.end()
        if found[3] is None and _SUFFIX.match(pattern, at):
            raise call.refuse("th and SP in a pattern are not supported")
    made = [part for part in parts if part]
    return f"concat({', '.join(made)})" if made else "''"


def _field(call: Call, v: str, name: str, *, fill: bool, translated: bool) -> str:
    upper = name.upper()
    if upper in _FORMS:
        letter, size = _FORMS[upper]
        return f"date_format({v}, '{letter * (size or 1) if size and fill else letter}')"
    if upper in ("MONTH", "MON", "DAY", "DY"):
        return _word(v, name, fill=fill and not translated)
    week = f"((dayofyear({v}) - 1) DIV 7 + 1)"
    numbers = {
        "Q": f"quarter({v})", "D": f"dayofweek({v})", "ID": f"(weekday({v}) + 1)",
        "W": f"((day({v}) - 1) DIV 7 + 1)",
        "CC": f"lpad(ceil(year({v}) / 100), 2, '0')" if fill else f"ceil(year({v}) / 100)",
        "WW": f"lpad({week}, 2, '0')" if fill else week,
        "IW": f"lpad(weekofyear({v}), 2, '0')" if fill else f"weekofyear({v})",
        "IYYY": f"lpad(extract(YEAROFWEEK FROM {v}), 4, '0')",
    }  # fmt: skip
    if upper in numbers:
        return f"CAST({numbers[upper]} AS STRING)"
    if upper in ("AM", "PM"):
        word = f"IF(hour({v}) < 12, 'AM', 'PM')"
        return word if name.isupper() else f"lower({word})"
    if upper in ("MS", "US"):
        return f"date_format({v}, '{'SSS' if upper == 'MS' else 'SSSSSS'}')"
    raise call.refuse(f'the pattern "{name}" is not supported')


def _word(v: str, name: str, *, fill: bool) -> str:
    letters = {"MONTH": "MMMM", "MON": "MMM", "DAY": "EEEE", "DY": "EEE"}[name.upper()]
    sql = f"date_format({v}, '{letters}')"
    if name.isupper():
        sql = f"upper({sql})"
    elif name.islower():
        sql = f"lower({sql})"
    return f"rpad({sql}, 9, ' ')" if fill and name.upper() in ("MONTH", "DAY") else sql


def parsed(call: Call, kind: str) -> str:
    """A text read by a pattern, for patterns of digits with something between them."""
    value, pattern = call.args
    if not isinstance(pattern.value, str):
        raise call.refuse("the pattern must be a literal")
    if value.type.name == "unknown":
        value = cast(value, TEXT)
    if not value.type.textual:
        raise call.refuse("a text is wanted")
    words = {
        "YYYY": "yyyy", "MM": "M", "DD": "d", "HH24": "H", "MI": "m", "SS": "s", "MS": "SSS", "US": "SSSSSS",
        "MON": "MMM", "MONTH": "MMMM", "HH12": "h", "HH": "h", "AM": "a", "PM": "a",
    }  # fmt: skip
    out, at, tight, last = [], 0, False, False
    while at < len(pattern.value):
        found = _PIECES.match(pattern.value, at)
        if found and found[3] is None:
            word = words.get(found[2].upper())
            if word is None or found[1]:
                raise call.refuse(f'the pattern "{found[0]}" is not supported')
            # Without a separator the digits are counted.
            tight = tight or last
            out.append(word)
            at, last = found.end(), True
        elif found:
            raise call.refuse("quoted text in the pattern is not supported")
        else:
            char = pattern.value[at]
            if char.isalnum() and char != "T":
                raise call.refuse(f'the pattern "{char}" is not supported')
            out.append(f"'{char}'" if char.isalpha() else char)
            at, last = at + 1, False
    if tight:
        out = [part * 2 if part in ("M", "d", "H", "m", "s", "h") else part for part in out]
    function = "to_timestamp" if kind == "TIMESTAMP" else "to_timestamp_ntz"
    return f"{function}({plain(value)}, {text(''.join(out))})"


def number_text(call: Call, value: Typed, pattern: str) -> str:
    """A number written by a pattern of 9, 0, comma and point."""
    fill_mode = pattern.upper().startswith("FM")
    body = pattern[2:] if fill_mode else pattern
    body = body.replace("D", ".").replace("d", ".").replace("G", ",").replace("g", ",")
    found = re.fullmatch(r"([09,]*)(?:\.([09]*))?", body)
    if not found or not (found[1] or found[2]):
        raise call.refuse(f'the pattern "{pattern}" is not supported')
    whole, digits = found[1], found[2]
    if value.type.floating or value.type.integer:
        value = to_numeric(value)
    places = len(digits or "")
    size = sum(char in "09" for char in whole)
    zeros = len(whole.replace(",", "")) - (
        whole.replace(",", "").find("0") if "0" in whole else len(whole.replace(",", ""))
    )
    return once(value, lambda v: _number(v, whole, digits, size, places, zeros, fill_mode=fill_mode))


def _number(
    v: str, whole: str, digits: str | None, size: int, places: int, zeros: int, *, fill_mode: bool
) -> str:
    rounded = f"round(CAST(abs({v}) AS DECIMAL(38,{max(places, 1) if places else 6})), {places})"
    left = f"CAST(floor({rounded}) AS DECIMAL(38,0))"
    # Leading zeros stand from the first 0 of the pattern; a lone zero before the point is left out.
    shown = f"IF({left} = 0, '', CAST({left} AS STRING))"
    if not places and not zeros:
        shown = f"CAST({left} AS STRING)"
    padded = f"lpad({shown}, greatest({zeros}, length({shown})), '0')" if zeros else shown
    if "," in whole:
        padded = f"regexp_replace({padded}, '(?<=[0-9])(?=([0-9]{{3}})+$)', ',')"
    tail = ""
    if digits is not None:
        cents = (
            f"substring(CAST(CAST({rounded} AS DECIMAL(38,{places})) AS STRING), -{places})"
            if places
            else "''"
        )
        if fill_mode and places:
            keep = digits.rfind("0") + 1
            cents = (
                f"concat(left({cents}, {keep}), regexp_replace(substring({cents}, {keep + 1}), '0+$', ''))"
            )
        tail = f", '.', {cents}"
    text_ = f"concat(IF({v} < 0 AND {rounded} <> 0, '-', ''), {padded}{tail})"
    total = len(whole) + (1 + places if digits is not None else 0) + 1
    over = f"length(CAST({left} AS STRING)) > {size}" if size else f"{left} > 0"
    hashes = "#" * len(whole) + ("." + "#" * places if digits is not None else "")
    filled = f"{text_}" if fill_mode else f"lpad({text_}, {total}, ' ')"
    sign = "" if fill_mode else " "
    full = f"concat(IF({v} < 0, '-', '{sign}'), '{hashes}')"
    return f"(CASE WHEN {v} IS NULL THEN NULL WHEN {over} THEN {full} ELSE {filled} END)"
