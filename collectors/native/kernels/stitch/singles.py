"""Single-hop reports: hop by hop, MX, XD, and of congested queues.

A queue's report is complete. The others wait for those of their packet's other hops: here those whose index our
domain's hop count gives, in `postcards` those ordered only by adjacency. `collectors.reference.stitch` is the plain
twin.
"""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.state.flows import count_packet, touch_flow, units_of
from collectors.native.kernels.state.gaps import note_gap_of
from collectors.native.kernels.state.routes import find_host
from collectors.native.kernels.state.samples import HOP_LATENCY, add_sample
from collectors.native.kernels.state.signals import is_inner
from collectors.native.kernels.state.switches import find_switch
from collectors.native.kernels.state.windows import settle_counts
from collectors.native.kernels.stitch.hop_samples import (
    end_packet,
    expects_stamp,
    find_ends,
    give_up,
    ingress_link,
    is_known,
    put_into_part,
    sample_delay,
    sample_figures,
    sample_hop,
    take_fates,
    take_joined_path,
)
from collectors.native.kernels.stitch.pending import (
    add_cell,
    cell_of,
    find_cell,
    find_hop,
    has_too_many,
    hash_packet,
    hop_of,
    prefetch_cell,
    prefetch_slot,
    put_hop,
    remove_cell,
    renew_cell,
)
from collectors.native.kernels.stitch.postcards import join_part
from collectors.native.structures import (
    HOP_BY_HOP,
    MX,
    NONE32,
    NONE64,
    QUEUE,
    Decoder,
    Hop,
    Packet,
    PendingCell,
)
from collectors.native.tables import PendingTable, TelemetryTables
from dataplane.native import Array, address, as_u32, as_u64, kernel, reference, u32, u64


@kernel(inline=True)
def prepare_single(tables: TelemetryTables, packet: Packet) -> None:
    """Prefetch what joining a hop will look up."""
    if packet.kind >= QUEUE:
        return
    packet.cell = hash_packet(packet.hash, packet.identity)
    if packet.kind == HOP_BY_HOP:
        prefetch_slot(tables.pending.singles, packet.cell)
        prefetch_slot(tables.pending.sources, packet.hash)
    else:
        prefetch_slot(tables.pending.parts, packet.cell)
        prefetch_slot(tables.pending.flows, packet.hash)


@kernel(inline=True)
def prefetch_single(tables: TelemetryTables, packet: Packet) -> None:
    """Prefetch the packet's and the flow's cells."""
    if packet.kind == HOP_BY_HOP:
        prefetch_cell(tables.pending.singles, packet.cell)
        prefetch_cell(tables.pending.sources, packet.hash)
    elif packet.kind < QUEUE:
        prefetch_cell(tables.pending.parts, packet.cell)
        prefetch_cell(tables.pending.flows, packet.hash)


