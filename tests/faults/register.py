"""One document of a store as an oracle: what each operation may find, and what it leaves.

An operation is known by its outcome. The outcome of a write whose answer was lost is `Unknown`: it
may have been applied, may still be, or never will. Where it was applied nobody was told the version,
so a `State` can hold a document whose version is yet to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class State:
    """What the register holds; ``value`` None means that there is no document.

    ``floor`` is the highest version that was certainly given. An ``exact`` document has just that
    version; another one has a version above it, and none of the ``excluded`` ones.
    """

    floor: int = 0
    value: bytes | None = None
    exact: bool = True
    excluded: frozenset[int] = frozenset()

    def has(self, version: int) -> bool:
        """Whether there is a document that may have this version."""
        if self.value is None:
            return False
        return version == self.floor if self.exact else version > self.floor and version not in self.excluded

    def before(self, expected: int) -> int | None:
        """The version above which a write that expects ``expected`` gets its own; None if it conflicts."""
        if expected == 0:
            return self.floor if self.value is None else None
        return expected if self.has(expected) else None

    def without(self, version: int) -> State | None:
        """The same register if its document does not have this version; None if it has."""
        if not self.has(version):
            return self
        return None if self.exact else replace(self, excluded=self.excluded | {version})

    def __str__(self) -> str:
        if self.value is None:
            return f"no document (versions up to {self.floor} are used)"
        return f"{self.value!r} at version {self.floor if self.exact else f'> {self.floor}'}"


@dataclass(frozen=True, slots=True)
class Read:
    """A read that answered; value and version are None where it found no document."""

    value: bytes | None
    version: int | None

    def after(self, state: State) -> State | None:
        if self.version is None:
            return state if state.value is None else None
        if self.value != state.value or not state.has(self.version):
            return None
        return state if state.exact else State(self.version, self.value)

    def __str__(self) -> str:
        return "read: absent" if self.version is None else f"read: {self.value!r} at {self.version}"


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was acked with its new version; ``value`` None deleted the document."""

    expected: int
    value: bytes | None
    version: int

    def after(self, state: State) -> State | None:
        before = state.before(self.expected)
        return State(self.version, self.value) if before is not None and before < self.version else None

    def __str__(self) -> str:
        return f"cas({self.expected}, {self.value!r}): written as {self.version}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A write that was refused because the document did not have the expected version."""

    expected: int
    value: bytes | None

    def after(self, state: State) -> State | None:
        if self.expected == 0:
            return state if state.value is not None else None
        return state.without(self.expected)

    def __str__(self) -> str:
        return f"cas({self.expected}, {self.value!r}): conflict"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A write that ended with an error; ``after`` is what it leaves if it is applied."""

    expected: int
    value: bytes | None

    def after(self, state: State) -> State | None:
        before = state.before(self.expected)
        if before is None:
            return None
        return State(before + 1) if self.value is None else State(before, self.value, exact=False)

    def never_after(self, state: State) -> bool:
        """Whether it can be applied neither now nor later, since versions only grow."""
        return 0 < self.expected <= state.floor and not state.has(self.expected)

    def __str__(self) -> str:
        return f"cas({self.expected}, {self.value!r}): no answer"


Outcome = Read | Written | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class Operation:
    """What somebody asked of a document and was told, with the nanoseconds of call and return."""

    who: str
    key: str
    invoked: int
    responded: int
    outcome: Outcome

    def __str__(self) -> str:
        return f"[{self.invoked}..{self.responded}] {self.who}: {self.outcome}"
