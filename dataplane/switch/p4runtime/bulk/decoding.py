"""A kernel that decodes the inserts of a serialized WriteRequest into rows (`dataplane.switch.tables.rows`).

It knows the wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding) and the fields of
p4runtime.proto that rows hold. An update with any other field, a field twice, or an invalid value gets an empty row.
"""

from __future__ import annotations

from dataplane.native import Array, Struct, address, array_at, as_u64, kernel, offset, u8, u64
from dataplane.switch.tables.rows import KEY, PRIORITY, REQUEST, TABLE

EXACT, LPM, TERNARY, OPTIONAL = 2, 4, 3, 7
"""Kinds of fields: their numbers in FieldMatch."""

TABLE_WORDS, FIELD_WORDS, ACTION_WORDS, PARAMETER_WORDS = 6, 3, 3, 2
"""Words of a plan before a table's fields, of a field, before an action's parameters, and of a parameter."""

MALFORMED = (1 << 64) - 1
"""Result for bytes that are no message."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_ARGUMENT_COUNT = KEY - 1
_MAX_PRIORITY = (1 << 31) - 1
_ALL_ONES = (1 << 64) - 1


class Reader(Struct):
    """A place in a message; `bad` once what was read is no message, or none that rows can hold."""

    data: Array[u8]
    at: u64
    bad: u64


@kernel
def read_varint(reader: Reader, end: u64) -> u64:
    """Return the number at the reader's place."""
    value: u64 = 0
    shift: u64 = 0
    while reader.at < end and shift < 64:
        byte = as_u64(reader.data[reader.at])
        reader.at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    reader.bad = 1
    return 0


@kernel
def read_end(reader: Reader, end: u64) -> u64:
    """Return the end of the field whose length is at the reader's place."""
    length = read_varint(reader, end)
    if reader.bad != 0 or length > end - reader.at:
        reader.bad = 1
        reader.at = end
        return end
    return reader.at + length


@kernel
def skip(reader: Reader, end: u64, wire: u64) -> None:
    """Pass over a field's content."""
    if wire == VARINT:
        read_varint(reader, end)
    elif wire == DELIMITED:
        reader.at = read_end(reader, end)
    elif wire == FIXED64 and end - reader.at >= 8:
        reader.at += 8
    elif wire == FIXED32 and end - reader.at >= 4:
        reader.at += 4
    else:
        reader.bad = 1


@kernel
def read_number(reader: Reader, end: u64, width: u64) -> u64:
    """Return a binary string, which reaches to `end`, as a number of at most `width` bits."""
    value: u64 = 0
    if reader.at >= end:
        reader.bad = 1
    while reader.at < end:
        if value >> 56 != 0:
            reader.bad = 1
        value = value << 8 | as_u64(reader.data[reader.at])
        reader.at += 1
    if value >> width != 0:
        reader.bad = 1
    return value


@kernel
def ones(width: u64) -> u64:
    """Return the largest number of that many bits."""
    one: u64 = 1
    return (one << width) - 1


@kernel
def read_value(  # noqa: PLR0917 - kernels have no keywords
    reader: Reader, end: u64, kind: u64, width: u64, cells: Array[u64], pairs: u64
) -> None:
    """Read Exact, LPM, Ternary or Optional into a field's words."""
    seen: u64 = 0
    value: u64 = 0
    second: u64 = 0
    while reader.at < end and reader.bad == 0:
        tag = read_varint(reader, end)
        if tag == 1 << 3 | DELIMITED and seen & 1 == 0:
            seen |= 1
            value = read_number(reader, read_end(reader, end), width)
        elif tag == 2 << 3 | DELIMITED and kind == TERNARY and seen & 2 == 0:
            seen |= 2
            second = read_number(reader, read_end(reader, end), width)
        elif tag == 2 << 3 | VARINT and kind == LPM and seen & 2 == 0:
            seen |= 2
            second = read_varint(reader, end)
        else:
            reader.bad = 1
    mask = second
    if kind == EXACT or kind == OPTIONAL:  # noqa: PLR1714, SIM109 - kernels have no `in`
        mask = ones(width)
        second = mask
    elif kind == LPM:
        if second > width:
            reader.bad = 1
            return
        mask = ones(width) ^ ones(width - second)
    if seen & 1 == 0 or mask == 0 or value & ~mask != 0:
        reader.bad = 1
    cells[0] = value
    if pairs == 2:
        cells[1] = second


