"""The storage in etcd (v3), under a prefix; several processes and machines may share it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
from aetcd import rpc

from controller.apiserver.storage.base import Storage
from controller.apiserver.storage.values import (
    Change,
    Event,
    EventKind,
    Expected,
    Lease,
    Page,
    Put,
    Stored,
    check_key,
    check_transaction,
)
from controller.common.errors import CompactedError, ConflictError, LeaseError, StorageError
from dataplane.rpc.options import foreign_options

T = TypeVar("T")

_PROBE_MS: Final = 10_000
_TIMEOUT_S: Final = 5.0
_RETRY_S: Final = 0.5
_COMPACTED: Final = "compacted"
_NO_LEASE: Final = "lease not found"


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """Address of etcd (`host:port`) and credentials; all keys begin with `root`."""

    address: str = "127.0.0.1:2379"
    root: str = "/millrace"
    credentials: grpc.ChannelCredentials | None = None
    timeout_s: float = _TIMEOUT_S


class EtcdStorage(Storage):
    """See `Storage`; for one event loop. While etcd is down, calls time out; watches resume when it is back."""

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings, self._root = settings, settings.root.encode()
        options = foreign_options(_PROBE_MS)
        if settings.credentials is None:
            self._channel = grpc.aio.insecure_channel(settings.address, options=options)
        else:
            self._channel = grpc.aio.secure_channel(settings.address, settings.credentials, options=options)
        self._keys, self._leases = rpc.KVStub(self._channel), rpc.LeaseStub(self._channel)
        self._watches = rpc.WatchStub(self._channel)
        self._closed = asyncio.Event()

    async def revision(self) -> int:
        """Return the newest revision."""
        request = rpc.RangeRequest(key=self._root, count_only=True)
        answer = await self._call(self._keys.Range, request)
        return int(answer.header.revision)

    async def get(self, key: str, *, revision: int | None = None) -> Stored | None:
        """Return a key, current or at a revision."""
        check_key(key)
        request = rpc.RangeRequest(key=self._key(key), revision=revision or 0)
        answer = await self._call(self._keys.Range, request, revision)
        return self._stored(answer.kvs[0]) if answer.kvs else None

    async def scan(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int | None = None
    ) -> Page:
        """Return keys with a prefix."""
        # The first key after this one is the same with a NUL appended.
        first = max(self._key(prefix), self._key(after) + b"\0") if after else self._key(prefix)
        request = rpc.RangeRequest(
            key=first, range_end=_successor(self._key(prefix)), limit=limit or 0, revision=revision or 0
        )
        answer = await self._call(self._keys.Range, request, revision)
        items = tuple(self._stored(item) for item in answer.kvs)
        return Page(items, revision or int(answer.header.revision), bool(answer.more))

    async def transact(self, changes: tuple[Change, ...], *, expected: tuple[Expected, ...] = ()) -> int:
        """Make changes, all or none."""
        check_transaction(expected, changes)
        request = rpc.TxnRequest(
            compare=[self._compare(condition) for condition in expected],
            success=[self._operation(change) for change in changes],
            failure=[
                rpc.RequestOp(request_range=rpc.RangeRequest(key=self._key(condition.key), keys_only=True))
                for condition in expected
            ],
        )
        leases = [change.lease for change in changes if isinstance(change, Put) and change.lease is not None]
        answer = await self._call(self._keys.Txn, request, lease=leases[0] if leases else None)
        if not answer.succeeded:
            raise _conflict(expected, answer)
        return int(answer.header.revision)

    async def grant(self, ttl_s: float) -> Lease:
        """Return a new lease; etcd counts whole seconds."""
        if not ttl_s >= 1:
            raise StorageError(f"a lease must last at least 1 s, not {ttl_s:g}")
        answer = await self._call(self._leases.LeaseGrant, rpc.LeaseGrantRequest(TTL=math.ceil(ttl_s)))
        return Lease(int(answer.ID), float(answer.TTL))

    async def renew(self, lease: int) -> None:
        """Extend a lease to its full duration from now."""

        async def once(requests: AsyncIterator[Any], timeout: float) -> Any:  # noqa: ANN401
            async for answer in self._leases.LeaseKeepAlive(requests, timeout=timeout):
                return answer
            raise StorageError(f"{self._who}: lease {lease:x}: no answer")

        async def request() -> AsyncIterator[Any]:
            yield rpc.LeaseKeepAliveRequest(ID=lease)

        answer = await self._call(once, request())
        if answer.TTL <= 0:
            raise LeaseError(lease)

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        try:
            await self._call(self._leases.LeaseRevoke, rpc.LeaseRevokeRequest(ID=lease), lease=lease)
        except LeaseError:
            return

    async def watch(self, prefix: str, *, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events of keys with a prefix after a revision; after an outage, resume."""
        while not self._closed.is_set():
            try:
                async with aclosing(self._follow(prefix, after)) as followed:
                    async for revision, events in followed:
                        after = revision
                        if events:
                            yield events
            except grpc.aio.AioRpcError:
                # etcd is down or has a new leader: missed events follow the last revision seen.
                await asyncio.sleep(_RETRY_S)
        raise StorageError("the storage is closed")

    async def compact(self, revision: int) -> None:
        """Drop history from before a revision, including that of other users of the same etcd."""
        await self._call(self._keys.Compact, rpc.CompactionRequest(revision=revision), revision)

    async def close(self) -> None:
        """Close the connection."""
        self._closed.set()
        await self._channel.close(None)

    @property
    def _who(self) -> str:
        return f"etcd at {self._settings.address}"

    async def _follow(self, prefix: str, after: int) -> AsyncGenerator[tuple[int, tuple[Event, ...]], None]:
        """Yield revisions and their events over one connection."""
        create = rpc.WatchCreateRequest(
            key=self._key(prefix), range_end=_successor(self._key(prefix)), start_revision=after + 1
        )

        async def requests() -> AsyncIterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            await self._closed.wait()  # ending the requests would end the stream

        async for answer in self._watches.Watch(requests()):
            if answer.compact_revision:
                raise CompactedError(after, int(answer.compact_revision))
            if answer.canceled:
                raise StorageError(f"{self._who}: watch {prefix}: {answer.cancel_reason}")
            # etcd may put the events of several revisions into one response.
            by_revision: dict[int, list[Event]] = {}
            for event in answer.events:
                by_revision.setdefault(int(event.kv.mod_revision), []).append(self._event(event))
            for revision, events in sorted(by_revision.items()):
                yield revision, tuple(events)

    async def _call(
        self,
        method: Callable[..., Awaitable[Any]],
        request: object,
        revision: int | None = None,
        *,
        lease: int | None = None,
    ) -> Any:  # noqa: ANN401 - etcd's messages have no types
        if self._closed.is_set():
            raise StorageError("the storage is closed")
        try:
            return await method(request, timeout=self._settings.timeout_s)
        except grpc.aio.AioRpcError as error:
            details = error.details() or ""
            if _COMPACTED in details:
                raise CompactedError(revision or 0, None) from None
            if _NO_LEASE in details and lease is not None:
                raise LeaseError(lease) from None
            raise StorageError(f"{self._who}: {error.code().name}: {details}") from None

    def _key(self, key: str) -> bytes:
        return self._root + key.encode()

    def _stored(self, item: Any) -> Stored:  # noqa: ANN401
        key = bytes(item.key)[len(self._root) :].decode()
        revisions = int(item.create_revision), int(item.mod_revision), int(item.version)
        return Stored(key, bytes(item.value), *revisions, int(item.lease) or None)

    def _event(self, event: Any) -> Event:  # noqa: ANN401
        key, revision = bytes(event.kv.key)[len(self._root) :].decode(), int(event.kv.mod_revision)
        if event.type == rpc.Event.DELETE:
            return Event(EventKind.DELETE, key, revision)
        return Event(EventKind.PUT, key, revision, self._stored(event.kv))

    def _compare(self, condition: Expected) -> Any:  # noqa: ANN401
        return rpc.Compare(
            result=rpc.Compare.EQUAL,
            target=rpc.Compare.MOD,
            key=self._key(condition.key),
            mod_revision=condition.revision,
        )

    def _operation(self, change: Change) -> Any:  # noqa: ANN401
        if isinstance(change, Put):
            put = rpc.PutRequest(key=self._key(change.key), value=change.value, lease=change.lease or 0)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=self._key(change.key)))


def _conflict(expected: tuple[Expected, ...], answer: Any) -> ConflictError:  # noqa: ANN401
    """Return the error naming the key that is not as expected, from reads in the same transaction."""
    for condition, response in zip(expected, answer.responses, strict=True):
        items = response.response_range.kvs
        revision = int(items[0].mod_revision) if items else 0
        if revision != condition.revision:
            return ConflictError(condition.key, condition.revision, revision)
    raise StorageError("etcd rejected a transaction whose conditions all hold")


def _successor(prefix: bytes) -> bytes:
    """Return the first key after all those with a prefix."""
    # 0xff cannot be incremented, so the byte before it is.
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"
