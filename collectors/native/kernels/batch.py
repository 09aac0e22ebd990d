"""Whole batches of report payloads into the network's state."""

from __future__ import annotations

from collectors.native.kernels.decode.decoding import DECODED, decode_report
from collectors.native.kernels.decode.flow_key import same_key
from collectors.native.kernels.decode.hops import egress_of
from collectors.native.kernels.decode.layouts import REPORT_VERSION
from collectors.native.kernels.drops import note_gap_before, take_drop, take_hops_before
from collectors.native.kernels.records import note_records
from collectors.native.kernels.sequence import (
    CONTESTED,
    ELSEWHERE,
    FIRST,
    NEW,
    REPEATED,
    account,
    content_mark,
    note_source,
    observe,
)
from collectors.native.kernels.sources import is_refused, is_relay, refuse, source_of
from collectors.native.kernels.state.flows import (
    count_packet,
    is_passing,
    prefetch_flow,
    prefetch_index,
    touch_flow,
    units_of,
)
from collectors.native.kernels.state.gaps import note_gap
from collectors.native.kernels.state.routes import (
    hops_of,
    same_hops,
)
from collectors.native.kernels.state.stacks import take_hops
from collectors.native.kernels.state.switches import find_switch, link_by_port
from collectors.native.kernels.state.windows import prefetch_window, settle_counts
from collectors.native.kernels.stitch.singles import prefetch_single, prepare_single, take_single
from collectors.native.kernels.stitch.splits import comes_in_parts, take_stack_part
from collectors.native.structures import (
    COMPLETION,
    INTERMEDIATE,
    NONE32,
    NONE64,
    STACK,
    Decoder,
    FlowCell,
    Hop,
    Packet,
)
from collectors.native.tables import SequenceTable, TelemetryTables
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    kernel,
    load_be32,
    offset,
    prefetch,
    reference,
    u8,
    u32,
    u64,
    view,
)

GROUP = 16
"""Payloads that are decoded before the first of them is accounted: their flows come into the cache meanwhile."""
GROUP_BYTES = 8
PREFETCHED = 5
"""Number of payloads to prefetch into the cache."""
LONG = 192
"""Bytes that every payload is assumed to have; for longer ones, as of five hops, two more cache lines are fetched."""


@kernel
def take_reports(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables,
    sequences: SequenceTable,
    decoder: Decoder,
    data: Array[u8],
    places: Array[u64],
    lengths: Array[u32],
    first: u32,
    count: u32,
) -> u32:
    """Take payloads from `first` on, at the offsets in `places`; return the one that Python must read, or `count`.

    Returns likewise when there are more than `most_items` for Python.
    """
    row: u32 = first
    while row < count:
        if decoder.item_count > decoder.most_items:
            return row
        end: u32 = decode_group(tables, decoder, data, places, lengths, row, count)
        if end == row:
            if tables.batch.skips_others == 0:
                return row
            skip_report(tables, sequences, offset(data, places[row]), as_u64(lengths[row]))
            row += 1
            continue
        i: u32 = 0
        while i < decoder.packet_count:
            prefetch_flow(tables, decoder.packets[i].hash)
            i += 1
        take_group(tables, sequences, decoder)
        row = end
    return count


@kernel(inline=False)
def skip_report(tables: TelemetryTables, sequences: SequenceTable, data: Array[u8], length: u64) -> None:
    """Account the number of a report packet, if it is one, and ignore the rest."""
    tables.counts.reports += 1
    if length >= GROUP_BYTES and load_be32(data, 0) >> 28 == REPORT_VERSION:
        mark: u32 = content_mark(data, length)
        arrival: u32 = observe(sequences, load_be32(data, 4), load_be32(data, 0), mark, tables.batch.now_ns)
        if not is_fresh(tables, arrival):
            return
    tables.counts.not_read += 1


