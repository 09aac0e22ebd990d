"""Tokens in the storage, known to every server: created, listed, revoked, and followed by a watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from controller.apiserver.oidc import OidcIdentities
from controller.apiserver.registry.acknowledged import AcknowledgedWrites
from controller.apiserver.registry.registry import away
from controller.apiserver.storage import Delete, Event, Expected, Storage, Stored
from controller.common.errors import CompactedError, ConflictError, InvalidError, NotFoundError, StorageError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.malformed import MALFORMED
from dataplane.rpc.access import Principal, Right, Role
from dataplane.rpc.access.tokens import Label, Projects, TokenRecord, new_token, principal_of

LOGGER = logging.getLogger("millrace.api")

ROOT: Final = "/access/tokens/"


class TokenRequest(Strict, frozen=True):
    """A token to create; without `lasts_s` it is valid until revoked."""

    name: Label
    role: Role
    subject: Label | None = None
    lasts_s: Annotated[float, Meta(gt=0, le=1e10)] | None = None
    rights: Annotated[tuple[Right, ...], Meta(max_length=8)] = ()
    """Additional rights of a user."""
    projects: Projects = ()
    """Projects of a user."""


class TokenShown(Strict, frozen=True):
    """Public part of a token: never its secret, nor the hash of it."""

    id: str
    name: str
    role: Role
    subject: str | None
    created_ns: int
    expires_ns: int | None
    rights: tuple[Right, ...] = ()
    projects: tuple[str, ...] = ()


class NewToken(Strict, frozen=True):
    """A new token; `token` is shown only this once."""

    token: str
    shown: TokenShown


class Tokens:
    """The valid tokens, kept current by `run`. `now_ns` is the time since 1970."""

    def __init__(self, storage: Storage, now_ns: Callable[[], int]) -> None:
        self._storage, self._now_ns = storage, now_ns
        self._records: dict[str, TokenRecord] = {}
        self._acknowledged = AcknowledgedWrites[TokenRecord]()
        self.loaded = asyncio.Event()

    def principal_of(self, token: str) -> Principal:
        """Return the principal of a token; raise AccessError. Known tokens stay valid while the storage is down."""
        return principal_of(token, self._acknowledged.over(self._records), self._now_ns())

    async def create(self, request: TokenRequest) -> NewToken:
        """Create a token; this server accepts it once acknowledged, others once they learn of it."""
        now_ns = self._now_ns()
        expires_ns = None if request.lasts_s is None else now_ns + round(request.lasts_s * NS_PER_S)
        try:
            token, record = new_token(
                request.name,
                request.role,
                request.subject,
                now_ns=now_ns,
                expires_ns=expires_ns,
                rights=request.rights,
                projects=request.projects,
            )
        except ValueError as error:
            raise InvalidError(str(error)) from None
        self._acknowledged.check()
        with away():
            revision = await self._storage.put(ROOT + record.id, msgspec.json.encode(record), expected=0)
        self._acknowledged.note(record.id, revision, record)
        return NewToken(token=token, shown=shown(record))

    async def list(self) -> tuple[TokenShown, ...]:
        """Return all tokens, including expired ones."""
        with away():
            page = await self._storage.scan(ROOT)
        return tuple(shown(_record(stored)) for stored in page.items)

    async def revoke(self, number: str) -> TokenShown:
        """Revoke a token; raise NotFoundError."""
        key = ROOT + number
        with away():
            # Anything but letters and digits could lead to the key of something else.
            stored = await self._storage.get(key) if number.isalnum() else None
            if stored is None:
                raise NotFoundError(f"there is no token {number[:40]}")
            try:
                change = Delete(key)
                revision = await self._storage.transact((change,), expected=(Expected(key, stored.modified),))
            except ConflictError:
                raise NotFoundError(f"token {number} no longer exists") from None
        self._acknowledged.note(number, revision, None)
        return shown(_record(stored))

    async def run(self, retry_s: float = 0.5) -> None:
        """Follow the storage until cancelled; log once why that fails."""
        problem = ""
        while True:
            try:
                page = await self._storage.scan(ROOT)
                problem = ""
                self._records = {record.id: record for record in map(_record, page.items)}
                self._acknowledged.reach(page.revision)
                self.loaded.set()
                async with aclosing(self._storage.watch(ROOT, after=page.revision)) as watch:
                    async for events in watch:
                        self._apply(events)
            except CompactedError:
                LOGGER.warning("token changes were compacted before they were seen: reading all tokens again")
            except StorageError as error:
                if str(error) != problem:
                    problem = str(error)
                    LOGGER.warning("tokens: the storage does not answer: %s", problem)
                await asyncio.sleep(retry_s)

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            number = event.key.removeprefix(ROOT)
            self._records.pop(number, None)
            if event.stored is not None:
                self._records[number] = _record(event.stored)
        self._acknowledged.reach(events[-1].revision)


class Identities:
    """Authenticates tokens, both the server's own and those of OpenID Connect issuers."""

    def __init__(self, tokens: Tokens, issuers: OidcIdentities) -> None:
        self._tokens, self._issuers = tokens, issuers

    async def prepare(self, token: str) -> None:
        """Load what is needed to verify a token; raise AccessError for an invalid one."""
        if self._issuers.is_for(token):
            await self._issuers.prepare(token)

    def principal_of(self, token: str) -> Principal:
        """Return the principal of a token; raise AccessError."""
        which = self._issuers if self._issuers.is_for(token) else self._tokens
        return which.principal_of(token)


def shown(record: TokenRecord) -> TokenShown:
    """Return the public part of a token."""
    return TokenShown(
        id=record.id,
        name=record.name,
        role=record.role,
        subject=record.subject,
        created_ns=record.created_ns,
        expires_ns=record.expires_ns,
        rights=record.rights,
        projects=record.projects,
    )


def _record(stored: Stored) -> TokenRecord:
    try:
        return msgspec.json.decode(stored.value, type=TokenRecord)
    except MALFORMED as error:
        raise StorageError(f"{stored.key} is not a token of this version: {error}") from None
