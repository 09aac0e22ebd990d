"""Sessions of browsers: a code or a token is traded for a cookie.

A code is for one use within a minute; whoever asked for it signs in. A session ends with its age, and with the validity
of the token behind it. All are kept in memory: a restart of the server signs everybody out.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from controller.common.errors import UnauthorizedError
from dataplane.clock import NS_PER_S
from dataplane.errors import AccessError
from dataplane.rpc.access import Principal, Role

CODE_NS: Final = 60 * NS_PER_S
_MOST_CODES: Final = 256
_COOKIE: Final = "millrace"

Confirm = Callable[[], Principal]
"""Returns the principal as long as its credentials are valid; raises AccessError."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A browser's session."""

    secret: str
    principal: Principal
    expires_ns: int
    confirm: Confirm


class SignIns:
    """Codes and sessions of one server. Use in one event loop; `now_ns` is the time since 1970."""

    def __init__(self, now_ns: Callable[[], int], *, lasts_ns: int, most: int) -> None:
        self._now_ns, self._lasts_ns, self._most = now_ns, lasts_ns, most
        self._codes: OrderedDict[str, tuple[int, Confirm]] = OrderedDict()
        self._sessions: OrderedDict[str, SignedIn] = OrderedDict()

    def new_code(self, confirm: Confirm) -> tuple[str, int]:
        """Return a code that signs in as a principal, and when it expires."""
        code, expires_ns = secrets.token_urlsafe(24), self._now_ns() + CODE_NS
        self._codes[code] = expires_ns, confirm
        while len(self._codes) > _MOST_CODES:
            self._codes.popitem(last=False)
        return code, expires_ns

    def by_code(self, code: str) -> SignedIn:
        """Trade a code for a session; raise UnauthorizedError."""
        expires_ns, confirm = self._codes.pop(code, (0, None))
        if confirm is None or self._now_ns() >= expires_ns:
            raise UnauthorizedError(
                "this address was used before, or is older than a minute: `millrace view` prints another"
            )
        return self.new(confirm)

    def new(self, confirm: Confirm) -> SignedIn:
        """Return a new session; raise UnauthorizedError."""
        try:
            principal = confirm()
        except AccessError as error:
            raise UnauthorizedError(str(error)) from None
        made = SignedIn(secrets.token_urlsafe(32), principal, self._now_ns() + self._lasts_ns, confirm)
        self._sessions[made.secret] = made
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return made

    def principal_of(self, secret: str) -> Principal:
        """Return who is signed in by a cookie; raise AccessError."""
        session = self._sessions.get(secret)
        if session is None or self._now_ns() >= session.expires_ns:
            self._sessions.pop(secret, None)
            raise AccessError("not signed in, or no longer: sign in again")
        return session.confirm()

    def end(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(secret, None)


def as_viewer(confirm: Confirm) -> Confirm:
    """Return a confirmation of the same caller, who may only look."""
    return lambda: replace(confirm(), role=Role.VIEWER, subject=None, rights=(), projects=())


def cookie_name(host: str, *, is_tls: bool) -> str:
    """Return the cookie's name at a host: browsers keep one jar for all ports of a machine."""
    port = host.rpartition(":")[2] if host.rpartition(":")[2].isdigit() else ("443" if is_tls else "80")
    return f"{'__Host-' if is_tls else ''}{_COOKIE}-{port}"


def cookie_of(name: str, secret: str, *, lasts_s: int, is_tls: bool) -> str:
    """Return a Set-Cookie header; with `lasts_s` 0 the browser drops the cookie."""
    secure = "; Secure" if is_tls else ""
    return f"{name}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={lasts_s}{secure}"


def cookie_in(header: str, name: str) -> str | None:
    """Return the value of a cookie in a Cookie header."""
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name and value:
            return value
    return None
