"""Input of a table write from Python, and the records built from it.

A request is an array of words: action, choice, tally, meter, number of argument words, then the additions of the kind
of table, then the arguments. Records are immutable once published, except for the link to the next one.
"""

from __future__ import annotations

from dataplane.native import Array, array_at, as_u32, kernel, sizeof, u64, view
from dataplane.switch.abi import Entry

ACTION = 0
CHOICE = 1
TALLY = 2
METER = 3
ARGUMENT_WORDS = 4
HEAD_WORDS = 5
"""Words before the additions of the kind of table."""
ENTRY_BYTES = sizeof(Entry)

DONE = 0
NO_MEMORY = 1
MISSING = 2
"""Results of a write."""


@kernel
def copy_words(target: Array[u64], source: Array[u64], words: u64) -> None:
    """Copy words between places that do not overlap."""
    for word in range(words):
        target[word] = source[word]


@kernel
def fill_entry(record: u64, request: Array[u64], arguments: Array[u64], position: u64) -> None:
    """Write the entry at the beginning of a record; its arguments go to `position`, an address inside the record."""
    entry = view(Entry, record)
    entry.action = as_u32(request[ACTION])
    entry.flags = 0
    entry.choice = request[CHOICE]
    entry.tally = request[TALLY]
    entry.meter = request[METER]
    entry.arguments = array_at(u64, position)
    copy_words(entry.arguments, arguments, request[ARGUMENT_WORDS])
