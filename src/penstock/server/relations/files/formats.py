"""Formats of files: which there are, what can be set, and which one files have whose format nobody named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.config import shown_url
from penstock.errors import SqlError
from penstock.server.relations.files import paths

SPARK_FORMATS = frozenset({"parquet", "csv", "json", "orc"})
_ALIASES = {"jsonl": "json", "ndjson": "json", "ipc": "arrow", "feather": "arrow", "tsv": "csv"}
_ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".orc": "orc",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
_TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_EVERY = ("recursiveFileLookup", "pathGlobFilter")
_TEXT = (
    "dateFormat",
    "timestampFormat",
    "timestampNTZFormat",
    "encoding",
    "lineSep",
    "mode",
    "multiLine",
    "locale",
)
# Spark's own options can name files and classes: only those that say how to read are let through.
_OPTIONS = {
    "parquet": (*_EVERY, "mergeSchema"),
    "orc": (*_EVERY, "mergeSchema"),
    "arrow": (),
    "csv": (
        *_EVERY,
        *_TEXT,
        *("header", "sep", "delimiter", "quote", "escape", "comment", "nullValue", "emptyValue", "nanValue"),
        *("positiveInf", "negativeInf", "inferSchema", "samplingRatio", "ignoreLeadingWhiteSpace"),
        *("ignoreTrailingWhiteSpace", "maxColumns", "maxCharsPerColumn", "unescapedQuoteHandling"),
    ),
    "json": (
        *_EVERY,
        *_TEXT,
        *("primitivesAsString", "prefersDecimal", "allowComments", "allowUnquotedFieldNames"),
        *("allowSingleQuotes", "allowNonNumericNumbers", "dropFieldIfAllNull", "samplingRatio"),
    ),
}


def known(name: str, path: str) -> tuple[str, dict[str, str]]:
    """The format that a name means, for ``auto`` that of the files, and the options that come with it."""
    wanted = name.lower()
    if wanted in ("", "auto"):
        wanted = _of_files(path)
    options = {"sep": "\t"} if wanted == "tsv" else {}
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in _OPTIONS:
        raise SqlError(
            f'format "{name}" is not known',
            hint=f"use one of {', '.join(sorted(_OPTIONS))}",
            sqlstate="22023",
        )
    return wanted, options


def checked_options(format: str, options: Mapping[str, str]) -> dict[str, str]:  # noqa: A002
    """The options as Spark spells them. Raises `SqlError` for one that is not among those of the format."""
    spelled = {name.lower(): name for name in _OPTIONS[format]}
    checked = {}
    for name, value in options.items():
        if name.lower() not in spelled:
            allowed = ", ".join(sorted(spelled.values())) or "none"
            raise SqlError(
                f'option "{name}" is not known for format {format}',
                hint=f"allowed: {allowed}",
                sqlstate="22023",
            )
        checked[spelled[name.lower()]] = str(value)
    return checked


def guarded(kind: str, path: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for files of this machine that a client names: any file is text, also one with passwords.

    What is read as text must therefore look like data by its ending, now and when other files come.
    """
    if kind not in ("csv", "json") or paths.is_remote(path):
        return dict(options)
    if "pathGlobFilter" in options:
        raise SqlError(
            f"option pathGlobFilter cannot be set for format {kind}",
            hint="write a pattern as the location",
            sqlstate="22023",
        )
    endings = [f"{text}{packed}" for text in _TEXT_ENDINGS for packed in ("", *_COMPRESSED)]
    for file in paths.files(path):
        if not file.endswith(tuple(endings)):
            raise SqlError(
                f"permission denied for path {file}: it does not look like {kind}",
                hint=f"only files ending with {', '.join(_TEXT_ENDINGS)} are read as {kind}; for others, "
                "have an administrator add the table to [[tables]] of penstock.toml",
                sqlstate="42501",
            )
    return {**options, "pathGlobFilter": f"*{{{','.join(endings)}}}"}


def _of_files(path: str) -> str:
    if found := _ending(path.partition("?")[0] if paths.is_remote(path) else path):
        return found
    if not paths.is_remote(path):
        for file in paths.files(path):
            if found := _ending(file):
                return found
    raise SqlError(
        f"the format of {shown_url(path)} cannot be told from its files",
        hint=f"name it: one of {', '.join(sorted(_OPTIONS))}",
        sqlstate="22023",
    )


def _ending(path: str) -> str | None:
    endings = Path(path.lower()).suffixes
    if endings and endings[-1] in _COMPRESSED:
        endings.pop()
    return _ENDINGS.get(endings[-1]) if endings else None
