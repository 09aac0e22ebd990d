"""Table of flows, indexed by open addressing; when it is full, a light flow is evicted.

The candidate is the lightest of the next few cells in turn, of equal ones the one touched longest ago: the lightest of
all in a table with no more than those. `collectors.state.admission` decides whether a newcomer replaces it.
"""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key, same_key
from collectors.native.structures import KEY_WORDS, NONE32, NONE64, RATE_SLOTS, FlowCell
from collectors.native.tables import TelemetryTables
from collectors.state.admission import LARGEST_WEIGHT, UNIT_BYTES
from collectors.state.gaps import CHANCE
from dataplane.native import (
    Array,
    address,
    as_i64,
    as_u32,
    as_u64,
    i64,
    kernel,
    offset,
    prefetch,
    reference,
    u32,
    u64,
    view,
)
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry, remove_entry

CANDIDATES = 16
FRAMING_BYTES = 38
"""`collectors.statistics.rate.FRAMING_BYTES`."""


@kernel(inline=True)
def prefetch_index(tables: TelemetryTables, mixed: u64) -> None:
    """Prefetch a flow's slot of the index."""
    prefetch(offset(tables.flows.index, home_of(mixed, tables.flows.mask)))


@kernel(inline=True)
def prefetch_flow(tables: TelemetryTables, mixed: u64) -> None:
    """Prefetch the cell that the index most likely leads to."""
    number: u64 = tables.flows.index[home_of(mixed, tables.flows.mask)] & LOW32
    if number != 0:
        cell = tables.flows.cells[number - 1]
        prefetch(reference(cell.heard_ns))
        prefetch(reference(cell.first_ns))
        prefetch(reference(cell.stamp_ns))


@kernel(inline=True)
def find_flow(tables: TelemetryTables, key: Array[u64], mixed: u64) -> FlowCell:
    """Return a flow's cell as it is, or null."""
    flows = tables.flows
    slot: u64 = home_of(mixed, flows.mask)
    while True:
        slot = next_alike(flows.index, flows.mask, slot, mixed)
        number: u64 = flows.index[slot] & LOW32
        if number == 0:
            return view(FlowCell, 0)
        cell = flows.cells[number - 1]
        if same_key(cell, key):
            return cell
        slot = (slot + 1) & flows.mask


@kernel(inline=True)
def touch_flow(tables: TelemetryTables, key: Array[u64], mixed: u64, now_ns: u64, units: u64) -> FlowCell:
    """Return a flow's cell, marked as seen now; after a long silence it has neither path nor rate.

    `units` is the packet's weight if its flow asks for admission; see `is_passing` for flows not admitted.
    """
    tables.flows.touches += 1
    flows = tables.flows
    slot: u64 = home_of(mixed, flows.mask)
    while True:
        slot = next_alike(flows.index, flows.mask, slot, mixed)
        number: u64 = flows.index[slot] & LOW32
        if number == 0:
            return add_flow(tables, key, mixed, now_ns, units)
        cell = flows.cells[number - 1]
        if same_key(cell, key):
            if now_ns > cell.heard_ns + tables.limits.forget_ns:
                forget(cell)
                cell.weight = 0
            cell.heard_ns = max(cell.heard_ns, now_ns)
            cell.touched = as_u32(flows.touches)
            return cell
        slot = (slot + 1) & flows.mask


@kernel(inline=True)
def forget(cell: FlowCell) -> None:
    """Clear a flow except for its key."""
    cell.path_ns = 0
    cell.source_ns = NONE64
    cell.route = NONE32
    cell.source_host = NONE32
    cell.target_host = NONE32
    cell.first_ns = NONE64
    cell.rate_ns = 0
    i: u64 = 0
    while i < RATE_SLOTS:
        cell.rate_bytes[i] = 0
        i += 1
    cell.stamp_ns = NONE64
    cell.gap_mean = 0
    cell.gap_variation = CHANCE
    cell.known_mean = 0
    cell.gap_count = 0


