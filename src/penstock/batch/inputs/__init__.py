"""Registered inputs: named, immutable, with numbered rows that can be read in ranges.

`register` learns what files hold and makes an `Input` of them; `splits` cuts a row range of one into
`Split`s, whose batches a task of Spark reads. Importing this package imports pyarrow.
"""

from __future__ import annotations

from penstock.batch.inputs.conform import check_schema, conform
from penstock.batch.inputs.model import Input, InputFile, Options
from penstock.batch.inputs.registry import (
    check_unchanged,
    drop,
    drop_leftovers,
    facts,
    load,
    names,
    register,
    take,
)
from penstock.batch.inputs.replaced import sweep as sweep_replaced
from penstock.batch.inputs.splits import Split, splits
from penstock.batch.inputs.whole import Whole, whole_files

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
    "drop_leftovers",
    "facts",
    "load",
    "names",
    "register",
    "splits",
    "sweep_replaced",
    "take",
    "whole_files",
]
