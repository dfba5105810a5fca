"""Journals: named, append-only streams of JSON lines in immutable fragment files.

`Journals` finds and reads them, in folders and object stores; `JournalWriter` appends to those in folders;
`penstock.journals.reader.verify` proves that one is whole.
"""

from __future__ import annotations

from penstock.journals.format.fragments import Fragment
from penstock.journals.format.hints import Hint
from penstock.journals.format.names import fields as journal_fields
from penstock.journals.format.names import make as journal_name
from penstock.journals.format.uuids import Flag, Stamp, Ticker, new_producer
from penstock.journals.reader.journals import Journals, Summary
from penstock.journals.reader.reading import Chunk, JournalReader
from penstock.journals.writer.producer import Ack, Appended
from penstock.journals.writer.transactions import Transaction
from penstock.journals.writer.writer import JournalWriter

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
    "journal_fields",
    "journal_name",
    "new_producer",
]
