"""Windows of samples, as in `collectors.statistics.window`: slots of log buckets, best source, readings of load."""

from __future__ import annotations

from collectors.native.structures import (
    NONE24,
    NONE32,
    NONE64,
    TX_SLOTS,
    WINDOW_SLOTS,
    FiguresCell,
    SlotCell,
    WindowCell,
)
from collectors.native.tables import TelemetryTables
from collectors.statistics.sketch import BUCKETS, EXACT_BELOW, SUB_BITS
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    count_leading_zeros,
    kernel,
    offset,
    prefetch,
    reference,
    stack_array,
    u32,
    u64,
)

LAST_BUCKET = BUCKETS - 1
NOTED_ROOM = 1024
"""Maximum number of delays waiting to be counted."""
ROW = BUCKETS * WINDOW_SLOTS + 16 * 7
"""Counts of a window, and an odd number of lines between two: like buckets of all windows must not share few sets of
the cache."""


@kernel
def begin_batch(tables: TelemetryTables, now_ns: u64) -> None:
    """Set the time of samples, and its slots."""
    tables.batch.begun += 1
    tables.batch.now_ns = now_ns
    tables.batch.slot_number = now_ns // tables.windows.slot_ns
    tables.batch.slot_begins_ns = tables.batch.slot_number * tables.windows.slot_ns
    tables.batch.clock_slot = tables.batch.slot_number + 1
    tables.batch.tx_number = now_ns // tables.windows.tx_window_ns
    tables.batch.tx_begins_ns = tables.batch.tx_number * tables.windows.tx_window_ns
    recent_ns: u64 = min(now_ns - tables.batch.slot_begins_ns, now_ns - tables.batch.tx_begins_ns)
    oldest_ns: u64 = min(tables.limits.stale_ns, tables.windows.window_ns)
    tables.batch.calm_ns = min(recent_ns, oldest_ns)


@kernel(inline=True)
def bucket_of(number: u64) -> u64:
    """Return the bucket that a number falls into."""
    if number < EXACT_BELOW:
        return number
    shift: u64 = 63 - SUB_BITS - count_leading_zeros(number)
    return min((shift << SUB_BITS) + (number >> shift), LAST_BUCKET)


@kernel(inline=True)
def middle_of(bucket: u64) -> u64:
    """Return the number in the middle of a bucket."""
    if bucket < EXACT_BELOW:
        return bucket
    shift: u64 = (bucket >> SUB_BITS) - 1
    return ((bucket - (shift << SUB_BITS)) << shift) + (as_u64(1) << (shift - 1))


@kernel(inline=True)
def ones_if(truth: bool) -> u64:
    """Return all ones or 0: a choice without a branch, where the order of packets makes branches unpredictable."""
    return 0 - as_u64(truth)


@kernel(inline=True)
def beyond(first: u64, other: u64) -> u64:
    """Return by how much one number is greater than another, 0 if it is not; without a branch."""
    return (first - other) & ones_if(first > other)


@kernel(inline=True)
def count_index(bucket: u64, column: u64) -> u64:
    """Return the index of a slot's bucket among a window's counts."""
    return ((bucket >> 4) * WINDOW_SLOTS + column) * 16 + (bucket & 15)


@kernel(inline=True)
def buckets_of(tables: TelemetryTables, row: u64) -> Array[u32]:
    """Return the address of a window's counts."""
    return offset(tables.windows.buckets, row * ROW)


@kernel(inline=False)
def settle_counts(tables: TelemetryTables) -> None:
    """Count the delays noted by `note_count`; a caller that adds to windows calls this before it returns."""
    noted = tables.windows.noted
    count: u64 = tables.windows.noted_count
    tables.windows.noted_count = 0
    i: u64 = 0
    while i < count:
        there = array_at(u32, noted[i])
        there[0] += 1
        i += 1


@kernel(inline=True)
def note_count(tables: TelemetryTables, there: Array[u32]) -> None:
    """Count a delay in a bucket, later: it comes into the cache meanwhile."""
    prefetch(there)
    if tables.windows.noted_count == NOTED_ROOM:
        settle_counts(tables)
    tables.windows.noted[tables.windows.noted_count] = address(there)
    tables.windows.noted_count += 1


@kernel(inline=False)
def clear_delays(tables: TelemetryTables, slot: SlotCell, buckets: Array[u32], column: u64) -> None:
    """Forget a slot's delays."""
    settle_counts(tables)
    if slot.delays != 0:
        bucket: u64 = bucket_of(slot.least)
        while bucket <= bucket_of(slot.greatest):
            buckets[count_index(bucket, column)] = 0
            bucket += 1
    slot.delays = 0
    slot.total = 0
    slot.greatest = 0
    slot.least = NONE64
    slot.source = 0


