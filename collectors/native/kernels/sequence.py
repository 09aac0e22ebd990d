"""Sequence accounting as in `collectors.reference.sequence`; a ring of bits marks the numbers seen."""

from __future__ import annotations

from collectors.native.structures import NONE32, TrackerCell
from collectors.native.tables import SequenceTable
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    i64,
    kernel,
    load_be64,
    load_u64,
    offset,
    u8,
    u32,
    u64,
)
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry

NEW = 0
LATE = 1
TOO_OLD = 2
REPEATED = 3
RESTART = 4
FAR_AHEAD = 5
CONTESTED = 6
"""The values of `collectors.decode.sequence.Arrival`, in its order."""
FIRST = 7
"""The reporter has no account, and gets none."""
ELSEWHERE = 8
"""The report may come from elsewhere than the account's source: the account is unchanged."""

MODULUS = 1 << 22
HALF = 1 << 21
HASH = 0x9E37_79B9_7F4A_7C15
HEADER_BYTES = 8
FACTOR = 0xD134_2543_DE82_EF95


@kernel(inline=True)
def content_mark(data: Array[u8], length: u64) -> u32:
    """Return what `collectors.decode.sequence.content_mark` does, of a payload of 8 bytes or more."""
    total: u64 = load_be64(data, length - 8) + length
    words: u64 = (length - HEADER_BYTES) >> 3
    body = offset(data, HEADER_BYTES)
    word: u64 = 0
    while word < words:
        total += load_u64(body, word << 3)
        word += 1
    return as_u32(total * FACTOR >> 32)


@kernel(inline=True)
def ahead_of(sequence: u64, newest: u64) -> i64:
    """Return how far a number is ahead of the newest, modulo 2**22, half of it behind."""
    return as_i64((sequence - newest + HALF) & (MODULUS - 1)) - HALF


@kernel
def observe(sequences: SequenceTable, node_id: u32, first_word: u32, mark: u32, now_ns: u64) -> u32:
    """Account a report packet by the first word of its group header, wherever it came from."""
    arrival: u32 = account(sequences, node_id, first_word, mark, now_ns, NONE32)
    if arrival == FIRST:
        add_tracker(sequences, key_of(node_id, first_word), as_u64(first_word) & (MODULUS - 1), mark, now_ns)
        return NEW
    return arrival


@kernel(inline=True)
def key_of(node_id: u32, first_word: u32) -> u64:
    """Return the key of a reporter's account: hardware id and node id."""
    return as_u64((first_word >> 22) & 0x3F) << 32 | as_u64(node_id)


@kernel(inline=False)
def note_source(sequences: SequenceTable, node_id: u32, first_word: u32, source: u32) -> None:
    """Note from which address the reports of an account come."""
    key: u64 = key_of(node_id, first_word)
    i: u64 = 0
    while i < sequences.count:
        if sequences.trackers[i].key == key:
            sequences.trackers[i].source = source
        i += 1


@kernel(inline=True)
def account(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable, node_id: u32, first_word: u32, mark: u32, now_ns: u64, source: u32
) -> u32:
    """Account a report packet that came from an address, NONE32: any; most are the next of a reporter that is known."""
    key: u64 = key_of(node_id, first_word)
    sequence: u64 = as_u64(first_word) & (MODULUS - 1)
    mixed: u64 = key * HASH
    index: u64 = home_of(mixed, sequences.mask)
    while True:
        index = next_alike(sequences.index, sequences.mask, index, mixed)
        entry: u64 = sequences.index[index] & LOW32
        if entry == 0:
            return FIRST
        number: u64 = entry - 1
        tracker = sequences.trackers[number]
        if tracker.key == key:
            if tracker.source != source and source != NONE32:  # noqa: PLR1714 - kernels have no `in`
                return ELSEWHERE
            sequences.touches += 1
            tracker.touched = sequences.touches
            words: u64 = number * (sequences.ring // 64)
            seen = offset(sequences.seen, words)
            if tracker.has_before == 0 and (tracker.newest + 1) & (MODULUS - 1) == sequence:
                take_next(sequences, tracker, seen, offset(sequences.marks, words << 6), mark, now_ns)
                return NEW
            return track(sequences, tracker, seen, words, sequence, mark, now_ns)
        index = (index + 1) & sequences.mask


@kernel(inline=True)
def take_next(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], marks: Array[u32], mark: u32, now_ns: u64
) -> None:
    """Account the number that follows the newest; a restart near 0 is never one step ahead."""
    tracker.heard_ns = now_ns
    tracker.repeats = 0
    tracker.jump = NONE32
    tracker.received += 1
    tracker.newest += 1
    note_seen(sequences, seen, marks, tracker.newest, mark)