@kernel(inline=False)
def add_flow(tables: TelemetryTables, key: Array[u64], mixed: u64, now_ns: u64, units: u64) -> FlowCell:
    """Make a cell for a flow, or free that of a lighter one; the cell of passing packets if it is not admitted."""
    number: u64 = tables.flows.count
    cell = tables.flows.cells[number]
    if number == tables.flows.most:
        # Beyond the last flow's cell: written, but never looked up.
        forget(cell)
        number = make_room(tables, now_ns, units)
        if number == tables.flows.most:
            return cell
        cell = tables.flows.cells[number]
    else:
        tables.flows.count += 1
        cell.weight = 0
    cell.weight_epoch = epoch_now(tables, now_ns)
    i: u64 = 0
    while i < KEY_WORDS:
        cell.key[i] = key[i]
        i += 1
    forget(cell)
    cell.heard_ns = now_ns
    cell.touched = as_u32(tables.flows.touches)
    put_entry(tables.flows.index, tables.flows.mask, mixed, number + 1)
    return cell


@kernel(inline=True)
def is_passing(tables: TelemetryTables, cell: FlowCell) -> bool:
    """Return whether a cell is for packets whose flow was not admitted: nothing of it is kept."""
    return address(cell) == address(tables.flows.cells[tables.flows.most])


@kernel(inline=True)
def epoch_now(tables: TelemetryTables, now_ns: u64) -> u32:
    """Return the number of the epoch of weights (`collectors.state.admission.epoch_of`)."""
    if now_ns - tables.flows.epoch_begins_ns >= tables.limits.forget_ns:  # wraps for times before
        find_epoch(tables, now_ns)
    return tables.flows.epoch


@kernel(inline=False)
def find_epoch(tables: TelemetryTables, now_ns: u64) -> None:
    """Set the epoch of a time; it also serves the packets that follow."""
    number: u64 = now_ns // tables.limits.forget_ns
    tables.flows.epoch = as_u32(number)
    tables.flows.epoch_begins_ns = number * tables.limits.forget_ns


@kernel(inline=True)
def weight_of(tables: TelemetryTables, cell: FlowCell, now_ns: u64) -> u32:
    """Return a flow's present weight: 0 once it was unheard of for long."""
    if now_ns > cell.heard_ns + tables.limits.forget_ns:
        return 0
    epoch: u32 = epoch_now(tables, now_ns)
    return cell.weight >> (epoch - min(cell.weight_epoch, epoch))


@kernel(inline=True)
def add_weight(tables: TelemetryTables, cell: FlowCell, units: u64) -> None:
    """Add a packet to its flow's weight."""
    epoch: u32 = epoch_now(tables, tables.batch.now_ns)
    if cell.weight_epoch != epoch:
        cell.weight = weight_of(tables, cell, tables.batch.now_ns)
        cell.weight_epoch = epoch
    cell.weight = as_u32(min(as_u64(cell.weight) + units, LARGEST_WEIGHT))


@kernel(inline=True)
def units_of(nbytes: u64) -> u64:
    """Return the weight of a packet of `nbytes`, excluding its framing."""
    return (nbytes + FRAMING_BYTES + UNIT_BYTES - 1) // UNIT_BYTES


@kernel(inline=False)
def make_room(tables: TelemetryTables, now_ns: u64, units: u64) -> u64:
    """Take the lightest flow, of the next few in turn, out of the index if the newcomer is admitted in its place.

    Return its cell, which keeps its weight; as many as there may be if the newcomer is not admitted.
    """
    chosen: u64 = tables.flows.hand
    lightest: u32 = weight_of(tables, tables.flows.cells[chosen], now_ns)
    left: u64 = min(CANDIDATES, tables.flows.count)
    while left > 0:
        cell = tables.flows.cells[tables.flows.hand]
        weight: u32 = weight_of(tables, cell, now_ns)
        # Compare ages, as the counter wraps.
        age: u32 = as_u32(tables.flows.touches) - cell.touched
        older: bool = age > as_u32(tables.flows.touches) - tables.flows.cells[chosen].touched
        if weight < lightest or (weight == lightest and older):
            chosen = tables.flows.hand
            lightest = weight
        tables.flows.hand = 0 if tables.flows.hand + 1 == tables.flows.count else tables.flows.hand + 1
        left -= 1
    tables.flows.credit += units
    if tables.flows.credit < as_u64(lightest):
        tables.counts.flows_not_admitted += as_u64(units != 0)
        return tables.flows.most
    tables.flows.credit = 0
    cell = tables.flows.cells[chosen]
    cell.weight = lightest
    if now_ns <= cell.heard_ns + tables.limits.forget_ns:
        tables.counts.flows_forgotten += 1
    remove_entry(tables.flows.index, tables.flows.mask, hash_key(reference(cell.key[0])), chosen + 1)
    return chosen