@kernel(inline=False)
def clear_slot(tables: TelemetryTables, slot: SlotCell, buckets: Array[u32], column: u64, number: u64) -> None:
    """Reset a slot."""
    clear_delays(tables, slot, buckets, column)
    slot.newest_ns = 0
    slot.queue_total = 0
    slot.queues = 0
    slot.number = number + 1


@kernel(inline=True)
def prefetch_window(tables: TelemetryTables, row: u64) -> None:
    """Prefetch the parts of a window that a sample of now changes, except its counts."""
    window = tables.windows.cells[row]
    prefetch(reference(window.slots[tables.batch.slot_number & (WINDOW_SLOTS - 1)].number))


@kernel
def clear_window(tables: TelemetryTables, row: u64) -> None:
    """Clear a window."""
    window = tables.windows.cells[row]
    buckets = buckets_of(tables, row)
    tables.windows.touched[row] = 1
    column: u64 = 0
    while column < WINDOW_SLOTS:
        clear_slot(tables, window.slots[column], buckets, column, 0)
        window.slots[column].number = 0
        column += 1
    reading: u64 = 0
    while reading < TX_SLOTS:
        window.tx[reading].number = 0
        reading += 1
    window.newest_slot = 0
    window.tx_newest = 0
    window.known = 0


@kernel(inline=False)
def open_slot(tables: TelemetryTables, row: u64, number: u64) -> bool:
    """Prepare a slot for a sample; False when it is from before the window."""
    window = tables.windows.cells[row]
    if number + WINDOW_SLOTS <= window.newest_slot:
        return False
    column: u64 = number & (WINDOW_SLOTS - 1)
    if window.slots[column].number != number + 1:
        clear_slot(tables, window.slots[column], buckets_of(tables, row), column, number)
        window.buffer_totals[column] = 0
        window.buffers[column] = 0
        window.newest_slot = max(window.newest_slot, number)
        window.known = 1
    return True


@kernel(inline=True)
def add_to_window(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, row: u64, at_ns: u64, delay_ns: u64, source: u32, queue: u32, tx_bytes: u32, buffer: u32
) -> bool:
    """Take a sample of a time that is not after the batch's; False when it is from before the window.

    Occupancies are the low 24 bits of `queue` and `buffer`, none if all of these are set.
    """
    window = tables.windows.cells[row]
    number: u64 = tables.batch.slot_number
    if at_ns < tables.batch.slot_begins_ns:
        number = at_ns // tables.windows.slot_ns
    column: u64 = number & (WINDOW_SLOTS - 1)
    slot = window.slots[column]
    # A sample of now is not late, and changes only the lines of its slot, its count and its reading.
    if (number != tables.batch.slot_number or slot.number != number + 1) and not open_slot(tables, row, number):
        return False
    tables.windows.touched[row] = 1
    slot.newest_ns = at_ns + beyond(slot.newest_ns, at_ns)
    if delay_ns != NONE64:
        add_delay(tables, row, slot, column, delay_ns, source)
    add_load(window, slot, column, queue, buffer)
    if tx_bytes != NONE32:
        add_tx(tables, window, at_ns, as_u64(tx_bytes))
    return True


@kernel(inline=True)
def calm_slot(tables: TelemetryTables, row: u64) -> SlotCell:
    """Return the slot for a sample taken now; valid only if it has the current slot's number."""
    return tables.windows.cells[row].slots[tables.batch.slot_number & (WINDOW_SLOTS - 1)]


@kernel(inline=True)
def add_queue(slot: SlotCell, queue: u32) -> None:
    """Take the occupancy of a queue."""
    if queue & NONE24 != NONE24:
        slot.queue_total += as_u64(queue & NONE24)
        slot.queues += 1


@kernel(inline=True)
def add_load(window: WindowCell, slot: SlotCell, column: u64, queue: u32, buffer: u32) -> None:
    """Take the occupancies of a queue and of a buffer."""
    add_queue(slot, queue)
    if buffer & NONE24 != NONE24:
        window.buffer_totals[column] += as_u64(buffer & NONE24)
        window.buffers[column] += 1


@kernel(inline=True)
def add_delay(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, row: u64, slot: SlotCell, column: u64, delay_ns: u64, source: u32
) -> None:
    """Take a delay unless the slot has better ones; a better one replaces those before it."""
    if slot.source != source:
        if source < slot.source:
            return
        clear_delays(tables, slot, buckets_of(tables, row), column)
        slot.source = source
    count_delay(tables, row, slot, column, delay_ns)


