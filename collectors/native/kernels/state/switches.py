"""Switches by node id, and their links by port."""

from __future__ import annotations

from collectors.native.structures import NONE32
from collectors.native.tables import TelemetryTables
from dataplane.native import as_u32, as_u64, kernel, u32, u64
from dataplane.native.open_addressing import home_of, next_alike, next_tagged

_HASH = 0x9E37_79B9_7F4A_7C15


@kernel(inline=True)
def find_switch(tables: TelemetryTables, node_id: u32) -> u32:
    """Return the number of the switch that has a node id, or NONE32."""
    topology = tables.topology
    home: u64 = home_of(as_u64(node_id) * _HASH, topology.switch_mask)
    index: u64 = next_tagged(topology.switch_index, topology.switch_mask, home, as_u64(node_id), 32)
    return as_u32(topology.switch_index[index]) - 1  # of an empty place, NONE32


@kernel(inline=True)
def link_by_port(tables: TelemetryTables, switch: u32, port: u32) -> u32:
    """Return the link that leaves a switch by a port, or NONE32."""
    begins: u32 = tables.topology.port_base[switch]
    if port >= tables.topology.port_base[switch + 1] - begins:
        return NONE32
    return tables.topology.port_links[begins + port]


@kernel(inline=True)
def link_of_pair(tables: TelemetryTables, tail: u32, head: u32) -> u32:
    """Return the link from a switch to another, or NONE32."""
    topology = tables.topology
    mixed: u64 = (as_u64(tail) << 32 | as_u64(head)) * _HASH
    index: u64 = home_of(mixed, topology.pair_mask)
    while True:
        index = next_alike(topology.pair_index, topology.pair_mask, index, mixed)
        number: u32 = as_u32(topology.pair_index[index]) - 1
        if number == NONE32:
            return NONE32
        link = topology.links[as_u64(number)]
        if link.tail_switch == tail and link.head_switch == head:
            return number
        index = (index + 1) & topology.pair_mask
