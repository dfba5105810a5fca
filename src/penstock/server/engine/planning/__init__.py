"""Understanding a statement: who answers it, what it needs and what it gives."""

from __future__ import annotations
