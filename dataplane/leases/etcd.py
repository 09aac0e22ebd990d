"""Leases in etcd (v3), shared by processes of several machines; needs the extra `etcd` (aetcd's messages, over grpc).

A lease of etcd's own lasts at least two seconds with its default election timeout, and expires late after a change of
leader. The pairs' leases last one: whoever stands by times by its own clock how long the key has not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import grpc
from aetcd import rpc

from dataplane.errors import MillraceError
from dataplane.leases.place import EtcdPlace
from dataplane.leases.storage import Entry, LeaseStorage
from dataplane.rpc.addresses import target_of
from dataplane.rpc.options import foreign_options

_PROBE_MS: Final = 1_000
_RECONNECT: Final = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # the time for an attempt; by default 20 s, too long in a partition
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
"""After a partition the member is asked again within a second; by default gRPC waits up to two minutes."""


class EtcdLeases(LeaseStorage):
    """See `LeaseStorage`; for several threads. A call that fails is followed by one to the next member."""

    def __init__(self, place: EtcdPlace, timeout_s: float, error: type[MillraceError]) -> None:
        """Limit each call to `timeout_s`; raise `error` for unreadable certificates."""
        self._place, self._timeout_s, self._error = place, timeout_s, error
        credentials, options = place.credentials(error), [*foreign_options(_PROBE_MS), *_RECONNECT]
        targets = [target_of(address) for address in place.addresses]
        self._channels = [
            grpc.insecure_channel(target, options=options)
            if credentials is None
            else grpc.secure_channel(target, credentials, options=options)
            for target in targets
        ]
        self._members = [rpc.KVStub(channel) for channel in self._channels]
        self._member = 0
        self._root = f"{place.root}/standby/".encode()

    def read(self, keys: Sequence[str], *, after: int = 0) -> dict[str, Entry]:
        """Return the keys that exist and have changed after a revision."""
        ranges = [rpc.RangeRequest(key=self._root + key.encode(), min_mod_revision=after + 1) for key in keys]
        request = rpc.TxnRequest(success=[rpc.RequestOp(request_range=one) for one in ranges])
        return self._entries(self._call(request))

    def below(self, prefix: str) -> dict[str, Entry]:
        """Return all keys that begin with a prefix, as of one moment."""
        first = self._root + prefix.encode()
        # The end of the range is the first key behind all that begin so.
        past = first[:-1] + bytes([first[-1] + 1])
        request = rpc.TxnRequest(success=[rpc.RequestOp(request_range=rpc.RangeRequest(key=first, range_end=past))])
        return self._entries(self._call(request))

    def _entries(self, answer: Any) -> dict[str, Entry]:  # noqa: ANN401 - etcd's messages have no types
        items = [item for response in answer.responses for item in response.response_range.kvs]
        return {
            bytes(item.key)[len(self._root) :].decode(): Entry(bytes(item.value), int(item.mod_revision))
            for item in items
        }

    def write(self, changes: Mapping[str, bytes], expected: Mapping[str, int], *, durable: bool = False) -> int | None:
        """Set keys, all or none, if the `expected` ones are at these revisions."""
        del durable  # every write of etcd is
        request = rpc.TxnRequest(
            compare=[
                rpc.Compare(
                    result=rpc.Compare.EQUAL,
                    target=rpc.Compare.MOD,
                    key=self._root + key.encode(),
                    mod_revision=revision,
                )
                for key, revision in expected.items()
            ],
            success=[
                rpc.RequestOp(request_put=rpc.PutRequest(key=self._root + key.encode(), value=value))
                for key, value in changes.items()
            ],
        )
        answer = self._call(request)
        return int(answer.header.revision) if answer.succeeded else None

    def close(self) -> None:
        """Close the connections."""
        for channel in self._channels:
            channel.close()

    def _call(self, request: object) -> Any:  # noqa: ANN401 - etcd's messages have no types
        member = self._member
        call: Callable[..., Any] = self._members[member].Txn
        try:
            return call(request, timeout=self._timeout_s)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            self._member = (member + 1) % len(self._members)
            # RpcError has the call's methods only in subclasses that grpc does not export.
            reason = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else str(error)
            raise self._error(f"etcd at {self._place.addresses[member]}: {reason}") from None
