"""Measurements against plain PySpark and other peers: ``python -m bench batch``.

See docs/reference/benchmarks.md for what each of them measures, and what it does not.
"""

from __future__ import annotations
