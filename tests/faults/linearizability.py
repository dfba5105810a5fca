"""Whether a history of operations could have happened one after the other (Wing, Gong and Lowe).

Linearizability is local, so each document is checked by itself. The search takes any operation that
nothing else must precede, puts it next if the register allows it, and goes back where it gets stuck.
These things keep it short: a set of operations that left the same register before is not tried
again; an operation that changes nothing (a read, a refused write) is put next as soon as it fits,
since it fits there in every solution; of equal lost writes, the first one is tried for all; and a
lost write is dropped once its version has passed. A bad history with many lost writes that create
the same document again and again can still take long.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.faults.register import Operation, Outcome, State, Unknown

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Violation:
    """Why a history is not linearizable: the longest order that works, and what cannot follow it."""

    key: str
    prefix: Sequence[Operation]
    state: State
    stuck: Operation

    def __str__(self) -> str:
        hidden = len(self.prefix) - _SHOWN
        lines = [f"the history of {self.key!r} is not linearizable"]
        lines += [f"  … {hidden} operations"] if hidden > 0 else []
        lines += [f"  {operation}" for operation in self.prefix[-_SHOWN:]]
        lines += [f"  which leaves {self.state}", f"  and cannot be followed by {self.stuck}"]
        return "\n".join(lines)


def check(history: Iterable[Operation]) -> Violation | None:
    """None if every document's operations have an order; otherwise the first one's that have not."""
    by_key: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    violations = (_Search(operations).run() for operations in by_key.values())
    return next((violation for violation in violations if violation), None)


@dataclass(frozen=True, slots=True)
class _Move:
    """Operation ``index`` is put next, or dropped, and leaves ``state``."""

    index: int
    state: State
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class _Node:
    """A place in the search: the move that led there, the operations done as bits, what is not yet tried."""

    move: _Move
    done: int
    untried: list[_Move]


class _Search:
    """The search for an order of the operations of one document."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = sorted(operations, key=lambda each: each.invoked)
        self._line = _Line(len(operations))
        self._unplaced = sum(not isinstance(each.outcome, Unknown) for each in operations)
        self._seen: set[tuple[int, State]] = set()
        self._path: list[_Node] = []
        self._longest: Violation | None = None
        self._fewest = self._unplaced + 1

    def run(self) -> Violation | None:
        root = _Node(_Move(-1, State()), 0, self._moves(State()))
        while self._unplaced:
            node = self._path[-1] if self._path else root
            if node.untried:
                self._try(node, node.untried.pop())
                continue
            self._remember(node)
            if not self._path:
                return self._longest
            self._leave()
        return None

    def _try(self, node: _Node, move: _Move) -> None:
        done = node.done | 1 << move.index
        if (done, move.state) in self._seen:
            return
        self._seen.add((done, move.state))
        self._line.lift(move.index)
        self._unplaced -= self._answered(move.index)
        self._path.append(_Node(move, done, self._moves(move.state)))

    def _leave(self) -> None:
        index = self._path.pop().move.index
        self._line.put_back(index)
        self._unplaced += self._answered(index)

    def _answered(self, index: int) -> bool:
        return not isinstance(self._operations[index].outcome, Unknown)

    def _moves(self, state: State) -> list[_Move]:
        """What may come next, the most likely one last; a single one where no other need be tried."""
        answered: list[_Move] = []
        lost: dict[Outcome, _Move] = {}
        for index in self._next():
            outcome = self._operations[index].outcome
            after = outcome.after(state)
            if isinstance(outcome, Unknown):
                if outcome.never_after(state):
                    return [_Move(index, state, dropped=True)]
                if after is not None:
                    lost.setdefault(outcome, _Move(index, after))
            elif after is state:
                return [_Move(index, state)]
            elif after is not None:
                answered.append(_Move(index, after))
        return [*reversed(lost.values()), *reversed(answered)]

    def _next(self) -> Iterator[int]:
        """Operations that no other waiting one must precede: it would have answered before their call."""
        first_answer = math.inf
        for index in self._line:
            operation = self._operations[index]
            if operation.invoked > first_answer:
                return
            if self._answered(index):
                first_answer = min(first_answer, operation.responded)
            yield index

    def _remember(self, node: _Node) -> None:
        if self._unplaced >= self._fewest:
            return
        self._fewest = self._unplaced
        prefix = [self._operations[each.move.index] for each in self._path if not each.move.dropped]
        waiting = [self._operations[index] for index in self._line if self._answered(index)]
        stuck = min(waiting, key=lambda each: each.responded)
        self._longest = Violation(stuck.key, prefix, node.move.state, stuck)


class _Line:
    """The numbers below ``count`` in order. What is lifted last is put back first."""

    def __init__(self, count: int) -> None:
        # The last place is both ends of the line.
        self._following = [*range(1, count + 1), 0]
        self._preceding = [count, *range(count)]

    def __iter__(self) -> Iterator[int]:
        end = len(self._following) - 1
        index = self._following[end]
        while index != end:
            yield index
            index = self._following[index]

    def lift(self, index: int) -> None:
        before, after = self._preceding[index], self._following[index]
        self._following[before], self._preceding[after] = after, before

    def put_back(self, index: int) -> None:
        self._following[self._preceding[index]] = index
        self._preceding[self._following[index]] = index
