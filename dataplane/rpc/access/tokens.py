"""Bearer tokens: 256 random bits, stored only as a hash; pure except for the randomness of a new one.

SHA-256 without salt or stretching suffices for unguessable secrets; a password would need more. A token is
`millrace_ID_SECRET`: it is found, listed and revoked by its id; the secret is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dataplane.errors import AccessError
from dataplane.rpc.access.values import Principal, Right, Role, problem_of

_TOKEN: Final = re.compile(r"millrace_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})", re.ASCII)
_BEARER: Final = re.compile(r"bearer +(?P<token>\S+)", re.IGNORECASE | re.ASCII)
_LABEL: Final = r"^[A-Za-z0-9]([A-Za-z0-9._@-]*[A-Za-z0-9])?$(?!\n)"
_PROJECT: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$(?!\n)"

Label = Annotated[str, Meta(pattern=_LABEL, max_length=100)]
ProjectName = Annotated[str, Meta(pattern=_PROJECT, max_length=63)]
Projects = Annotated[tuple[ProjectName, ...], Meta(max_length=64)]
"""The first one owns a user's resources if no project is named."""


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Stored record of a token; times in ns since 1970, `expires_ns` None if it is valid until revoked."""

    id: Label
    name: Label
    role: Role
    digest: Annotated[str, Meta(min_length=64, max_length=64)]
    """SHA-256 of the secret, hexadecimal."""
    subject: Label | None = None
    created_ns: int = 0
    expires_ns: int | None = None
    rights: Annotated[tuple[Right, ...], Meta(max_length=8)] = ()
    projects: Projects = ()

    def __post_init__(self) -> None:
        problem = problem_of(self.role, self.subject, self.rights, self.projects)
        if problem is not None:
            raise ValueError(problem)

    @property
    def principal(self) -> Principal:
        """The principal that authenticates with it."""
        return Principal(self.name, self.role, self.subject, self.rights, self.projects)


def new_token(
    name: str,
    role: Role,
    subject: str | None,
    *,
    now_ns: int,
    expires_ns: int | None,
    rights: tuple[Right, ...] = (),
    projects: tuple[str, ...] = (),
) -> tuple[str, TokenRecord]:
    """Return a new token, to be shown once, and its stored record."""
    number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    record = TokenRecord(
        id=number,
        name=name,
        role=role,
        subject=subject,
        digest=_digest(secret),
        created_ns=now_ns,
        expires_ns=expires_ns,
        rights=rights,
        projects=projects,
    )
    return f"millrace_{number}_{secret}", record


def bearer(header: str) -> str:
    """Return the token of an Authorization header; raise AccessError."""
    match = _BEARER.fullmatch(header.strip())
    if match is None:
        raise AccessError("the Authorization header has no bearer token")
    return match["token"]


def principal_of(token: str, records: Mapping[str, TokenRecord], now_ns: int) -> Principal:
    """Return a token's owner; raise AccessError, which does not reveal whether the id exists."""
    match = _TOKEN.fullmatch(token)
    record = None if match is None else records.get(match["id"])
    # Takes as long for an unknown id as for a wrong secret.
    digest = "0" * 64 if record is None else record.digest
    is_right = hmac.compare_digest(_digest("" if match is None else match["secret"]), digest)
    if record is None or not is_right:
        raise AccessError("this token is unknown, or was revoked")
    if record.expires_ns is not None and now_ns >= record.expires_ns:
        raise AccessError(f"token {record.id} of {record.name} has expired")
    return record.principal


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