@kernel(inline=False)
def add_tracker(sequences: SequenceTable, key: u64, sequence: u64, mark: u32, now_ns: u64) -> None:
    """Begin an account; if there is no room, evict the reporter unheard for longest."""
    number: u64 = sequences.count
    i: u64 = 1
    if number == sequences.most:
        number = 0
        while i < sequences.count:
            if sequences.trackers[i].touched < sequences.trackers[number].touched:
                number = i
            i += 1
        sequences.forgotten += 1
    else:
        sequences.count += 1
    tracker = sequences.trackers[number]
    tracker.key = key
    tracker.source = NONE32
    tracker.received = 0
    tracker.lost = 0
    tracker.late = 0
    tracker.duplicate = 0
    tracker.contested = 0
    tracker.restarts = 0
    tracker.has_before = 0
    sequences.touches += 1
    tracker.touched = sequences.touches
    begin(sequences, tracker, offset(sequences.seen, number * (sequences.ring // 64)), sequence, mark, now_ns)
    index: u64 = 0
    while index <= sequences.mask:
        sequences.index[index] = 0
        index += 1
    i = 0
    while i < sequences.count:
        put_entry(sequences.index, sequences.mask, sequences.trackers[i].key * HASH, i + 1)
        i += 1


@kernel
def begin(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], sequence: u64, mark: u32, now_ns: u64
) -> None:
    """Restart the count from a number on."""
    tracker.first = sequence
    tracker.newest = sequence
    clear_all(sequences, seen)
    note_seen(sequences, seen, marks_of(sequences, seen), sequence, mark)
    tracker.last_repeat = NONE32
    tracker.repeats = 0
    tracker.jump = NONE32
    tracker.has_ended = 0
    tracker.heard_ns = now_ns
    tracker.received += 1


@kernel(inline=True)
def clear_all(sequences: SequenceTable, seen: Array[u64]) -> None:
    """Forget which numbers came."""
    word: u64 = 0
    while word < sequences.ring // 64:
        seen[word] = 0
        word += 1


@kernel(inline=True)
def note_seen(sequences: SequenceTable, seen: Array[u64], marks: Array[u32], number: u64, mark: u32) -> None:
    """Note that a number came, with its content."""
    bit: u64 = number & (sequences.ring - 1)
    seen[bit >> 6] |= as_u64(1) << (bit & 63)
    marks[bit] = mark


@kernel(inline=True)
def marks_of(sequences: SequenceTable, seen: Array[u64]) -> Array[u32]:
    """Return the marks of the tracker that has these bits: a bit there is 32 here."""
    return array_at(u32, address(sequences.marks) + ((address(seen) - address(sequences.seen)) << 5))


@kernel(inline=False)
def track(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], words: u64, sequence: u64, mark: u32, now_ns: u64
) -> u32:
    """Account a number of a known reporter."""
    if tracker.has_ended != 0:
        tracker.has_before = 0
        begin(sequences, tracker, seen, sequence, mark, now_ns)
        return NEW
    if tracker.has_before != 0:
        reconsider(sequences, tracker, seen, words, sequence)
    if tracker.jump != NONE32:
        confirm_jump(sequences, tracker, seen, sequence)
    ahead: i64 = ahead_of(sequence, tracker.newest)
    if ahead == 1:
        take_next(sequences, tracker, seen, marks_of(sequences, seen), mark, now_ns)
        return NEW
    silent_ns: u64 = now_ns - tracker.heard_ns
    tracker.heard_ns = now_ns
    return track_others(sequences, tracker, seen, words, sequence, mark, now_ns, ahead, silent_ns)


@kernel(inline=False)
def track_others(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable,
    tracker: TrackerCell,
    seen: Array[u64],
    words: u64,
    sequence: u64,
    mark: u32,
    now_ns: u64,
    ahead: i64,
    silent_ns: u64,
) -> u32:
    """Account a number that is not the next."""
    if is_restart(sequences, sequence, ahead, silent_ns):
        tracker.before_first = tracker.first
        tracker.before_newest = tracker.newest
        tracker.before_mark = marks_of(sequences, seen)[sequence & (sequences.ring - 1)]
        before = offset(sequences.before_seen, words)
        word: u64 = 0
        while word < sequences.ring // 64:
            before[word] = seen[word]
            word += 1
        tracker.restarts += 1
        begin(sequences, tracker, seen, sequence, mark, now_ns)
        tracker.has_before = 1
        return RESTART
    if ahead > 0 and as_u64(ahead) >= sequences.window:
        tracker.late += 1
        tracker.jump = as_u32(sequence)
        tracker.jump_mark = mark
        return FAR_AHEAD
    if ahead > 0:
        tracker.repeats = 0
        advance(sequences, tracker, seen, as_u64(ahead), mark)
        return NEW
    behind: u64 = as_u64(-ahead)
    if behind >= sequences.window:
        if is_long_run(sequences, tracker, sequence):
            tracker.restarts += 1
            begin(sequences, tracker, seen, sequence, mark, now_ns)
            return RESTART
        tracker.late += 1
        return TOO_OLD
    bit: u64 = (tracker.newest - behind) & (sequences.ring - 1)
    if seen[bit >> 6] >> (bit & 63) & 1 != 0:
        return repeat(sequences, tracker, seen, sequence, mark, now_ns)
    tracker.repeats = 0
    return fill_gap(sequences, tracker, seen, behind, mark)


@kernel(inline=True)
def is_restart(sequences: SequenceTable, sequence: u64, ahead: i64, silent_ns: u64) -> bool:
    """Distinguish a restart near 0 from a wrap, a loss or a repetition: by distance or by silence."""
    if sequence >= sequences.window:
        return False
    if ahead > 0:
        return as_u64(ahead) > sequences.largest_gap
    return as_u64(-ahead) >= sequences.window or silent_ns > sequences.silence_ns


@kernel
def advance(sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], ahead: u64, mark: u32) -> None:
    """Skip numbers that did not come."""
    tracker.lost += ahead - 1
    tracker.received += 1
    if ahead >= sequences.ring:
        clear_all(sequences, seen)
    else:
        number: u64 = tracker.newest + 1
        while number != tracker.newest + ahead:
            bit: u64 = number & (sequences.ring - 1)
            seen[bit >> 6] &= ~(as_u64(1) << (bit & 63))
            number += 1
    tracker.newest += ahead
    note_seen(sequences, seen, marks_of(sequences, seen), tracker.newest, mark)


