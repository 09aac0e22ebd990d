"""Switches by node id, and their links by port."""

from __future__ import annotations

from collectors.native.structures import NONE32, NONE64, Fabric
from dataplane.native import as_u64, kernel, u32, u64

_HASH = 0x9E37_79B9_7F4A_7C15


@kernel(inline=True)
def find_switch(fabric: Fabric, node_id: u32) -> u32:
    """Return the number of the switch that has a node id, or NONE32."""
    place: u64 = (as_u64(node_id) * _HASH) >> 32 & fabric.node_mask
    while fabric.node_switches[place] != NONE32:
        if fabric.node_ids[place] == node_id:
            return fabric.node_switches[place]
        place = (place + 1) & fabric.node_mask
    return NONE32


@kernel(inline=True)
def link_by_port(fabric: Fabric, switch: u32, port: u32) -> u32:
    """Return the link that leaves a switch by a port, or NONE32."""
    begins: u32 = fabric.port_base[switch]
    if port >= fabric.port_base[switch + 1] - begins:
        return NONE32
    return fabric.port_links[begins + port]


@kernel(inline=True)
def link_of_pair(fabric: Fabric, tail: u32, head: u32) -> u32:
    """Return the link from a switch to another, or NONE32."""
    key: u64 = as_u64(tail) << 32 | as_u64(head)
    place: u64 = (key * _HASH) >> 32 & fabric.pair_mask
    while fabric.pair_keys[place] != NONE64:
        if fabric.pair_keys[place] == key:
            return fabric.joins.pair_links[place]
        place = (place + 1) & fabric.pair_mask
    return NONE32
