"""Histories that did happen, histories that probably did not, and the slow way to tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.faults.register import Conflict, Operation, Outcome, Read, Unknown, Written

_GAP = 10


class Register:
    """A real register, with the random calls of a client that is sometimes late and sometimes cut off."""

    def __init__(self, chance: random.Random, lost: float) -> None:
        self._chance = chance
        self._lost = lost
        self._value: bytes | None = None
        self._highest = 0
        self._used = [0]

    @property
    def _version(self) -> int:
        return 0 if self._value is None else self._highest

    def call(self) -> Outcome:
        """One random operation, applied (or lost) now."""
        if self._chance.random() < 0.35:
            return Read(self._value, self._version or None)
        expected = self._version if self._chance.random() < 0.6 else self._chance.choice(self._used)
        value = None if expected and self._chance.random() < 0.2 else b"%d" % self._chance.randrange(4)
        if self._chance.random() < self._lost:
            if self._chance.random() < 0.5:
                self._cas(expected, value)
            return Unknown(expected, value)
        version = self._cas(expected, value)
        return Conflict(expected, value) if version is None else Written(expected, value, version)

    def _cas(self, expected: int, value: bytes | None) -> int | None:
        if expected != self._version:
            return None
        self._highest += self._chance.choice((1, 1, 2))
        self._value = value
        self._used.append(self._highest)
        return self._highest


def happened(
    chance: random.Random, count: int, overlap: int = 3 * _GAP, lost: float = 0.25
) -> list[Operation]:
    """A history of ``count`` operations of a real register, each told to take up to ``overlap`` each way.

    ``lost`` is the share of writes that get no answer.
    """
    register = Register(chance, lost)
    history = []
    for number in range(count):
        moment = (number + 1) * _GAP
        invoked, responded = moment - chance.randrange(overlap), moment + chance.randrange(overlap)
        outcome = register.call()
        if isinstance(outcome, Unknown):
            # Whoever gave up did not wait until it was applied.
            responded = max(invoked, responded - overlap)
        history.append(Operation(f"client-{number}", "k", invoked, responded, outcome))
    return history


def mutated(chance: random.Random, history: Sequence[Operation]) -> list[Operation]:
    """The same history with one operation told differently."""
    changed = list(history)
    place = chance.randrange(len(changed))
    operation = changed[place]
    late = chance.randrange(0, 4 * _GAP)
    if chance.random() < 0.3:
        changed[place] = replace(
            operation, invoked=operation.invoked + late, responded=operation.responded + late
        )
    else:
        changed[place] = replace(operation, outcome=_other(chance, operation.outcome))
    return changed


def _other(chance: random.Random, outcome: Outcome) -> Outcome:
    version = chance.randrange(1, 8)
    if isinstance(outcome, Read):
        return chance.choice((Read(None, None), Read(b"%d" % chance.randrange(4), version)))
    return chance.choice(
        (
            Written(outcome.expected, outcome.value, version),
            Conflict(outcome.expected, outcome.value),
            Unknown(version, outcome.value),
        )
    )


def possible(history: Sequence[Operation]) -> bool:
    """Whether some order explains the history: all orders are tried, and all versions of lost writes."""
    largest = max((number for each in history for number in _versions(each.outcome)), default=0)
    return _possible(tuple(history), None, 0, largest + len(history) + 1)


def _versions(outcome: Outcome) -> list[int]:
    numbers = (getattr(outcome, "version", None), getattr(outcome, "expected", None))
    return [number for number in numbers if number is not None]


def _possible(waiting: tuple[Operation, ...], value: bytes | None, highest: int, limit: int) -> bool:
    answered = [each for each in waiting if not isinstance(each.outcome, Unknown)]
    if not answered:
        return True
    first_answer = min(each.responded for each in answered)
    return any(
        _possible(tuple(other for other in waiting if other is not each), *after, limit)
        for each in waiting
        if each.invoked <= first_answer
        for after in _afters(each.outcome, value, highest, limit)
    )


def _afters(
    outcome: Outcome, value: bytes | None, highest: int, limit: int
) -> list[tuple[bytes | None, int]]:
    version = 0 if value is None else highest
    match outcome:
        case Read():
            return [(value, highest)] if (outcome.value, outcome.version or 0) == (value, version) else []
        case Conflict():
            return [(value, highest)] if outcome.expected != version else []
        case Written():
            fits = outcome.expected == version and outcome.version > highest
            return [(outcome.value, outcome.version)] if fits else []
        case Unknown():
            fits = outcome.expected == version
            return [(outcome.value, given) for given in range(highest + 1, limit + 1)] if fits else []
