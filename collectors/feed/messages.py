"""The framing of the feed's messages: MessagePack of plain arrays, with a version in every message.

A message is [version, body]. Addresses go as 4 or 16 bytes, mappings whose keys are values as lists of rows. The
version grows whenever a body's layout changes; a peer of another version is refused, never guessed at.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, TypeVar

import msgspec

from collectors.errors import FeedError
from collectors.values import FlowKey
from dataplane.rpc.envelope import disclose, enclose
from dataplane.rpc.own_folder import default_address

SERVICE: Final = "millrace.collector.v1.Feed"
ADDRESS: Final = default_address("collector")
"""Where the feed is served, and looked for, unless somebody says otherwise."""
VERSION: Final = 4

T = TypeVar("T")


class FlowRow(msgspec.Struct, array_like=True, frozen=True):
    """A flow as it travels."""

    src: bytes
    dst: bytes
    protocol: int
    src_port: int
    dst_port: int


def pack(body: object) -> bytes:
    """Return a message of this version."""
    return enclose(VERSION, body)


def unpack(message: bytes, schema: type[T]) -> T:
    """Return a message's body; raise FeedError for another version or layout."""
    return disclose(message, VERSION, schema, FeedError)


def flow_out(flow: FlowKey) -> FlowRow:
    """Return a flow as it travels."""
    return FlowRow(flow.src.packed, flow.dst.packed, flow.protocol, flow.src_port, flow.dst_port)


def flow_in(flow: FlowRow) -> FlowKey:
    """Return a flow that has travelled; raise FeedError for an address of odd length."""
    return FlowKey(_address(flow.src), _address(flow.dst), flow.protocol, flow.src_port, flow.dst_port)


def _address(packed: bytes) -> IPv4Address | IPv6Address:
    try:
        return ip_address(packed)
    except ValueError as error:
        raise FeedError(f"an address of {len(packed)} bytes is neither IPv4 nor IPv6") from error
