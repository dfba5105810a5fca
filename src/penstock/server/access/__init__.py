"""Who may come in: users, their passwords, tokens, and what each of them may do."""

from __future__ import annotations

from penstock.server.access.access import Access
from penstock.server.access.passwords import Verifier
from penstock.server.access.scram import ScramServer
from penstock.server.access.users import Account, Users

__all__ = ["Access", "Account", "ScramServer", "Users", "Verifier"]
