"""Tokens in the storage, and as every server knows them: made, listed, revoked, and followed by a watch."""

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
from dataplane.config import Strict
from dataplane.malformed import MALFORMED
from dataplane.rpc.access import Principal, Right, Role
from dataplane.rpc.access.tokens import Label, Projects, TokenRecord, new_token, principal_of

LOGGER = logging.getLogger("millrace.api")

ROOT: Final = "/access/tokens/"
_SECOND_NS: Final = 1_000_000_000


class TokenRequest(Strict, frozen=True):
    """A token that is to be made; without `lasts_s` it lasts until it is revoked."""

    name: Label
    role: Role
    subject: Label | None = None
    lasts_s: Annotated[float, Meta(gt=0, le=1e10)] | None = None
    rights: Annotated[tuple[Right, ...], Meta(max_length=8)] = ()
    """Of a user, beyond his role."""
    projects: Projects = ()
    """Of a user."""


class TokenShown(Strict, frozen=True):
    """What is said of a token: never its secret, nor the hash of it."""

    id: str
    name: str
    role: Role
    subject: str | None
    created_ns: int
    expires_ns: int | None
    rights: tuple[Right, ...] = ()
    projects: tuple[str, ...] = ()


class NewToken(Strict, frozen=True):
    """A token that was made; `token` is said this once."""

    token: str
    shown: TokenShown


class Tokens:
    """The tokens that count; `run` keeps them so. `now_ns` is the time since 1970."""

    def __init__(self, storage: Storage, now_ns: Callable[[], int]) -> None:
        self._storage, self._now_ns = storage, now_ns
        self._records: dict[str, TokenRecord] = {}
        self._acknowledged = AcknowledgedWrites[TokenRecord]()
        self.loaded = asyncio.Event()

    def principal_of(self, token: str) -> Principal:
        """Return whose token it is; raise AccessError. Those of before count while the storage is away."""
        return principal_of(token, self._acknowledged.over(self._records), self._now_ns())

    async def create(self, request: TokenRequest) -> NewToken:
        """Make a token; once it is acknowledged this server takes it, others as soon as they hear of it."""
        now_ns = self._now_ns()
        expires_ns = None if request.lasts_s is None else now_ns + round(request.lasts_s * _SECOND_NS)
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
        """Return all tokens, those that have expired as well."""
        with away():
            page = await self._storage.scan(ROOT)
        return tuple(shown(_record(stored)) for stored in page.items)

    async def revoke(self, number: str) -> TokenShown:
        """Have a token count no more; raise NotFoundError."""
        key = ROOT + number
        with away():
            stored = await self._storage.get(key) if number.isalnum() else None
            if stored is None:
                raise NotFoundError(f"there is no token {number[:40]}")
            try:
                change = Delete(key)
                revision = await self._storage.transact((change,), expected=(Expected(key, stored.modified),))
            except ConflictError:
                raise NotFoundError(f"there is no token {number} any more") from None
        self._acknowledged.note(number, revision, None)
        return shown(_record(stored))

    async def run(self, retry_s: float = 0.5) -> None:
        """Follow the storage until cancelled; the log says once why that is impossible."""
        said = ""
        while True:
            try:
                page = await self._storage.scan(ROOT)
                said = ""
                self._records = {record.id: record for record in map(_record, page.items)}
                self._acknowledged.reach(page.revision)
                self.loaded.set()
                async with aclosing(self._storage.watch(ROOT, after=page.revision)) as watch:
                    async for events in watch:
                        self._apply(events)
            except CompactedError:
                LOGGER.warning("changes of tokens were forgotten before they were seen: all are read again")
            except StorageError as error:
                if str(error) != said:
                    said = str(error)
                    LOGGER.warning("tokens: the storage does not answer: %s", said)
                await asyncio.sleep(retry_s)

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            number = event.key.removeprefix(ROOT)
            self._records.pop(number, None)
            if event.stored is not None:
                self._records[number] = _record(event.stored)
        self._acknowledged.reach(events[-1].revision)


class Identities:
    """Says who holds a token, one of ours or of an issuer of OpenID Connect."""

    def __init__(self, tokens: Tokens, issuers: OidcIdentities) -> None:
        self._tokens, self._issuers = tokens, issuers

    async def prepare(self, token: str) -> None:
        """Have what is needed to judge a token; raise AccessError for one that is none."""
        if self._issuers.is_for(token):
            await self._issuers.prepare(token)

    def principal_of(self, token: str) -> Principal:
        """Return who holds a token; raise AccessError."""
        which = self._issuers if self._issuers.is_for(token) else self._tokens
        return which.principal_of(token)


def shown(record: TokenRecord) -> TokenShown:
    """Return what is said of a token."""
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
        raise StorageError(f"{stored.key} is no token of this version: {error}") from None