@kernel(inline=False)
def take_single(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Take a report of one hop."""
    hop = decoder.hops[as_u64(packet.first_hop)]
    tables.counts.records += 1
    ends: bool = packet.kind == HOP_BY_HOP and packet.last != 0
    if packet.kind == MX and hop.link != NONE32:
        ends = tables.topology.links[as_u64(hop.link)].head_switch == NONE32
    if ends:
        units: u64 = units_of(as_u64(packet.ip_bytes))
        cell = touch_flow(tables, reference(packet.key[0]), packet.hash, tables.batch.now_ns, units)
        count_packet(tables, cell, as_u64(packet.ip_bytes), NONE64)
    if packet.kind == QUEUE:
        take_queue(tables, hop)
        return
    pending_hop = put_into_part(tables, packet, hop, 0)
    if packet.kind == HOP_BY_HOP:
        pending_hop.position = hop_index_of(tables, reference(packet.key[0]), packet.hash, packet.remaining, hop.switch)
        if packet.last != 0 and packet.missing == 0:
            pending_hop.count = pending_hop.position + 1
            pending_hop.ends = 1
        if pending_hop.position == 0 and hop.switch != NONE32:
            note_gap_of(tables, reference(packet.key[0]), packet.hash, hop.arrived_ns)
        join_single(tables, reference(packet.key[0]), packet.hash, packet.cell)
    else:
        join_part(tables, reference(packet.key[0]), packet.hash, packet.cell, 1)


@kernel(inline=True)
def take_queue(tables: TelemetryTables, hop: Hop) -> None:
    """Take the report of a congested queue, which contains no delays."""
    if hop.switch == NONE32:
        tables.counts.unknown_node += 1
    elif hop.link == NONE32:
        tables.counts.unknown_port += 1
    else:
        if is_inner(tables, as_u64(hop.link)):
            tables.signals.queue_reported = 1
        time_ns: u64 = hop.arrived_ns if hop.left_ns == NONE64 else hop.left_ns
        add_sample(
            tables,
            hop.link,
            hop.switch,
            time_ns,
            tables.batch.now_ns,
            NONE64,
            HOP_LATENCY,
            hop.queue,
            hop.tx_bytes,
            hop.buffer,
        )


@kernel(inline=True)
def hop_index_of(tables: TelemetryTables, key: Array[u64], flow_hash: u64, remaining: u32, switch: u32) -> u32:
    """Return a hop's index: how far its remaining hops are below the source's (`collectors.reference.hop_indices`)."""
    table = tables.pending.sources
    highest: u32 = remaining
    number: u32 = find_cell(table, key, 0, flow_hash)
    if number != 0:
        renew_cell(table, number)
        source_remaining: u32 = cell_of(table, number).number
        if source_remaining > remaining and not is_source(tables, key, switch):
            highest = source_remaining
    else:
        number = add_cell(table, key, 0, flow_hash, tables.batch.now_ns)
        if has_too_many(table):
            tables.counts.flows_forgotten += 1
            remove_cell(table, table.oldest)
    cell_of(table, number).number = highest
    return highest - remaining


@kernel(inline=False)
def is_source(tables: TelemetryTables, key: Array[u64], switch: u32) -> bool:
    """Return whether a flow's source host is attached to a switch."""
    host: u32 = find_host(tables, key[4] & 0xF, key[0], key[1])
    return switch != NONE32 and host != NONE32 and tables.topology.host_switches[as_u64(host)] == switch  # noqa: PLR1714


@kernel(inline=False)
def join_single(tables: TelemetryTables, key: Array[u64], flow_hash: u64, mixed: u64) -> None:
    """Join the hop in `part`, which gives its index, with those of its packet that have come."""
    table = tables.pending.singles
    pending_hop = tables.pending.part[0]
    pending_hop.came_by = ingress_link(tables, pending_hop)
    pending_hop.waiting = 0
    number: u32 = find_cell(table, key, pending_hop.identity, mixed)
    if number != 0 and is_known(find_hop(table, cell_of(table, number), pending_hop.position)):
        # The same index twice: another packet that looks the same.
        end_packet(tables, table, cell_of(table, number))
        remove_cell(table, number)
        number = 0
    if number == 0:
        number = add_cell(table, key, pending_hop.identity, mixed, pending_hop.received_ns)
    cell = cell_of(table, number)
    hop = put_hop(table, cell, pending_hop)
    after = find_hop(table, cell, hop.position + 1)
    if is_known(after) or not expects_stamp(tables, key, hop):
        sample_hop(tables, key, hop, after)
    else:
        hop.waiting = 1
        sample_figures(tables, key, hop)
    if hop.position != 0:
        before = find_hop(table, cell, hop.position - 1)
        if is_known(before) and before.waiting != 0:
            before.waiting = 0
            sample_delay(tables, key, before, hop)
    if is_whole(tables, table, cell):
        take_joined_path(tables, key, flow_hash)
        take_fates(tables, table, cell)
        remove_cell(table, number)
    give_up(tables, table)


@kernel(inline=True)
def is_whole(tables: TelemetryTables, table: PendingTable, cell: PendingCell) -> bool:
    """Return whether all of a packet's hops have come; they are then the `path` of `pending`."""
    pending = tables.pending
    count: u32 = NONE32
    number: u32 = cell.first
    while number != 0 and count == NONE32:
        count = hop_of(table, number).count
        number = hop_of(table, number).following
    if count == NONE32 or count > cell.hops:
        return False
    pending.path_hops = 0
    while pending.path_hops < as_u64(count):
        hop = find_hop(table, cell, as_u32(pending.path_hops))
        if not is_known(hop):
            return False
        pending.path[pending.path_hops] = address(hop)
        pending.path_hops += 1
    return True


@kernel
def take_single_record(tables: TelemetryTables, key: Array[u64]) -> None:
    """Join the hop that Python has put into `part`."""
    find_ends(tables, 1)
    flow_hash: u64 = hash_key(key)
    join_single(tables, key, flow_hash, hash_packet(flow_hash, tables.pending.part[0].identity))
    settle_counts(tables)


@kernel
def find_hop_index(tables: TelemetryTables, key: Array[u64], remaining: u32, node_id: u32) -> u32:
    """Return the index of a hop that Python has decoded."""
    return hop_index_of(tables, key, hash_key(key), remaining, find_switch(tables, node_id))
