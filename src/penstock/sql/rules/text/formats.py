"""to_char, to_date and to_timestamp of moments: PostgreSQL's patterns, piece by piece."""

from __future__ import annotations

import re

from penstock.sql.rules.core import Call, Typed, text
from penstock.sql.rules.types import TEXT, TIMESTAMPTZ
from penstock.sql.rules.values.casts import cast
from penstock.sql.rules.values.texts import dated, plain

_PIECES = re.compile(
    r"(FM|TM)?(YYYY|IYYY|IYY|IY|YYY|YY|Y,YYY|Y|MONTH|Month|month|MON|Mon|mon|MM|DDD|IDDD|DD|DAY|Day|day|DY|Dy|dy|D|ID|HH24|HH12"
    r"|HH|MI|SSSSS|SSSS|SS|MS|US|FF[1-6]|AM|PM|am|pm|A\.M\.|P\.M\.|a\.m\.|p\.m\.|Q|WW|IW|W|CC|J|TZH|TZM|TZ|tz|OF|BC|AD|B\.C\.|A\.D\.|RM|FX|I)"
    r'|"([^"]*)"',
    re.IGNORECASE,
)
_YEARS = frozenset({"YYYY", "YY", "IYYY", "CC"})
_MIXED = frozenset({"Month", "Mon", "Day", "Dy"})
_SUFFIX = re.compile(r"(th|TH|SP)")
# Not by date_format(), which moves a timestamp out of the hour that the session's clocks leave out.
_TWELVE = "((hour({v}) + 11) % 12 + 1)"
_FORMS = {
    "YYYY": ("year({v})", 4), "MM": ("month({v})", 2), "DD": ("day({v})", 2), "DDD": ("dayofyear({v})", 3),
    "HH24": ("hour({v})", 2), "HH12": (_TWELVE, 2), "HH": (_TWELVE, 2), "MI": ("minute({v})", 2),
    "SS": ("second({v})", 2),
}  # fmt: skip
_MICROS = "CAST(extract(SECOND FROM {v}) * 1000000 AS BIGINT) % 1000000"
_ALWAYS_FILLED = {
    "YY": ("year({v}) % 100", 2), "MS": (f"{_MICROS} DIV 1000", 3), "US": (_MICROS, 6),
}  # fmt: skip
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def moment_text(call: Call, value: Typed, pattern: str) -> str:
    """A moment written by a pattern."""
    at, parts, with_year = 0, [], False
    # PostgreSQL takes a date for a moment, which is later where clocks leave midnight out.
    sql = cast(value, TIMESTAMPTZ).sql if value.type.name == "date" else value.sql
    while at < len(pattern):
        found = _piece(call, pattern, at)
        if not found:
            parts.append(text(pattern[at]))
            at += 1
            continue
        if found[3] is not None:
            parts.append(text(found[3]) if found[3] else "")
        else:
            parts.append(_field(call, sql, found[2], fill=found[1] is None, translated=found[1] == "TM"))
            with_year = with_year or found[2].upper() in _YEARS
        at = found.end()
        if found[3] is None and _SUFFIX.match(pattern, at):
            raise call.refuse("th and SP in a pattern are not supported")
    made = [part for part in parts if part]
    shown = f"concat({', '.join(made)})" if made else "''"
    return dated(sql, shown) if with_year else shown


def _piece(call: Call, pattern: str, at: int) -> re.Match[str] | None:
    """What stands at this place, unless it is a letter that means itself."""
    found = _PIECES.match(pattern, at)
    if "\\" in (found[0] if found else pattern[at]):
        raise call.refuse("a backslash in the pattern is not supported")
    if found is None and pattern[at] == '"':
        raise call.refuse("a quote in the pattern that does not end is not supported")
    # PostgreSQL knows words in capitals and in small letters; it reads other ones letter by letter.
    for word in (found[1], found[2]) if found else ():
        if word and not (word.isupper() or word.islower() or word in _MIXED):
            raise call.refuse(f'the pattern "{word}" is not supported')
    return found


def _field(call: Call, v: str, name: str, *, fill: bool, translated: bool) -> str:
    upper = name.upper()
    if upper in _FORMS:
        number, size = _FORMS[upper]
        return _digits(number.format(v=v), size if fill else 0)
    if upper in _ALWAYS_FILLED:
        number, size = _ALWAYS_FILLED[upper]
        return _digits(number.format(v=v), size)
    if upper in ("MONTH", "MON", "DAY", "DY"):
        return _word(v, name, fill=fill and not translated)
    century = f"ceil(year({v}) / 100)"
    week = f"((dayofyear({v}) - 1) DIV 7 + 1)"
    numbers = {
        "Q": f"quarter({v})", "D": f"dayofweek({v})", "ID": f"(weekday({v}) + 1)",
        "W": f"((day({v}) - 1) DIV 7 + 1)",
        "CC": f"lpad({century}, greatest(2, length({century})), '0')" if fill else century,
        "WW": f"lpad({week}, 2, '0')" if fill else week,
        "IW": f"lpad(weekofyear({v}), 2, '0')" if fill else f"weekofyear({v})",
        "IYYY": f"lpad(extract(YEAROFWEEK FROM {v}), 4, '0')",
    }  # fmt: skip
    if upper in numbers:
        return f"CAST({numbers[upper]} AS STRING)"
    if upper in ("AM", "PM"):
        word = f"IF(hour({v}) < 12, 'AM', 'PM')"
        return word if name.isupper() else f"lower({word})"
    raise call.refuse(f'the pattern "{name}" is not supported')


def _digits(number: str, size: int) -> str:
    return f"lpad(CAST({number} AS STRING), {size}, '0')" if size else f"CAST({number} AS STRING)"


def _word(v: str, name: str, *, fill: bool) -> str:
    words, number = (_MONTHS, "month") if name.upper() in ("MONTH", "MON") else (_WEEKDAYS, "dayofweek")
    shown = [word if name.upper() in ("MONTH", "DAY") else word[:3] for word in words]
    sql = f"elt({number}({v}), {', '.join(map(text, shown))})"
    if name.isupper():
        sql = f"upper({sql})"
    elif name.islower():
        sql = f"lower({sql})"
    return f"rpad({sql}, 9, ' ')" if fill and name.upper() in ("MONTH", "DAY") else sql


def parsed(call: Call) -> str:
    """A timestamp without a zone: a text read by a pattern of digits with something between them."""
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
        found = _piece(call, pattern.value, at)
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
    return f"to_timestamp_ntz({plain(value)}, {text(''.join(out))})"
