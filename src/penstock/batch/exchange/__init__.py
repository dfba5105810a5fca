"""Exchanges: rows that one phase wrote come together by their keys in the next, by way of files that last.

`hashing` says which bucket a key belongs to. Tasks of the first phase write `run_files`, whose rows are
sorted by bucket. When all of them are there, `packing` makes key ranges of the buckets, and `range_splits`
reads one range out of all files.

Rows of an output that is sorted go the same way: chunks of run files are in its order (`ordering`), and
`sorted_ranges` chooses where ranges begin, and reads one.
"""

from __future__ import annotations
