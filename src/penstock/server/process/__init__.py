"""A process that serves: its listeners, the engine behind them, and the Spark that is kept there."""

from __future__ import annotations
