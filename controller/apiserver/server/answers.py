"""Bodies of requests and answers other than resources, shared by server and client."""

from __future__ import annotations

from typing import Generic

import msgspec

from controller.apiserver.resources.base import Count, R
from controller.apiserver.tokens import TokenShown
from dataplane.config import Strict


class ResourceList(Strict, Generic[R], frozen=True):
    """Resources as of one revision; `continue` is set if there are more."""

    items: tuple[R, ...]
    revision: int
    more: str | None = msgspec.field(name="continue", default=None)


class HealthAnswer(Strict, frozen=True):
    """Health of the server and its storage."""

    status: str
    """`ok`, or `degraded`: reads are answered from memory, writes are refused."""
    storage: str
    revision: Count
    age_ns: Count | None = None
    """Age of the data while the storage is down."""
    overloads: tuple[str, ...] = ()
    """Current overloads of the server, their duration, and what would help."""


class TokenList(Strict, frozen=True):
    """All tokens."""

    items: tuple[TokenShown, ...]


class CodeRequest(Strict, frozen=True):
    """A code to open the operators' page with; `viewer`: for somebody who may only look."""

    viewer: bool = False


class NewCode(Strict, frozen=True):
    """A code, good for one use until `expires_ns`, and the page's addresses."""

    code: str
    expires_ns: int
    urls: tuple[str, ...]


class Problem(Strict, frozen=True):
    """A refused request and the reason."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
