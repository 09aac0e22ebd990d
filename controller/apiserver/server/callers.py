"""Callers of routes: whether their credentials are still valid, and what they may hold open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from controller.apiserver.server.fairness import is_user
from controller.common.errors import TooManyError, UnauthorizedError, UnavailableError
from controller.common.http_connections import USERS_SHARE
from dataplane.errors import AccessError
from dataplane.rpc.access import Principal

CALLER: Final = "millrace.caller"
"""Key of the caller in a request's state."""


class WatchBook:
    """Open watches: those of all users leave room for nodes, centres and schedulers."""

    def __init__(self, most: int, of_user: int) -> None:
        self._of_users, self._of_user = max(1, int(most * USERS_SHARE)), of_user
        self._open: dict[str, int] = {}
        self.refused = 0

    def take(self, owner: str) -> Callable[[], None]:
        """Count a user's watch; return a function that gives it back. Raise TooManyError, UnavailableError."""
        problem: TooManyError | UnavailableError | None = None
        if self._open.get(owner, 0) >= self._of_user:
            problem = TooManyError(f"{owner} has reached the limit of {self._of_user} open watches")
        elif sum(self._open.values()) >= self._of_users:
            problem = UnavailableError(f"users have reached the limit of {self._of_users} open watches")
        if problem is not None:
            self.refused += 1
            raise problem
        self._open[owner] = self._open.get(owner, 0) + 1

        def give_back() -> None:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]

        return give_back


@dataclass(slots=True)
class Caller:
    """Caller of a request; `confirm` raises AccessError once its credentials are no longer valid."""

    principal: Principal
    confirm: Callable[[], object]
    watches: WatchBook
    _held: list[Callable[[], None]] = field(default_factory=list)

    def check(self) -> None:
        """Raise UnauthorizedError if the token was revoked or has expired since the request began."""
        try:
            self.confirm()
        except AccessError as error:
            raise UnauthorizedError(str(error)) from None

    def hold_watch(self) -> None:
        """Count a watch until the request ends; raise TooManyError or UnavailableError if there is no room."""
        if is_user(self.principal.role):
            self._held.append(self.watches.take(str(self.principal)))

    def leave(self) -> None:
        """Release everything held at the end of the request."""
        while self._held:
            self._held.pop()()


def caller_of(request: Any) -> Caller:  # noqa: ANN401 - Litestar's, of whatever principal
    """Return the caller of a request."""
    caller: Caller = request.scope["state"][CALLER]
    return caller
