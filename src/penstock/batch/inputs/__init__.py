"""Registered inputs: named, immutable, with numbered rows that can be read in ranges.

`register` learns what files hold and makes an `Input` of them; `splits` cuts a row range of one into
`Split`s, whose batches a task of Spark reads. Importing this package imports pyarrow.
"""

from __future__ import annotations

from penstock.inputs.conform import check_schema, conform
from penstock.inputs.model import Input, InputFile, Options
from penstock.inputs.registry import check_unchanged, drop, load, names, register
from penstock.inputs.splits import Split, splits
from penstock.inputs.whole import Whole, whole_files

__all__ = [
    "Input",
    "InputFile",
    "Options",
    "Split",
    "Whole",
    "check_schema",
    "check_unchanged",
    "conform",
    "drop",
    "load",
    "names",
    "register",
    "splits",
    "whole_files",
]
