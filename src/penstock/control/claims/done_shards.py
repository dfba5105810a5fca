"""Which shards are done, so that finding work does not look at all of them.

A page is a document with one bit for each of 4,096 shards. A set bit is a hint that may be trusted,
because of the order of things: a bit is set only on the page that was read *before* the shard was
found done, and whoever opens a shard again changes the shard first and then rewrites its page. A
setter that raced with it therefore loses its compare-and-set.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.store.base import Store

PAGE_SHARDS = 4096


@dataclass(frozen=True, slots=True)
class Page:
    """The bits of a page at a version of its document; 0 when there was none."""

    version: int
    bits: int


class DoneShards:
    """The done shards of one run. Safe for many threads."""

    def __init__(self, store: Store, prefix: str, shards: int) -> None:
        self._store = store
        self._prefix = prefix
        self._shards = shards
        self._pages: dict[int, Page] = {}
        self._marking = threading.Lock()

    def page(self, shard: int) -> Page:
        """The page of a shard, possibly an old one. Get it before the shard is read."""
        return self._pages.get(shard // PAGE_SHARDS) or self.refresh(shard)

    def refresh(self, shard: int) -> Page:
        """The page of a shard as it is now."""
        number = shard // PAGE_SHARDS
        document = self._store.get(self._key(number))
        page = Page(document.version, int.from_bytes(document.value, "little")) if document else Page(0, 0)
        self._pages[number] = page
        return page

    def mark(self, shard: int, page: Page) -> bool:
        """Set a shard's bit on ``page``; False when the page is not the current one any more."""
        bit = 1 << shard % PAGE_SHARDS
        with self._marking:
            # Acks that were committed together all find their shard done: one of them is enough.
            if (page.bits | self.page(shard).bits) & bit:
                return True
            return self._write(shard, page, page.bits | bit)

    def clear(self, shard: int) -> None:
        """Clear a shard's bit. The page is rewritten even if it is clear, to defeat racing setters."""
        page = self.refresh(shard)
        while not self._write(shard, page, page.bits & ~(1 << shard % PAGE_SHARDS)):
            page = self.refresh(shard)

    def undone(self, start: int) -> Iterator[int]:
        """Every shard that is not known to be done, once, from ``start`` on and around.

        Each page is read when it is reached.
        """
        yield from self._between(start, self._shards)
        yield from self._between(0, start)

    def is_done(self, shard: int) -> bool:
        """Whether the shard's bit is set on the page last read."""
        return bool(self.page(shard).bits >> shard % PAGE_SHARDS & 1)

    def _between(self, begin: int, end: int) -> Iterator[int]:
        while begin < end:
            first = begin - begin % PAGE_SHARDS
            stop = min(first + PAGE_SHARDS, end)
            clear = ~self.refresh(begin).bits & (1 << stop - first) - 1
            clear = clear >> begin - first << begin - first
            while clear:
                lowest = clear & -clear
                yield first + lowest.bit_length() - 1
                clear ^= lowest
            begin = stop

    def _write(self, shard: int, page: Page, bits: int) -> bool:
        number = shard // PAGE_SHARDS
        value = bits.to_bytes(PAGE_SHARDS // 8, "little")
        version = self._store.cas(self._key(number), page.version, value)
        if version is None:
            return False
        self._pages[number] = Page(version, bits)
        return True

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:06d}"
