"""CREATE, ALTER and DROP as changes of the catalog."""

from __future__ import annotations
