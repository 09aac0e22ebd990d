"""Prediction of the group member that a packet takes, from the program's path hash and the selector's choice by it.

p4/ingress/routing.p4: the selector hashes the upper half of the CRC-32 of the 5-tuple times the switch's multiplier;
the CRC-32 of that, modulo the sum of the weights, falls into one member's range, members in order of port.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from collectors.values import FlowKey
from controller.network.tables.routing import hash_multiplier

_HASH_MASK = 0xFFFFFFFF


def flow_hash(flow: FlowKey) -> int:
    """Return the hash of a 5-tuple that all switches share."""
    return packed_hash(flow.src.packed, flow.dst.packed, flow.protocol, flow.src_port, flow.dst_port)


def packed_hash(src: bytes, dst: bytes, protocol: int, src_port: int, dst_port: int) -> int:
    """Return the hash of a 5-tuple whose addresses are packed."""
    return zlib.crc32(b"%b%b%c%b%b" % (src, dst, protocol, src_port.to_bytes(2, "big"), dst_port.to_bytes(2, "big")))


def digest(hashed: int, node_id: int) -> int:
    """Return the value that a switch's selector takes modulo the sum of a group's weights, for a flow of this hash."""
    path_hash = (hashed * hash_multiplier(node_id) & _HASH_MASK) >> 16
    return zlib.crc32(path_hash.to_bytes(2, "big"))


def chosen(weights: Sequence[int], digested: int) -> int:
    """Return the index of the member that a digest falls on; `weights` are in order of port."""
    left = digested % sum(weights)
    for index, weight in enumerate(weights):
        if left < weight:
            return index
        left -= weight
    raise AssertionError("a remainder must be below the sum")
