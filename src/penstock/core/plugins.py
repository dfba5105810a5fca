"""Sources, sinks and stores that other packages bring, found by their entry points.

=====================  ============================  ==============================================
group                  a name is                     and stands for
=====================  ============================  ==============================================
``penstock.sources``   an attribute of the module    a source, or what else is imported with it
``penstock.sinks``     an attribute of the module    a sink
``penstock.stores``    the scheme of a URL           a function that opens a store, given the URL
=====================  ============================  ==============================================

Nothing is looked for until a name is asked for that is not built in; what is built in cannot be replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from penstock.errors import UsageError

SOURCES = "penstock.sources"
SINKS = "penstock.sinks"
STORES = "penstock.stores"
GROUPS = {SOURCES: "source", SINKS: "sink", STORES: "store"}
"""The groups of entry points, and what one of them is called."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed package."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def kind(self) -> str:
        return GROUPS[self.entry.group]

    @property
    def package(self) -> str:
        """The package that brings it, with its version."""
        found = self.entry.dist
        return f"{found.name} {found.version}" if found else "an unknown package"

    def load(self) -> Any:
        """What the name stands for; `UsageError` if it cannot be imported."""
        try:
            return self.entry.load()
        except Exception as error:
            raise UsageError(
                f"the {self.kind} {self.name} of {self.package} cannot be loaded: "
                f"{type(error).__name__}: {error}",
                hint=f"mend or remove the package; its entry point is {self.entry.value}",
            ) from error


def plugins(group: str) -> list[Plugin]:
    """What all installed packages bring for a group, by name."""
    found = map(Plugin, entry_points(group=group))
    return sorted(found, key=lambda plugin: (plugin.name, plugin.entry.value))


def find(group: str, name: str) -> Plugin | None:
    """The one that has this name; `UsageError` if several packages bring one."""
    found = [plugin for plugin in plugins(group) if plugin.name == name]
    if len({plugin.entry.value for plugin in found}) > 1:
        brought = ", ".join(plugin.package for plugin in found)
        raise UsageError(
            f"several packages bring the {GROUPS[group]} {name}: {brought}", hint="remove all but one of them"
        )
    return found[0] if found else None


def attribute(module: str, group: str, name: str) -> Any:
    """What ``__getattr__`` of a module gives for a name that is not its own."""
    # Python asks here for a module of the package, too, before it imports that.
    own = name.startswith("_") or find_spec(f"{module}.{name}") is not None
    plugin = None if own else find(group, name)
    if plugin is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return plugin.load()
