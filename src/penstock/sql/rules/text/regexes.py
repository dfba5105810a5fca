"""PostgreSQL's regular expressions in Java's flavour.

Where the two would find different extents (PostgreSQL takes the longest of several alternatives, Java the
first) and the extent matters, the pattern is refused.
"""

from __future__ import annotations

import re

from penstock.errors import SqlError
from penstock.sql.rules.core import refuse

_CLASSES = {
    "alpha": "\\p{IsAlphabetic}", "digit": "\\p{IsDigit}", "alnum": "\\p{IsAlphabetic}\\p{IsDigit}",
    "upper": "\\p{IsUppercase}", "lower": "\\p{IsLowercase}", "space": "\\s", "punct": "\\p{Punct}",
    "xdigit": "0-9a-fA-F", "blank": " \\t", "cntrl": "\\p{Cntrl}", "word": "\\w",
}  # fmt: skip
_ESCAPES = {
    "y": "\\b", "Y": "\\B", "m": "\\b(?=\\w)", "M": "\\b(?<=\\w)", "A": "\\A", "Z": "\\z",
    "d": "\\d", "D": "\\D", "w": "\\w", "W": "\\W", "s": "\\s", "S": "\\S",
    "n": "\\n", "r": "\\r", "t": "\\t", "f": "\\f", "v": "\\x0B", "a": "\\x07", "e": "\\x1B",
}  # fmt: skip


def _no(pattern: str, why: str) -> SqlError:
    return refuse(f'the regular expression "{pattern}" is not supported: {why}')


def java(pattern: str, flags: str = "", *, extent: bool = False) -> str:
    """The pattern for Java. ``extent`` says that it matters what exactly is matched, not only whether."""
    if pattern.startswith("***"):
        raise _no(pattern, "directors are not translated")
    newline = "n" in flags or "m" in flags
    fold = flags.rfind("i") > flags.rfind("c")
    found = re.match(r"\(\?([a-z]+)\)", pattern)
    if found:
        if set(found[1]) - set("ics"):
            raise _no(pattern, "only the embedded options i, c and s are translated")
        fold = found[1].rfind("i") > found[1].rfind("c") if set("ic") & set(found[1]) else fold
        pattern = pattern[found.end() :]
    if extent:
        _check_extent(pattern)
    body = _body(pattern, newline=newline)
    marks = ("m" if newline else "s") + ("iu" if fold else "")
    if re.search(r"\\[wWbBsSdD]", body):
        marks += "U"
    return f"(?{marks}){body}"


def _body(pattern: str, *, newline: bool) -> str:
    out: list[str] = []
    at, size = 0, len(pattern)
    while at < size:
        char = pattern[at]
        if char == "\\":
            at += 1
            if at >= size:
                raise _no(pattern, "it ends with a backslash")
            out.append(_escape(pattern, at))
            at += len(re.match(r"x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.", pattern[at:], re.DOTALL)[0])  # type: ignore[index]
            continue
        if char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
            continue
        if char == "$":
            out.append("$" if newline else "\\z")
        elif char == "." and newline:
            out.append("[^\\n]")
        elif char in "*+?}" and pattern[at + 1 : at + 2] == "+":
            raise _no(pattern, "a quantifier of a quantifier")
        elif char == "{" and not re.match(r"\{\d+(,\d*)?\}", pattern[at:]):
            out.append("\\{")
        elif (
            char == "(" and re.match(r"\(\?[<P'>]", pattern[at:]) and not re.match(r"\(\?<[=!]", pattern[at:])
        ):
            raise _no(pattern, "groups with names are not PostgreSQL's")
        else:
            out.append(char)
        at += 1
    return "".join(out)


def _escape(pattern: str, at: int) -> str:
    char = pattern[at]
    if char in _ESCAPES:
        return _ESCAPES[char]
    found = re.match(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})", pattern[at:])
    if found:
        return f"\\u{int(found[1] or found[2], 16):04x}"
    if char.isdigit():
        if char == "0":
            raise _no(pattern, "the escape \\0")
        return f"\\{char}"
    if char.isalpha():
        raise _no(pattern, f"the escape \\{char}")
    return f"\\{char}" if ord(char) < 128 else char


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """A bracket expression, and where it ends. Java's own operators inside are made plain characters."""
    out = ["["]
    at += 1
    if pattern[at : at + 1] == "^":
        out.append("^")
        at += 1
    first = True
    while True:
        if at >= len(pattern):
            raise _no(pattern, "a bracket is not closed")
        char = pattern[at]
        if char == "]" and not first:
            return "".join(out) + "]", at + 1
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at)
            name = pattern[at + 2 : end]
            if name not in _CLASSES:
                raise _no(pattern, f"the class {name}")
            out.append(_CLASSES[name])
            at = end + 2
        elif pattern.startswith(("[.", "[="), at):
            raise _no(pattern, "collating elements")
        elif char == "\\":
            at += 1
            if pattern[at : at + 1] in ("y", "Y", "m", "M", "A", "Z"):
                raise _no(pattern, "an assertion in brackets")
            out.append(_escape(pattern, at))
            at += len(re.match(r"x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.", pattern[at:], re.DOTALL)[0])  # type: ignore[index]
        else:
            out.append(f"\\{char}" if char in "[]&~^#" else char)
            at += 1
        first = False


def _check_extent(pattern: str) -> None:
    plain = re.sub(r"\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]])*\]", "x", pattern, flags=re.DOTALL)
    lazy = re.search(r"[*+?}]\?", plain)
    greedy = re.search(r"[*+}](?!\?)|(?<![*+?}(])\?(?![?:=!<])", plain)
    if lazy and greedy:
        raise _no(pattern, "PostgreSQL makes all of a pattern greedy or not, Java each quantifier")
    if "|" in plain and not _alternatives(plain):
        raise _no(pattern, "PostgreSQL takes the longest alternative, Java the first")


def _alternatives(plain: str) -> bool:
    """Whether no alternative can be a longer form of one before it."""
    for group in re.findall(r"\(([^()]*\|[^()]*)\)", f"({plain})") or [plain]:
        branches = [branch.removeprefix("?:") for branch in group.split("|")]
        if any(branch.startswith("^") or branch.endswith("$") for branch in branches):
            continue
        literal = all(re.fullmatch(r"[\w\s:;,@#%&=<>/'\"!-]*", branch) for branch in branches)
        for i, one in enumerate(branches):
            for other in branches[i + 1 :]:
                if not literal or not one or (other.startswith(one) or (one[:1] == "x")):
                    return False
    return True


def like_to_java(pattern: str, escape: str) -> str:
    """A LIKE pattern as a regular expression."""
    out, at = ["\\A"], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        else:
            out.append({"%": ".*", "_": "."}.get(char, re.escape(char)))
        at += 1
    return "".join(out) + "\\z"


def similar_to_java(pattern: str, escape: str) -> str:
    """A pattern of SIMILAR TO as a regular expression."""
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape and at + 1 < len(pattern):
            at += 1
            out.append(re.escape(pattern[at]))
        elif char == "[":
            piece, at = _bracket(pattern, at)
            out.append(piece)
            continue
        elif char in "^$.":
            out.append(f"\\{char}")
        elif char == "\\":
            out.append("\\\\")
        else:
            out.append({"%": ".*", "_": ".", "(": "(?:"}.get(char, char))
        at += 1
    return f"(?s)\\A(?:{''.join(out)})\\z"
