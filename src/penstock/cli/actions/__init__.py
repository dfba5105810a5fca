"""What commands do, apart from reading their options."""

from __future__ import annotations