@kernel(inline=False)
def is_fresh_after_all(tables: TelemetryTables, sequences: SequenceTable, packet: Packet, arrival: u32) -> bool:
    """Return whether a report packet whose number is not simply the next is to be measured; count it otherwise."""
    verdict: u32 = arrival
    if arrival == FIRST or arrival == ELSEWHERE:  # noqa: PLR1714, SIM109 - kernels have no `in`
        switch: u32 = find_switch(tables, packet.node_id)
        if refuse(tables, switch, True, packet.row):
            tables.counts.reports -= 1
            return False
        verdict = observe(sequences, packet.node_id, packet.sequence, packet.mark, tables.batch.now_ns)
        if tables.batch.sources != 0 and not is_relay(tables, packet.row):
            note_source(sequences, packet.node_id, packet.sequence, source_of(tables, packet.row))
    return is_fresh(tables, verdict)


@kernel(inline=False)
def is_fresh(tables: TelemetryTables, arrival: u32) -> bool:
    """Count a report packet with a repeated number; return False if it has been measured already."""
    tables.counts.repeated += as_u64(arrival == REPEATED)
    tables.counts.contested += as_u64(arrival == CONTESTED)
    return arrival != REPEATED


@kernel
def decode_group(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables,
    decoder: Decoder,
    data: Array[u8],
    places: Array[u64],
    lengths: Array[u32],
    first: u32,
    count: u32,
) -> u32:
    """Decode some payloads; return the one after them, the first itself if it is not of the common form."""
    decoder.packet_count = 0
    decoder.hop_count = 0
    row: u32 = first
    end: u32 = min(count, first + GROUP)
    seen: u32 = 0
    while row < end:
        if row + PREFETCHED < count:
            ahead = offset(data, places[row + PREFETCHED])
            prefetch(ahead)
            prefetch(offset(ahead, 64))
            prefetch(offset(ahead, 128))
            if lengths[row + PREFETCHED] > LONG:
                prefetch(offset(ahead, 192))
                prefetch(offset(ahead, 256))
        payload = offset(data, places[row])
        if decode_report(decoder, payload, as_u64(lengths[row]), row) != DECODED:
            if not is_refused(tables, payload, as_u64(lengths[row]), row):
                break
            row += 1
            continue
        while seen < decoder.packet_count:
            packet = decoder.packets[seen]
            prefetch_index(tables, packet.hash)
            if packet.kind != STACK:
                prepare_single(tables, packet)
            seen += 1
        row += 1
    return row


@kernel
def take_group(tables: TelemetryTables, sequences: SequenceTable, decoder: Decoder) -> None:
    """Account the packets of the payloads decoded."""
    find_flows(tables, sequences, decoder)
    count: u32 = decoder.packet_count
    lessons: u64 = tables.routes.lessons
    i: u32 = 0
    while i < count:
        if decoder.packets[i].fresh != 0:
            find_links(tables, decoder, decoder.packets[i])
        i += 1
    i = 0
    while i < count:
        packet = decoder.packets[i]
        whole: bool = packet.kind | packet.dropped == STACK
        if packet.fresh != 0 and whole:
            count_stack(tables, decoder, packet)
        usual: bool = whole and tables.pending.splits.count == 0
        if packet.fresh != 0 and (usual or not take_unusual_packet(tables, decoder, packet)):
            cell = cell_of(tables, packet)
            if tables.routes.lessons != lessons:
                # The route's reference hops have changed since they were compared.
                find_links_again(tables, decoder, packet)
            take_hops(tables, decoder, packet, cell)
        if tables.records.per_s != 0 and packet.fresh != 0:
            note_records(tables, decoder, packet)
        i += 1
    settle_counts(tables)


@kernel(inline=True)
def cell_of(tables: TelemetryTables, packet: Packet) -> FlowCell:
    """Return the cell of a packet's flow, found before; another flow of its group may have taken its place."""
    cell = view(FlowCell, packet.cell)
    if not same_key(cell, reference(packet.key[0])) and not is_passing(tables, cell):
        # It has asked for admission with its weight already.
        cell = touch_flow(tables, reference(packet.key[0]), packet.hash, tables.batch.now_ns, 0)
    return cell


