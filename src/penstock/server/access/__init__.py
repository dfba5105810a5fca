"""Who may come in: users, their passwords, tokens, and what each of them may do."""

from __future__ import annotations

from penstock.gateway.access.access import Access
from penstock.gateway.access.passwords import Verifier
from penstock.gateway.access.scram import ScramServer
from penstock.gateway.access.users import Account, Users

__all__ = ["Access", "Account", "ScramServer", "Users", "Verifier"]
