"""Which files tables may be made over by SQL: those below the configured roots, and no way around.

Spark reads a path as Hadoop does: it globs, and it takes URLs as they are written. A path is therefore
brought to one plain form first, and that form is what Spark gets.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import SqlError
from penstock.server.relations.files.globbing import at_most, braces, exactly, found, is_clear, is_pattern

SETTING = "serve.paths"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CHOICES = 256
"""Paths that one with braces may stand for."""
_SAME = {"s3a": "s3", "s3n": "s3"}


class Roots:
    """The folders and URLs below which SQL may name files. A relative path begins at the first folder."""

    def __init__(self, roots: Sequence[str], private: Sequence[str] = ()) -> None:
        """``private`` are places that no table is made over, wherever they are: what stands there is ours."""
        local = [plain(root) for root in roots]
        self._private = private
        self._folders = [os.path.realpath(root) for root in local if not is_remote(root)]
        self._urls = [root for root in local if is_remote(root)]

    def checked(self, path: str) -> str:
        """The path in its plain form. Raises `SqlError` 42501 unless all it can mean is below a root."""
        _check_characters(path)
        checked = self._checked(path, plain(path))
        for private in self._private:
            if overlap(checked, private):
                raise _refused(path, "Penstock keeps files of its own there")
        return checked

    def _checked(self, path: str, given: str) -> str:
        if is_remote(given):
            self._check_remote(path, given)
            return given
        given = str((Path(self._folders[0]) if self._folders else Path.cwd()) / given)
        if is_pattern(given):
            for each in braces(given):
                self._check_pattern(path, each)
            return given
        real = os.path.realpath(given)
        self._check_inside(path, real)
        return real

    def opened(self, path: str) -> str:
        """A path that was checked, with what the root says after a ``?`` about how to get there."""
        root = self._root_of(path) if is_remote(path) else None
        _, question, query = (root or "").partition("?")
        return f"{path}{question}{query}"

    def _root_of(self, url: str) -> str | None:
        parts = _parts(url)
        prefixes = ((root, _parts(root.partition("?")[0])) for root in self._urls)
        return next((root for root, prefix in prefixes if parts[: len(prefix)] == prefix), None)

    def _check_pattern(self, path: str, pattern: str) -> None:
        if ".." in Path(pattern).parts:
            raise _refused(path, "it holds ..")
        fixed = Path(*itertools.takewhile(lambda part: not is_pattern(part), Path(pattern).parts))
        self._check_inside(path, os.path.realpath(fixed))
        for each in found(pattern, at_most, hidden=True):
            self._check_inside(path, os.path.realpath(each))

    def _check_inside(self, path: str, real: str) -> None:
        inside = [root for root in self._folders if Path(real).is_relative_to(root)]
        if not inside:
            raise _refused(path, "it leads out of them" if real != path else "")
        if all(any(is_dotted(part) for part in Path(real).relative_to(root).parts) for root in inside):
            raise _refused(path, "what begins with a dot is hidden")

    def _check_remote(self, path: str, url: str) -> None:
        if any(part in ("..", ".") for each in braces(url) for part in each.split("/")):
            raise _refused(path, "it holds ..")
        if "?" in url or "@" in url.partition("://")[2].partition("/")[0]:
            raise _refused(path, "it says how to get there, which is for the configuration to say")
        if not all(self._root_of(each) for each in braces(url)):
            raise _refused(path, "")


def plain(path: str) -> str:
    """A path of this machine without ``file:``, or an URL."""
    url = _SCHEME.fullmatch(path)
    if not url:
        return path
    scheme, rest = url[1].lower(), url[2]
    if scheme != "file":
        return f"{scheme}:{rest}"
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise _refused(path, f"it is on another host, {host}")
        rest = slash + rest
    return "/" + rest.lstrip("/")


def is_remote(path: str) -> bool:
    return _SCHEME.fullmatch(path) is not None


def matches(path: str) -> list[str]:
    """What is there of a path of this machine, which may be a pattern."""
    if not is_pattern(path):
        return [path] if Path(path).exists() else []
    return sorted({match for each in braces(path) for match in found(each, exactly, hidden=False)})


def files(path: str) -> Iterator[str]:
    """The files of a path of this machine, in order, without those that Spark does not look at either."""
    for each in matches(path):
        if Path(each).is_file():
            yield each
            continue
        for folder, folders, names in os.walk(each):
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            yield from (str(Path(folder) / name) for name in sorted(names) if not is_hidden(name))


def overlap(table: str, other: str) -> bool:
    """Whether a table over one path can hold files of the other, which may be a pattern as well.

    What a pattern can match decides, and what it matches now, not how it is spelled. Folders below a table's
    own count for nothing if Spark does not look into them.
    """
    if is_remote(table) != is_remote(other):
        return False
    forms = list(_forms(other))
    return any(_meet(one, two) for one in _forms(table) for two in forms)


def _meet(table: Sequence[str], other: Sequence[str]) -> bool:
    if not all(map(_may_be, table, other)):
        return False
    return not any(map(_is_passed_over, other[len(table) :]))


def _may_be(one: str, other: str) -> bool:
    """Whether two parts of paths can stand for the same name."""
    if is_pattern(one) and is_pattern(other):
        return True
    if is_pattern(one):
        return at_most(one).fullmatch(other) is not None
    return at_most(other).fullmatch(one) is not None if is_pattern(other) else one == other


def _forms(path: str) -> Iterator[list[str]]:
    """The parts of all paths that one stands for, and of what a pattern of this machine matches now."""
    if is_remote(path):
        yield from (_parts(each) for each in braces(path.partition("?")[0]))
        return
    for each in braces(path):
        parts = list(Path(each).parts)
        fixed = list(itertools.takewhile(lambda part: not is_pattern(part), parts))
        yield [*Path(os.path.realpath(Path(*fixed))).parts, *parts[len(fixed) :]]
        if is_pattern(each):
            for match in found(each, at_most, hidden=True):
                yield list(Path(os.path.realpath(match)).parts)


def _is_passed_over(name: str) -> bool:
    """Whether Spark looks into no folder of this name, unless a path names it."""
    if is_dotted(name):
        return True
    return name.startswith("_") and "=" not in name and not name.startswith(("_metadata", "_common_metadata"))


def is_dotted(name: str) -> bool:
    return name.startswith(".")


def is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def is_below_hidden(file: str, folder: str) -> bool:
    """Whether a file, or a folder on the way to it, is none that Spark looks at."""
    return any(map(is_hidden, file.removeprefix(folder).strip("/").split("/")))


def is_there(path: str) -> bool:
    """Whether there is anything; of what is remote, nobody asks."""
    return is_remote(path) or bool(matches(path))


def _parts(url: str) -> list[str]:
    scheme, _, rest = url.partition(":")
    host, _, path = rest.lstrip("/").partition("/")
    return [_SAME.get(scheme, scheme), host, *(part for part in path.split("/") if part)]


def _check_characters(path: str) -> None:
    if not path or "\\" in path or any(ord(c) < 32 for c in path):
        raise SqlError(
            f"{path!r} is not a path for a table",
            hint="write it without backslashes and control characters",
            sqlstate="22023",
        )
    if len(list(itertools.islice(braces(path), _CHOICES + 1))) > _CHOICES:
        raise SqlError(f"{path!r} stands for more than {_CHOICES} paths", sqlstate="22023")
    if not is_clear(path):
        raise SqlError(
            f"{path!r} can be read in more than one way",
            hint="write between [ and ] single characters only, no brackets, braces and slashes, "
            "and no comma if that is between braces",
            sqlstate="22023",
        )


def _refused(path: str, why: str) -> SqlError:
    return SqlError(
        f'permission denied for path "{path}": tables may be made over files below {SETTING} only'
        + (f", and {why}" if why else ""),
        hint=f"copy the files there, or have an administrator add the path to {SETTING} of penstock.toml",
        sqlstate="42501",
    )