@kernel
def read_match(reader: Reader, end: u64, table: Array[u64], row: Array[u64], seen: u64) -> u64:
    """Read a FieldMatch into its words; return the fields seen so far, a bit for each."""
    field_id: u64 = 0
    kind: u64 = 0
    start: u64 = 0
    stop: u64 = 0
    while reader.at < end and reader.bad == 0:
        tag = read_varint(reader, end)
        if tag == 1 << 3 | VARINT and field_id == 0:
            field_id = read_varint(reader, end)
        elif tag & 7 == DELIMITED and kind == 0:
            kind = tag >> 3
            stop = read_end(reader, end)
            start = reader.at
            reader.at = stop
        else:
            reader.bad = 1
    for place in range(table[4]):
        field = offset(table, TABLE_WORDS + FIELD_WORDS * place)
        if field[0] == field_id:
            bit: u64 = 1
            bit = bit << place
            if seen & bit != 0 or field[1] != kind or reader.bad != 0:
                reader.bad = 1
                return seen
            after = reader.at
            reader.at = start
            read_value(reader, stop, kind, field[2], offset(row, KEY + place * table[3]), table[3])
            reader.at = after
            return seen | bit
    reader.bad = 1
    return seen


@kernel
def find_action(table: Array[u64], action_id: u64) -> u64:
    """Return the address of an action's words in a table's plan, 0 if rows cannot hold it."""
    action = offset(table, TABLE_WORDS + FIELD_WORDS * table[4])
    for _ in range(table[5]):
        if action[0] == action_id:
            return address(action)
        action = offset(action, ACTION_WORDS + PARAMETER_WORDS * action[2])
    return 0


@kernel
def read_parameter(reader: Reader, end: u64, action: Array[u64], arguments: Array[u64], seen: u64) -> u64:
    """Read a Param into its argument; return the parameters seen so far, a bit for each."""
    param_id: u64 = 0
    start: u64 = 0
    stop: u64 = 0
    while reader.at < end and reader.bad == 0:
        tag = read_varint(reader, end)
        if tag == 2 << 3 | VARINT and param_id == 0:
            param_id = read_varint(reader, end)
        elif tag == 3 << 3 | DELIMITED and stop == 0:
            stop = read_end(reader, end)
            start = reader.at
            reader.at = stop
        else:
            reader.bad = 1
    for place in range(action[2]):
        parameter = offset(action, ACTION_WORDS + PARAMETER_WORDS * place)
        if parameter[0] == param_id:
            bit: u64 = 1
            bit = bit << place
            if seen & bit != 0 or stop == 0 or reader.bad != 0:
                reader.bad = 1
                return seen
            after = reader.at
            reader.at = start
            arguments[place] = read_number(reader, stop, parameter[1])
            reader.at = after
            return seen | bit
    reader.bad = 1
    return seen


@kernel
def read_action(reader: Reader, end: u64, table: Array[u64], row: Array[u64]) -> None:
    """Read an Action, whose id comes first, into a row."""
    if read_varint(reader, end) != 1 << 3 | VARINT:
        reader.bad = 1
        return
    found = find_action(table, read_varint(reader, end))
    if found == 0:
        reader.bad = 1
        return
    action = array_at(u64, found)
    arguments = offset(row, KEY + table[3] * table[4])
    seen: u64 = 0
    while reader.at < end and reader.bad == 0:
        if read_varint(reader, end) != 4 << 3 | DELIMITED:
            reader.bad = 1
            return
        seen = read_parameter(reader, read_end(reader, end), action, arguments, seen)
    if seen != ones(action[2]):
        reader.bad = 1
    row[REQUEST] = action[1]
    row[_ARGUMENT_COUNT] = action[2]


