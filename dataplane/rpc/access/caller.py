"""The caller of the current request: over a UNIX socket, or where nothing is encrypted, the server's own user."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from dataplane.rpc.access.values import LOCAL, Principal

CALLER: Final[ContextVar[Principal]] = ContextVar("CALLER", default=LOCAL)
