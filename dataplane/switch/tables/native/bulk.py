"""Many inserts at once: rows of words (`dataplane.switch.tables.rows`) put into native tables, in order."""

from __future__ import annotations

from dataplane.native import Array, kernel, offset, u64, view
from dataplane.switch.tables.native.exact import ExactTable, put_exact
from dataplane.switch.tables.native.mask import (
    MASK_HEAD_WORDS,
    PRIORITY,
    RANGE_WORDS,
    RANGES,
    MaskTable,
    Space,
    masks_of,
    put_mask,
)
from dataplane.switch.tables.native.memory import Memory
from dataplane.switch.tables.native.records import ARGUMENT_WORDS, DONE, HEAD_WORDS, copy_words
from dataplane.switch.tables.native.trie import TrieTable, put_trie
from dataplane.switch.tables.rows import KEY, REQUEST

_VALUE_WORDS = 2
"""Words of a field in a row of a table that is not all exact."""


@kernel
def put_exact_rows(memory: Memory, table: ExactTable, rows: Array[u64], words: u64, count: u64) -> u64:
    """Insert rows of `words` words each; return how many there was memory for."""
    for number in range(count):
        if put_exact(memory, table, offset(rows, number * words + REQUEST)) != DONE:
            return number
    return count


@kernel
def put_trie_rows(memory: Memory, table: TrieTable, rows: Array[u64], words: u64, count: u64) -> u64:
    """Insert rows of `words` words each; return how many there was memory for."""
    for number in range(count):
        if put_trie(memory, table, offset(rows, number * words + REQUEST)) != DONE:
            return number
    return count


@kernel
def put_mask_rows(  # noqa: PLR0917 - kernels have no keywords
    memory: Memory,
    table: MaskTable,
    spaces: Array[u64],
    rows: Array[u64],
    words: u64,
    fields: u64,
    rank: u64,
    count: u64,
    request: Array[u64],
) -> u64:
    """Insert each row into its space; return how many there was memory for.

    Keys have `fields` fields of one key word; word `rank` of a row is its priority. `request` is room for a request.
    """
    for number in range(count):
        row = offset(rows, number * words)
        space = view(Space, spaces[number])
        copy_words(request, offset(row, REQUEST), HEAD_WORDS)
        request[PRIORITY] = row[rank]
        request[RANGES] = 0
        request[RANGE_WORDS] = 0
        places = offset(masks_of(space), space.words)
        for place in range(space.words):
            request[MASK_HEAD_WORDS + place] = row[KEY + _VALUE_WORDS * places[place]]
        arguments = offset(row, KEY + _VALUE_WORDS * fields)
        copy_words(offset(request, MASK_HEAD_WORDS + space.words), arguments, request[ARGUMENT_WORDS])
        if put_mask(memory, table, space, request) != DONE:
            return number
    return count