@kernel(inline=True)
def count_packet(tables: TelemetryTables, cell: FlowCell, ip_bytes: u64, source_ns: u64) -> None:
    """Count a measured packet of a flow in its weight and rate, by when it was sent (`collectors.statistics.rate`)."""
    add_weight(tables, cell, units_of(ip_bytes))
    at_ns: u64 = tables.batch.now_ns
    if cell.first_ns == NONE64:
        cell.first_ns = tables.batch.now_ns
        cell.rate_ns = tables.batch.now_ns
    elif source_ns != NONE64 and cell.source_ns != NONE64:  # noqa: PLR1714 - kernels have no `in`
        at_ns = sent_ns(tables, cell, as_i64(source_ns - cell.source_ns))
    newest: u64 = rate_slot_at(tables, cell.rate_ns)
    number: u64 = rate_slot_at(tables, at_ns)
    if at_ns > cell.rate_ns:
        cell.rate_ns = at_ns
        if number != newest:
            step_slots(cell, newest, number)
    elif number + RATE_SLOTS <= newest:
        return
    slot: u64 = number & (RATE_SLOTS - 1)
    total: u64 = as_u64(cell.rate_bytes[slot]) + ip_bytes + FRAMING_BYTES
    cell.rate_bytes[slot] = as_u32(min(total, LOW32))


@kernel(inline=True)
def rate_slot_at(tables: TelemetryTables, at_ns: u64) -> u64:
    """Return the number of a time's slot of a rate, without a division where it is the slot of the time before."""
    if at_ns - tables.flows.slot_begins_ns >= tables.flows.rate_slot_ns:  # wraps for those before
        find_rate_slot(tables, at_ns)
    return tables.flows.slot


@kernel(inline=False)
def find_rate_slot(tables: TelemetryTables, at_ns: u64) -> None:
    """Set the rate slot of a time; it also serves the packets that follow."""
    tables.flows.slot = at_ns // tables.flows.rate_slot_ns
    tables.flows.slot_begins_ns = tables.flows.slot * tables.flows.rate_slot_ns


@kernel(inline=True)
def sent_ns(tables: TelemetryTables, cell: FlowCell, between_ns: i64) -> u64:
    """Return when a packet was sent, given how far its stamp is after the flow's path's; now, if implausible."""
    off_ns: i64 = between_ns - as_i64(tables.batch.now_ns - cell.path_ns)
    lead_ns: i64 = as_i64(tables.flows.rate_lead_ns)
    if off_ns > lead_ns or off_ns < -lead_ns:
        return tables.batch.now_ns
    at_ns: i64 = max(as_i64(cell.rate_ns) + between_ns, 0)
    return as_u64(at_ns) if at_ns <= as_i64(tables.batch.now_ns) + lead_ns else tables.batch.now_ns


@kernel(inline=False)
def step_slots(cell: FlowCell, newest: u64, number: u64) -> None:
    """Empty the slots of the rate that begin again."""
    steps: u64 = min(number - newest, RATE_SLOTS)
    while steps > 0:
        steps -= 1
        cell.rate_bytes[(number - steps) & (RATE_SLOTS - 1)] = 0


@kernel
def take_packet(tables: TelemetryTables, key: Array[u64], ip_bytes: u64, source_ns: u64) -> None:
    """Note a measured packet of a flow."""
    cell = touch_flow(tables, key, hash_key(key), tables.batch.now_ns, units_of(ip_bytes))
    count_packet(tables, cell, ip_bytes, source_ns)