@kernel(inline=True)
def count_delay(tables: TelemetryTables, row: u64, slot: SlotCell, column: u64, delay_ns: u64) -> None:
    """Take a delay from the slot's source."""
    tables.windows.touched[row] = 1
    slot.delays += 1
    slot.total += delay_ns
    # Extremes are rare and easy to foresee: branches cost less than stores.
    if delay_ns < slot.least:  # noqa: PLR1730
        slot.least = delay_ns
    if delay_ns > slot.greatest:  # noqa: PLR1730
        slot.greatest = delay_ns
    note_count(tables, offset(buckets_of(tables, row), count_index(bucket_of(delay_ns), column)))


@kernel(inline=False)
def add_tx_reading(tables: TelemetryTables, window: WindowCell, at_ns: u64, nbytes: u64) -> None:
    """Keep a reading if it is the newest of its window."""
    add_tx(tables, window, at_ns, nbytes)


@kernel(inline=True)
def add_tx(tables: TelemetryTables, window: WindowCell, at_ns: u64, nbytes: u64) -> None:
    """Keep the newest reading of each of the switch's own windows."""
    number: u64 = tables.batch.tx_number
    if at_ns < tables.batch.tx_begins_ns:
        number = at_ns // tables.windows.tx_window_ns
    reading = window.tx[number & (TX_SLOTS - 1)]
    same: bool = reading.number == number + 1
    if number != tables.batch.tx_number or not same:
        if number + TX_SLOTS <= window.tx_newest:
            return
        window.tx_newest = max(window.tx_newest, number)
    before: u64 = ones_if(same & (at_ns < reading.at_ns))
    reading.number = number + 1
    reading.nbytes = nbytes ^ ((nbytes ^ reading.nbytes) & before)
    reading.at_ns = at_ns ^ ((at_ns ^ reading.at_ns) & before)


# ---- figures


@kernel
def read_figures(tables: TelemetryTables, count: u64, figures: Array[FiguresCell], rows: Array[u32]) -> u64:
    """Fill the figures of the windows, among the first `count`, that have changed since; return how many, and which."""
    changed: u64 = 0
    i: u64 = 0
    while i < count:
        if tables.windows.touched[i] != 0:
            tables.windows.touched[i] = 0
            figures[i].known = tables.windows.cells[i].known
            if figures[i].known != 0:
                read_window(tables, i, figures[i])
            rows[changed] = as_u32(i)
            changed += 1
        i += 1
    return changed


