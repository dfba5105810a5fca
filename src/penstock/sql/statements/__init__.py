"""What a statement asks for, what it touches, and what it may not do."""

from __future__ import annotations
