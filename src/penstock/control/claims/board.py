"""The claims of one run: the I/O edge of the claim machine."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from penstock.control.claims import commands as c
from penstock.control.claims.claim import Claim, LooseEnds, as_claim
from penstock.control.claims.combiner import Combiner
from penstock.control.claims.commands import Requests
from penstock.control.claims.done_shards import DoneShards, Page
from penstock.control.claims.geometry import Geometry, create_board, find_board, read_board
from penstock.control.claims.model import (
    Accepted,
    CheckpointRef,
    Granted,
    PartitionState,
    Refused,
    Shard,
    as_error,
)
from penstock.control.claims.views import (
    PartitionSummary,
    PartitionView,
    documents,
    is_done,
    shards,
    summarize,
    views,
)
from penstock.core.ranges import Range
from penstock.errors import (
    FencedError,
    PenstockError,
    RangeOverlap,
    StoreUnavailable,
)
from penstock.store.base import Session, Store


class Board:
    """Claims, acks and everything else that moves partitions of a run. Safe for many threads.

    A claim is held for as long as its session is kept alive, which is the caller's part. Every
    method raises `StoreUnavailable` when the store does not answer; commands that may have been
    applied are then safe to repeat. A forked process opens a board of its own.
    """

    def __init__(self, store: Store, run: str, geometry: Geometry, max_failures: int) -> None:
        self.store = store
        self.run = run
        self.geometry = geometry
        self.max_failures = max_failures
        self._prefix = f"runs/{run}/shards/"
        self._combiner = Combiner(store, self._prefix, geometry)
        self._directory = DoneShards(store, f"runs/{run}/done/", geometry.shards)
        self._positions: dict[str, int] = {}
        self._loose = LooseEnds()
        self._requests = Requests()
        self._since = 0

    @classmethod
    def register(
        cls, store: Store, run: str, total_rows: int, partition_rows: int, max_failures: int = 5
    ) -> Board:
        """Make a run's board: one small document, however many partitions there are.

        Harmless when repeated; `RunMismatch` when the run exists with other rows or partitions.
        """
        geometry = Geometry(total_rows, partition_rows)
        create_board(store, run, geometry, max_failures)
        return cls(store, run, geometry, max_failures)

    @classmethod
    def open(cls, store: Store, run: str) -> Board:
        """The board of a run that was registered. Raises `RunError` when there is none."""
        geometry, max_failures = read_board(store, run)
        return cls(store, run, geometry, max_failures)

    @classmethod
    def find(cls, store: Store, run: str) -> Board | None:
        """The board of a run, if it was registered."""
        found = find_board(store, run)
        return cls(store, run, *found) if found else None

    # an owner's part

    def claim(self, session: Session, owner: str, count: int = 1) -> list[Claim]:
        """Up to ``count`` partitions for ``owner``; none only when there is nothing free now.

        An owner stays with a shard until that has nothing more to give, and then looks for the next
        one that is not known to be done. Before it says "none" it has read all of those anew.

        What an earlier call of the same session and owner was granted without hearing of it comes
        first: a call that failed leaves nothing claimed that a later one would not return.
        """
        found = self._collect(session, owner, count)
        if found or not self.geometry.shards:
            return found
        position = self._positions.get(owner)
        try:
            if position is None:
                position = _home(owner, self.geometry.shards)
            else:
                found += self._take(position, session, owner, count)
                if len(found) >= count:
                    return found
                position += bool(found)
            if not found:
                self._since = self.store.revision()
            self._search(position, session, owner, count, found)
        except BaseException as error:
            if not (found and isinstance(error, StoreUnavailable)):
                self._loose.keep(found)
                raise
        return found

    def claim_ranges(self, session: Session, owner: str, ranges: Sequence[Range]) -> list[Claim]:
        """Exactly these row ranges, or `RangeOverlap` and nothing at all.

        After `StoreUnavailable` some of them may be held: the next `claim` returns those.
        """
        by_shard: dict[int, list[Range]] = {}
        for rows in ranges:
            by_shard.setdefault(self.geometry.shard_of(rows), []).append(rows)
        found: list[Claim] = []
        for index, some in by_shard.items():
            command = self._claim_command(session, owner, len(some), tuple(some))
            try:
                found += self._granted(index, command)
            except BaseException:
                # Shards cannot change together: give back what the earlier ones granted.
                self._give_back(found)
                raise
        return found

    def renew(self, claims: Sequence[Claim]) -> dict[Range, FencedError]:
        """Those of the claims that are lost, and how. Keep the session alive first."""
        return self._lost(claims, [c.Renew(self._requests.next(), *_held(claim)) for claim in claims])

    def ack(self, claim: Claim, digest: str) -> None:
        """Complete the partition and publish its output. Raises `FencedError` if it is not held."""
        for error in self.ack_many([(claim, digest)]).values():
            raise error

    def ack_many(self, claims: Sequence[tuple[Claim, str]]) -> dict[Range, FencedError]:
        """`ack` for several (claim, digest); those that were refused, and why."""
        # Pages are read before the acks, as marking a shard done needs it.
        indexes = {self.geometry.shard_of(claim.range) for claim, _ in claims}
        pages = {index: self._directory.page(index) for index in indexes}
        acks = [c.AckPartition(self._requests.next(), *_held(claim), digest) for claim, digest in claims]
        return self._lost([claim for claim, _ in claims], acks, pages)

    def release(self, claim: Claim) -> None:
        """Give the partition back, without counting a failure. Raises `FencedError` if not held."""
        self._owner(claim, c.Release(self._requests.next(), *_held(claim)))

    def fail(self, claim: Claim, error: str) -> PartitionState:
        """Give the partition back after a failure; POISONED if it was the last one allowed."""
        index = self.geometry.shard_of(claim.range)
        page = self._directory.page(index)
        command = c.Fail(self._requests.next(), *_held(claim), error, self.max_failures)
        answer, shard = self._ask(index, command)
        self._settle(index, shard, page)
        return answer.state

    def save_checkpoint(self, claim: Claim, ref: CheckpointRef) -> None:
        """Record a complete checkpoint. Raises `FencedError` if the partition is not held."""
        self._owner(claim, c.SaveCheckpoint(self._requests.next(), *_held(claim), ref))

    def drop_checkpoint(self, claim: Claim, stage: int) -> None:
        """Forget a stage's checkpoint. Raises `FencedError` if the partition is not held."""
        self._owner(claim, c.DropCheckpoint(self._requests.next(), *_held(claim), stage))

    # an operator's part

    def poison(self, rows: Range, reason: str) -> None:
        """Set a partition aside, whoever holds it."""
        self._ask(self.geometry.shard_of(rows), c.Poison(self._requests.next(), rows, reason))

    def retry(self, rows: Range) -> None:
        """Let a poisoned partition be claimed again."""
        index = self.geometry.shard_of(rows)
        self._ask(index, c.RetryPartition(self._requests.next(), rows))
        self._directory.clear(index)

    def force_release(self, rows: Range) -> None:
        """Take a partition from its owner."""
        self._ask(self.geometry.shard_of(rows), c.ForceRelease(self._requests.next(), rows))

    # views

    def partitions(
        self, states: Collection[PartitionState] | None = None, begin: int = 0, *, touched: bool = False
    ) -> Iterator[PartitionView]:
        """Partitions in row order, from the one that holds row ``begin``.

        Those that nobody has ever claimed are pending; with ``touched`` they are left out.
        """
        wanted = frozenset(PartitionState if states is None else states)
        first = begin // self.geometry.shard_rows
        absent = PartitionState.PENDING in wanted and not touched
        for shard in shards(self.store, self._prefix, self.geometry, first, absent):
            yield from views(self.store, shard, wanted, begin, untouched=absent)

    def partition(self, rows: Range) -> PartitionView | None:
        """The partition with exactly these rows, if there is one."""
        index = self.geometry.shard_of(rows)
        found = views(self.store, self._combiner.read(index), frozenset(PartitionState), rows.begin)
        return next((view for view in found if view.range == rows), None)

    def summary(self) -> PartitionSummary:
        """How far the run is."""
        return summarize(self.store, self._prefix, self.geometry)

    def finished(self) -> bool:
        """Whether nothing is pending or claimed, from the documents themselves.

        It also mends the directory where a `retry` died between its two writes.
        """
        for index in self._directory.undone(0):
            document = self.store.get(self._combiner.key(index))
            if document is None or not is_done(document.value):
                return False
        done = 0
        finished = True
        for index, value in documents(self.store, self._prefix):
            if is_done(value):
                done += 1
                continue
            finished = False
            if self._directory.is_done(index):
                self._directory.clear(index)
        return finished and done == self.geometry.shards

    def wait(self, timeout: float) -> bool:
        """Wait until a partition changed since the last claim that found nothing; False if none did."""
        changes, self._since = self.store.watch(self._prefix, self._since, timeout)
        return bool(changes)

    # how

    def _search(self, position: int, session: Session, owner: str, count: int, found: list[Claim]) -> None:
        """Add to ``found`` from shard after shard, until there is enough or one gives nothing more."""
        for index in self._directory.undone(position):
            got = self._take(index, session, owner, count - len(found))
            if got:
                self._positions[owner] = index
                found += got
            if len(found) >= count or (found and not got):
                break

    def _take(self, index: int, session: Session, owner: str, count: int) -> list[Claim]:
        page = self._directory.page(index)
        return self._granted(index, self._claim_command(session, owner, count), page)

    def _collect(self, session: Session, owner: str, count: int) -> list[Claim]:
        """What was granted before and not returned, up to ``count``; questions are asked again."""
        while not (found := self._loose.kept(session.id, owner, count)):
            question = self._loose.question(session.id, owner)
            if question is None:
                break
            # Rows that were asked for by name and not granted may be somebody else's by now.
            with suppress(RangeOverlap):
                self._loose.keep(self._granted(*question))
        return found

    def _give_back(self, claims: Sequence[Claim]) -> None:
        """Release, as far as the store answers; the rest is for the next `claim`."""
        for claim in claims:
            try:
                self.release(claim)
            except FencedError:
                continue
            except PenstockError:
                self._loose.keep([claim])

    def _granted(self, index: int, command: c.ClaimPartitions, page: Page | None = None) -> list[Claim]:
        try:
            answer, shard = self._combiner.submit([(index, command)])[0]
        except BaseException:
            # It may have been granted: unless it is asked again, the partition waits for our end.
            self._loose.ask_again(index, command)
            raise
        if isinstance(answer, Refused):
            raise as_error(answer)
        grants = answer.grants if isinstance(answer, Granted) else ()
        if page is not None and not grants:
            self._settle(index, shard, page)
        return [as_claim(grant, command) for grant in grants]

    def _claim_command(
        self, session: Session, owner: str, count: int, ranges: tuple[Range, ...] | None = None
    ) -> c.ClaimPartitions:
        return c.ClaimPartitions(self._requests.next(), session.id, owner, count, self.max_failures, ranges)

    def _owner(self, claim: Claim, command: c.Held) -> None:
        self._ask(self.geometry.shard_of(claim.range), command)

    def _ask(self, index: int, command: c.Command) -> tuple[Accepted, Shard]:
        answer, shard = self._combiner.submit([(index, command)])[0]
        if isinstance(answer, Accepted):
            return answer, shard
        raise as_error(answer)

    def _lost(
        self, claims: Sequence[Claim], commands: Sequence[c.Held], pages: Mapping[int, Page] | None = None
    ) -> dict[Range, FencedError]:
        asked = [(self.geometry.shard_of(command.range), command) for command in commands]
        lost: dict[Range, FencedError] = {}
        left: dict[int, Shard] = {}
        for claim, (index, _), (answer, shard) in zip(
            claims, asked, self._combiner.submit(asked), strict=True
        ):
            left[index] = shard
            if not isinstance(answer, Accepted):
                error = as_error(answer)
                if not isinstance(error, FencedError):
                    raise error
                lost[claim.range] = error
        for index, page in (pages or {}).items():
            self._settle(index, left[index], page)
        return lost

    def _settle(self, index: int, shard: Shard, page: Page) -> None:
        """Note that a shard is done, if it is. ``page`` was read before ``shard`` was."""
        while shard.done and not self._directory.mark(index, page):
            page = self._directory.refresh(index)
            shard = self._combiner.read(index)


def _held(claim: Claim) -> tuple[Range, int, str]:
    return claim.range, claim.token, claim.session


def _home(owner: str, shards: int) -> int:
    """Where an owner begins: spread over the shards, and the same after a restart."""
    return int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=8).digest()) % shards
