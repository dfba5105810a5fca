"""What tests of those who extend or use Penstock need. ``docs/howto/extend.md`` shows each of them at work.

| name | for |
|---|---|
| `MemoryStore` | a store in memory |
| `ManualClock` | a clock that only the test moves, such as that of a `MemoryStore` |
| `StoreConformance` | what every store must do: a test class |
| `SinkConformance` | what every sink must do: a test class |
| `check_source` | what every source must do; ``SOURCE_CHECKS`` names the single checks |
| `reach` | name a failpoint in code of your own |
| `armed` | act at failpoints of this process |

``pytest_plugins = ["penstock.testing.plugin"]`` in a ``conftest.py`` adds fixtures and a marker. Only that
module needs pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.failpoints import armed, reach
    from penstock.sinks.conformance import SinkConformance
    from penstock.sources.conformance import NAMES as SOURCE_CHECKS
    from penstock.sources.conformance import NotConforming
    from penstock.sources.conformance import check as check_source
    from penstock.store.conformance import StoreConformance
    from penstock.store.memory import MemoryStore
    from penstock.testing.clock import ManualClock

_HOMES = {
    "ManualClock": "penstock.testing.clock",
    "MemoryStore": "penstock.store.memory",
    "NotConforming": "penstock.sources.conformance",
    "SOURCE_CHECKS": "penstock.sources.conformance:NAMES",
    "SinkConformance": "penstock.sinks.conformance",
    "StoreConformance": "penstock.store.conformance",
    "armed": "penstock.core.failpoints",
    "check_source": "penstock.sources.conformance:check",
    "reach": "penstock.core.failpoints",
}

__all__ = [
    "SOURCE_CHECKS",
    "ManualClock",
    "MemoryStore",
    "NotConforming",
    "SinkConformance",
    "StoreConformance",
    "armed",
    "check_source",
    "reach",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return list(__all__)
