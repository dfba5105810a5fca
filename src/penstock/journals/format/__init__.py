"""What a journal consists of: names, fragments, the spool, documents, their UUIDs and hints."""

from __future__ import annotations