@kernel(inline=True)
def count_stack(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Count a packet in its flow's rate, at its first hop's stamp where the report has all hops."""
    source_ns: u64 = NONE64
    if packet.missing == 0 and packet.hop_count != 0:
        source_ns = decoder.hops[packet.first_hop].arrived_ns
    cell = cell_of(tables, packet)
    count_packet(tables, cell, as_u64(packet.ip_bytes), source_ns)
    is_known: bool = packet.route != NONE32 or decoder.hops[packet.first_hop].switch != NONE32
    if packet.hop_count != 0 and is_known and not is_passing(tables, cell):
        note_gap(tables, cell, decoder.hops[packet.first_hop].arrived_ns)


@kernel(inline=False)
def take_unusual_packet(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> bool:
    """Take a packet that is not a whole stack; return False if it turns out to be one."""
    if packet.dropped != 0:
        take_drop(tables, packet)
        note_gap_before(tables, decoder, packet)
    if packet.kind == INTERMEDIATE or comes_in_parts(tables, decoder, packet):
        take_stack_part(tables, decoder, packet)
    elif packet.dropped != 0:
        take_hops_before(tables, decoder, packet)
    elif packet.kind == COMPLETION:
        note_item(decoder, packet)
    elif packet.kind != STACK:
        take_single(tables, decoder, packet)
    else:
        return False
    return True


@kernel(inline=False)
def note_item(decoder: Decoder, packet: Packet) -> None:
    """Keep a report's completion of an item, for Python."""
    cell = decoder.items[as_u64(decoder.item_count)]
    words = array_at(u8, packet.inner)
    cell.node_id = packet.node_id
    cell.child = as_u32(packet.key[1])
    cell.about = load_be32(words, 0)
    cell.item = load_be32(words, 4)
    cell.wait_us = load_be32(words, 8)
    cell.counts = load_be32(words, 12)
    decoder.item_count += 1


@kernel
def find_flows(tables: TelemetryTables, sequences: SequenceTable, decoder: Decoder) -> None:
    """Account the report packets' numbers, and find the flows of the packets that count."""
    fresh: u32 = 0
    sources = array_at(u32, tables.batch.sources)
    is_checked: bool = address(sources) != 0
    source: u32 = NONE32
    now_ns: u64 = tables.batch.now_ns
    i: u32 = 0
    while i < decoder.packet_count:
        packet = decoder.packets[i]
        if packet.leads != 0:
            tables.counts.reports += 1
            if is_checked:
                source = NONE32 if is_relay(tables, packet.row) else sources[packet.row]
            arrival: u32 = account(sequences, packet.node_id, packet.sequence, packet.mark, now_ns, source)
            fresh = 1
            if arrival != NEW:
                fresh = as_u32(is_fresh_after_all(tables, sequences, packet, arrival))
        packet.fresh = fresh
        if packet.kind | packet.dropped != STACK:
            packet.route = NONE32
            prefetch_single(tables, packet)
        elif fresh != 0:
            units: u64 = units_of(as_u64(packet.ip_bytes))
            cell = touch_flow(tables, reference(packet.key[0]), packet.hash, tables.batch.now_ns, units)
            packet.cell = address(cell)
            packet.route = cell.route
            if cell.route != NONE32:
                prefetch_window(tables, tables.topology.link_count + as_u64(cell.route))
                prefetch(reference(tables.routes.cells[as_u64(cell.route)].hash))
                prefetch(reference(hops_of(tables, cell.route)[0].name))
        i += 1


@kernel(inline=True)
def find_links(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Find each hop's switch and egress link, and prefetch the links' windows."""
    index: u32 = packet.first_hop
    end: u32 = index + packet.hop_count
    if packet.route != NONE32:
        if same_hops(tables, packet.route, array_at(Hop, address(decoder.hops[index])), packet.hop_count):
            route_hops = hops_of(tables, packet.route)
            i: u64 = 0
            while i < as_u64(packet.hop_count):
                prefetch_window(tables, as_u64(route_hops[i].link))
                i += 1
            return
        packet.route = NONE32
    while index < end:
        hop = decoder.hops[index]
        hop.switch = find_switch(tables, hop.node_id)
        hop.link = NONE32
        if hop.switch != NONE32:
            hop.link = link_by_port(tables, hop.switch, egress_of(hop))
            if hop.link != NONE32:
                prefetch_window(tables, as_u64(hop.link))
        index += 1


@kernel(inline=False)
def find_links_again(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Find each hop's switch and egress link."""
    find_links(tables, decoder, packet)
