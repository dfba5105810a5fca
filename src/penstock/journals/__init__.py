"""Journals: named, append-only streams of JSON lines in immutable fragment files.

`Journals` finds and reads them, in folders and object stores; `JournalWriter` appends to those in folders;
`penstock.journals.verify` proves that one is whole.
"""

from __future__ import annotations

from penstock.journals.documents import Hint
from penstock.journals.fragments import Fragment
from penstock.journals.journals import Journals, Summary
from penstock.journals.producer import Ack, Appended
from penstock.journals.reading import Chunk, JournalReader
from penstock.journals.transactions import Transaction
from penstock.journals.uuids import Flag, Stamp, Ticker
from penstock.journals.writing import JournalWriter

__all__ = [
    "Ack",
    "Appended",
    "Chunk",
    "Flag",
    "Fragment",
    "Hint",
    "JournalReader",
    "JournalWriter",
    "Journals",
    "Stamp",
    "Summary",
    "Ticker",
    "Transaction",
]