@kernel
def fill_gap(sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], behind: u64, mark: u32) -> u32:
    """Take a number that was skipped: lost until now, or before the first received."""
    number: u64 = tracker.newest - behind
    note_seen(sequences, seen, marks_of(sequences, seen), number, mark)
    tracker.received += 1
    if as_i64(number - tracker.first) < 0:
        tracker.lost += tracker.first - number - 1
        tracker.first = number
        return NEW
    tracker.lost -= 1
    tracker.late += 1
    return LATE


@kernel
def is_long_run(sequences: SequenceTable, tracker: TrackerCell, sequence: u64) -> bool:
    """Count numbers seen before, or possibly so, in ascending order: a long enough run restarts the account there."""
    follows: bool = sequence == (as_u64(tracker.last_repeat) + 1) & (MODULUS - 1)
    tracker.repeats = tracker.repeats + 1 if follows else 1
    tracker.last_repeat = as_u32(sequence)
    return as_u64(tracker.repeats) >= sequences.most_repeats


@kernel
def repeat(  # noqa: PLR0917 - kernels have no keywords
    sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], sequence: u64, mark: u32, now_ns: u64
) -> u32:
    """Count a repeated number; a run of them in order, with other content, is a restart."""
    marks = marks_of(sequences, seen)
    index: u64 = sequence & (sequences.ring - 1)
    if marks[index] == mark:
        tracker.duplicate += 1
        return REPEATED
    if is_long_run(sequences, tracker, sequence):
        tracker.restarts += 1
        begin(sequences, tracker, seen, sequence, mark, now_ns)
        return RESTART
    marks[index] = mark
    tracker.contested += 1
    return CONTESTED


@kernel(inline=False)
def confirm_jump(sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], sequence: u64) -> None:
    """Trust a number far ahead once the very next report follows it: the numbers between were lost."""
    jump: u64 = as_u64(tracker.jump)
    tracker.jump = NONE32
    ahead: i64 = ahead_of(sequence, jump)
    if ahead > 0 and as_u64(ahead) < sequences.window:
        tracker.late -= 1
        advance(sequences, tracker, seen, as_u64(ahead_of(jump, tracker.newest)), tracker.jump_mark)


@kernel(inline=False)
def reconsider(sequences: SequenceTable, tracker: TrackerCell, seen: Array[u64], words: u64, sequence: u64) -> None:
    """Undo a restart when the very next report continues the earlier numbers: it was a stray late report."""
    tracker.has_before = 0
    ahead: i64 = ahead_of(sequence, tracker.newest)
    if ahead > 0 and as_u64(ahead) < sequences.window:
        return
    before: i64 = ahead_of(sequence, tracker.before_newest)
    if before <= 0 or as_u64(before) > sequences.largest_gap:
        return
    marks_of(sequences, seen)[tracker.newest & (sequences.ring - 1)] = tracker.before_mark
    tracker.first = tracker.before_first
    tracker.newest = tracker.before_newest
    kept = offset(sequences.before_seen, words)
    word: u64 = 0
    while word < sequences.ring // 64:
        seen[word] = kept[word]
        word += 1
    tracker.restarts -= 1
    tracker.received -= 1
    tracker.late += 1
