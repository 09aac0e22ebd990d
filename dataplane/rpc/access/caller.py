"""Who makes the call that is being answered: over a UNIX socket, or where nothing is encrypted, its own user."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from dataplane.rpc.access.values import LOCAL, Principal

CALLER: Final[ContextVar[Principal]] = ContextVar("CALLER", default=LOCAL)
