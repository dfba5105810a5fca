"""The former place of `penstock.sinks`."""

from __future__ import annotations

from penstock import sinks
from penstock.core.deprecation import moved

__getattr__ = moved(__name__, dict.fromkeys(sinks.__all__, "penstock.sinks"), until="0.3")
