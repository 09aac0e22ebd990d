"""Stacks that come in parts: a switch on the way has removed and reported the hops so far."""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.decode.hops import ingress_of
from collectors.native.kernels.decode.identity import identity_of_stack
from collectors.native.kernels.state.switches import find_switch, link_by_port
from collectors.native.kernels.state.windows import settle_counts
from collectors.native.kernels.stitch.hop_samples import find_ends, put_into_part
from collectors.native.kernels.stitch.pending import (
    add_cell,
    find_cell,
    has_too_many,
    hash_packet,
    remove_cell,
    renew_cell,
)
from collectors.native.kernels.stitch.postcards import join_part
from collectors.native.structures import INTERMEDIATE, NONE32, STACK, Decoder, Packet
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, as_u32, as_u64, kernel, reference, u32, u64


@kernel(inline=True)
def comes_in_parts(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> bool:
    """Return whether a stack is the rest of a packet of which another part was already reported."""
    if tables.pending.splits.count == 0 or packet.kind != STACK:
        return False
    return is_rest(tables, decoder, packet)


@kernel(inline=False)
def is_rest(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> bool:
    """Return whether a stack begins at a switch that others sent it to, in a flow whose stacks arrive in parts."""
    hop = decoder.hops[as_u64(packet.first_hop)]
    switch: u32 = find_switch(tables, hop.node_id)
    if switch == NONE32:
        return False
    link: u32 = link_by_port(tables, switch, ingress_of(hop))
    if link == NONE32 or tables.topology.links[as_u64(link)].head_switch == NONE32:
        return False
    return find_cell(tables.pending.splits, reference(packet.key[0]), 0, packet.hash) != 0


@kernel(inline=False)
def take_stack_part(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Take an intermediate report, or the rest of a stack."""
    key = reference(packet.key[0])
    if packet.kind == INTERMEDIATE:
        remember_split(tables, key, packet.hash)
    else:
        packet.identity = identity_of_stack(packet)
    tables.counts.records += as_u64(packet.hop_count)
    i: u32 = 0
    while i < packet.hop_count:
        pending_hop = put_into_part(tables, packet, decoder.hops[as_u64(packet.first_hop + i)], as_u64(i))
        if packet.kind == STACK and packet.missing == 0:
            pending_hop.count = packet.hop_count
            pending_hop.ends = as_u32(i + 1 == packet.hop_count)
        i += 1
    find_ends(tables, packet.hop_count)
    join_part(tables, key, packet.hash, hash_packet(packet.hash, packet.identity), packet.hop_count)


@kernel(inline=True)
def remember_split(tables: TelemetryTables, key: Array[u64], flow_hash: u64) -> None:
    """Remember that stacks of a flow come in parts."""
    table = tables.pending.splits
    number: u32 = find_cell(table, key, 0, flow_hash)
    if number != 0:
        renew_cell(table, number)
        return
    add_cell(table, key, 0, flow_hash, tables.batch.now_ns)
    if has_too_many(table):
        remove_cell(table, table.oldest)


@kernel
def note_split(tables: TelemetryTables, key: Array[u64]) -> None:
    """Remember that stacks of a flow come in parts, as Python has read."""
    remember_split(tables, key, hash_key(key))


@kernel
def is_split(tables: TelemetryTables, key: Array[u64]) -> u32:
    """Return whether stacks of a flow come in parts: 1 or 0."""
    return 1 if find_cell(tables.pending.splits, key, 0, hash_key(key)) != 0 else 0


@kernel
def take_part_record(tables: TelemetryTables, key: Array[u64], count: u32) -> None:
    """Join the hops that Python has put into `part`."""
    find_ends(tables, count)
    flow_hash: u64 = hash_key(key)
    join_part(tables, key, flow_hash, hash_packet(flow_hash, tables.pending.part[0].identity), count)
    settle_counts(tables)
