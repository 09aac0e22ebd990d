"""What is sent and answered beside resources themselves; server and client share it."""

from __future__ import annotations

from typing import Generic

import msgspec

from controller.apiserver.resources.base import Count, R
from controller.apiserver.tokens import TokenShown
from dataplane.config import Strict


class ResourceList(Strict, Generic[R], frozen=True):
    """Resources as they were at a revision; `continue` is there if there are more."""

    items: tuple[R, ...]
    revision: int
    more: str | None = msgspec.field(name="continue", default=None)


class HealthAnswer(Strict, frozen=True):
    """Whether the server serves, and whether its storage answers."""

    status: str
    """`ok`, or `degraded`: reads are answered from memory, writes refused."""
    storage: str
    revision: Count
    age_ns: Count | None = None
    """Of what is read, where the storage is away."""
    overloads: tuple[str, ...] = ()
    """What overloads the server, for how long, and what would help."""


class TokenList(Strict, frozen=True):
    """All tokens."""

    items: tuple[TokenShown, ...]


class Problem(Strict, frozen=True):
    """Why a request was refused."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