@kernel(inline=False)
def read_window(tables: TelemetryTables, row: u64, figures: FiguresCell) -> None:
    """Fill the figures of one window."""
    window = tables.windows.cells[row]
    source: u32 = 0
    figures.samples = 0
    figures.queue_total = 0
    figures.queues = 0
    figures.buffer_total = 0
    figures.buffers = 0
    i: u64 = 0
    while i < WINDOW_SLOTS:
        if is_inside(window, window.slots[i]):
            source = max(source, window.slots[i].source)
        i += 1
    total: u64 = 0
    weighted: u64 = 0
    weights: u64 = 0
    least: u64 = NONE64
    greatest: u64 = 0
    counted = stack_array(u64, WINDOW_SLOTS)
    i = 0
    while i < WINDOW_SLOTS:
        slot = window.slots[i]
        counted[i] = 0
        if is_inside(window, slot):
            figures.queue_total += slot.queue_total
            figures.queues += as_u64(slot.queues)
            figures.buffer_total += window.buffer_totals[i]
            figures.buffers += as_u64(window.buffers[i])
            if slot.source == source and slot.delays != 0:
                counted[i] = 1
                weight: u64 = as_u64(1) << (WINDOW_SLOTS - 1 - (window.newest_slot + 1 - slot.number))
                weighted += weight * (slot.total // as_u64(slot.delays))
                weights += weight
                figures.samples += as_u64(slot.delays)
                total += slot.total
                least = min(least, slot.least)
                greatest = max(greatest, slot.greatest)
        i += 1
    figures.source = as_u64(source)
    figures.newest_ns = newest_of(window)
    figures.tx_mean = tx_mean(tables, window)
    read_newest(window, source, figures)
    figures.greatest = greatest
    if figures.samples != 0:
        figures.mean = total // figures.samples
        figures.weighted = weighted // weights
        if not read_few(window, counted, least, figures):
            read_percentiles(buckets_of(tables, row), counted, least, figures)


@kernel(inline=True)
def newest_of(window: WindowCell) -> u64:
    """Return the time of a window's newest sample."""
    return window.slots[window.newest_slot & (WINDOW_SLOTS - 1)].newest_ns


@kernel(inline=True)
def is_inside(window: WindowCell, slot: SlotCell) -> bool:
    """Return whether a slot is one of the newest."""
    return slot.number + (WINDOW_SLOTS - 1) > window.newest_slot and slot.number != 0


@kernel(inline=False)
def read_few(window: WindowCell, counted: Array[u64], least: u64, figures: FiguresCell) -> bool:
    """Fill the percentiles of a window whose slots have two delays at most; False for any other.

    Their extremes are all their delays, so that no count need be read: most windows of a large fabric are such.
    """
    sorted_buckets = stack_array(u64, 2 * WINDOW_SLOTS)
    count: u64 = 0
    i: u64 = 0
    while i < WINDOW_SLOTS:
        slot = window.slots[i]
        if counted[i] != 0:
            if slot.delays > 2:
                return False
            count = insert(sorted_buckets, count, bucket_of(slot.least))
            if slot.delays == 2:
                count = insert(sorted_buckets, count, bucket_of(slot.greatest))
        i += 1
    half: u64 = (count + 1) // 2
    figures.p50 = figures.greatest
    figures.p99 = figures.greatest
    if half < count:
        figures.p50 = min(max(middle_of(sorted_buckets[half - 1]), least), figures.greatest)
    return True


@kernel(inline=True)
def insert(numbers: Array[u64], count: u64, number: u64) -> u64:
    """Put a number among sorted ones; return how many there are then."""
    place: u64 = count
    while place > 0 and numbers[place - 1] > number:
        numbers[place] = numbers[place - 1]
        place -= 1
    numbers[place] = number
    return count + 1


@kernel(inline=False)
def read_percentiles(buckets: Array[u32], counted: Array[u64], least: u64, figures: FiguresCell) -> None:
    """Fill the median and the 99th percentile: the numbers of nearest rank."""
    half: u64 = (figures.samples + 1) // 2
    most: u64 = (figures.samples * 99 + 99) // 100
    figures.p50 = figures.greatest
    figures.p99 = figures.greatest
    below: u64 = 0
    bucket: u64 = bucket_of(least)
    last: u64 = bucket_of(figures.greatest)
    while bucket <= last and below < most:
        before: u64 = below
        i: u64 = 0
        while i < WINDOW_SLOTS:
            below += counted[i] * as_u64(buckets[count_index(bucket, i)])
            i += 1
        middle: u64 = min(max(middle_of(bucket), least), figures.greatest)
        if before < half and below >= half and half < figures.samples:
            figures.p50 = middle
        if before < most and below >= most and most < figures.samples:
            figures.p99 = middle
        bucket += 1


@kernel(inline=False)
def read_newest(window: WindowCell, source: u32, figures: FiguresCell) -> None:
    """Fill the figures of the newest slots with delays of the source and with queues, and the newest reading."""
    figures.newest_delay_ns = NONE64
    figures.newest_queue_total = 0
    figures.newest_queues = 0
    delays: u64 = 0
    queues: u64 = 0
    i: u64 = 0
    while i < WINDOW_SLOTS:
        slot = window.slots[i]
        if is_inside(window, slot):
            if slot.source == source and slot.delays != 0 and slot.number > delays:
                delays = slot.number
                figures.newest_delay_ns = slot.total // as_u64(slot.delays)
            if slot.queues != 0 and slot.number > queues:
                queues = slot.number
                figures.newest_queue_total = slot.queue_total
                figures.newest_queues = as_u64(slot.queues)
        i += 1
    reading = window.tx[window.tx_newest & (TX_SLOTS - 1)]
    figures.newest_tx = reading.nbytes if reading.number == window.tx_newest + 1 else NONE64


@kernel(inline=False)
def tx_mean(tables: TelemetryTables, window: WindowCell) -> u64:
    """Return the mean of the readings in the window, NONE64 of none; the newest counts however old it is."""
    begins_ns: u64 = 0
    newest_ns: u64 = newest_of(window)
    if newest_ns > tables.windows.window_ns:
        begins_ns = newest_ns - tables.windows.window_ns
    total: u64 = 0
    count: u64 = 0
    i: u64 = 0
    while i < TX_SLOTS:
        reading = window.tx[i]
        if reading.number != 0:
            number: u64 = reading.number - 1
            inside: bool = number + TX_SLOTS > window.tx_newest and number * tables.windows.tx_window_ns >= begins_ns
            if inside or number == window.tx_newest:
                total += reading.nbytes
                count += 1
        i += 1
    return NONE64 if count == 0 else total // count
