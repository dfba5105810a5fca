"""The control plane: members, leader, assignment, barriers and epochs, over any store.

`machine`, `election`, `barrier` and `assignment` are the rules, as pure functions; `Node`
carries them out.
"""

from __future__ import annotations