@kernel
def required_fields(table: Array[u64]) -> u64:
    """Return a bit for each exact field, which cannot be left out."""
    bits: u64 = 0
    for place in range(table[4]):
        if table[TABLE_WORDS + FIELD_WORDS * place + 1] == EXACT:
            bits |= ones(place + 1) ^ ones(place)
    return bits


@kernel
def find_table(plan: Array[u64], table_id: u64) -> u64:
    """Return the address of a table's plan, 0 if rows cannot hold its entries."""
    for number in range(plan[0]):
        table = offset(plan, plan[number + 1])
        if table[0] == table_id:
            return address(table)
    return 0


@kernel
def read_entry(reader: Reader, end: u64, plan: Array[u64], row: Array[u64]) -> None:
    """Read a TableEntry, whose table comes first, into a row."""
    if read_varint(reader, end) != 1 << 3 | VARINT:
        reader.bad = 1
        return
    found = find_table(plan, read_varint(reader, end))
    if found == 0:
        reader.bad = 1
        return
    table = array_at(u64, found)
    fields: u64 = 0
    actions: u64 = 0
    while reader.at < end and reader.bad == 0:
        tag = read_varint(reader, end)
        if tag == 2 << 3 | DELIMITED:
            fields = read_match(reader, read_end(reader, end), table, row, fields)
        elif tag == 3 << 3 | DELIMITED and actions == 0:
            actions = 1
            stop = read_end(reader, end)
            if read_varint(reader, stop) != 1 << 3 | DELIMITED or read_end(reader, stop) != stop:
                reader.bad = 1
                return
            read_action(reader, stop, table, row)
        elif tag == 4 << 3 | VARINT and row[PRIORITY] == 0:
            row[PRIORITY] = read_varint(reader, end)
        else:
            reader.bad = 1
    required = required_fields(table)
    has_priority = row[PRIORITY] != 0
    if actions == 0 or fields & required != required or row[PRIORITY] > _MAX_PRIORITY:
        reader.bad = 1
    if has_priority != (table[2] != 0):
        reader.bad = 1
    row[TABLE] = table[1]


@kernel
def read_update(reader: Reader, end: u64, plan: Array[u64], row: Array[u64]) -> None:
    """Read an Update that inserts a table entry into a row."""
    if read_varint(reader, end) != 1 << 3 | VARINT or read_varint(reader, end) != 1:
        reader.bad = 1
        return
    if read_varint(reader, end) != 2 << 3 | DELIMITED or read_end(reader, end) != end:
        reader.bad = 1
        return
    if read_varint(reader, end) != 2 << 3 | DELIMITED or read_end(reader, end) != end:
        reader.bad = 1
        return
    read_entry(reader, end, plan, row)


@kernel
def decode_inserts(  # noqa: PLR0917 - kernels have no keywords
    reader: Reader, length: u64, plan: Array[u64], rows: Array[u64], words: u64, capacity: u64
) -> u64:
    """Decode a WriteRequest into a row of zeroed words for each update; return how many, or MALFORMED."""
    count: u64 = 0
    while reader.at < length:
        tag = read_varint(reader, length)
        if tag == 4 << 3 | DELIMITED and count < capacity:
            stop = read_end(reader, length)
            if reader.bad != 0:
                return MALFORMED
            row = offset(rows, count * words)
            read_update(reader, stop, plan, row)
            if reader.bad != 0:
                row[TABLE] = 0
            reader.at = stop
            reader.bad = 0
            count += 1
        else:
            skip(reader, length, tag & 7)
        if reader.bad != 0:
            return MALFORMED
    return count
