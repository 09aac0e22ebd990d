"""State of the native receive loop: a UDP socket's buffers, and the progress through what was read."""

from __future__ import annotations

from typing import Literal

from dataplane.native import Array, Inline, Struct, i32, u8, u32, u64
from dataplane.native.locks import TicketLock

MESSAGES = 256
"""Maximum number of messages per system call."""
MESSAGE_BYTES = 1 << 16
"""Size of each message: a datagram, or all that the kernel coalesced."""
STRIDE_BYTES = MESSAGE_BYTES + 5 * 64
"""Distance between messages: an odd number of cache lines, else all beginnings would share few cache sets."""
NAME_BYTES = 28
"""struct sockaddr_in6, the longer one."""
CONTROL_BYTES = 64
ROWS = 4096
"""Maximum number of payloads that messages are split into before the first of them is processed."""
LATE_NS = 20_000_000
"""Payloads that have waited for less than this count as just arrived."""
BEHIND_NS = 50_000_000
"""A reader that is late for longer than this is overloaded; for less, it had no processor for a while."""
HEAD_BYTES = 8
"""Leading bytes kept of a refused payload; they name the switch that it claims to come from."""

EMPTY = 0
"""Reasons for the loop to return. This one: the socket is empty, and the caller does not want to wait."""
OUT_OF_TIME = 1
"""The loop's time is up, or the caller woke it."""
FOR_PYTHON = 2
"""The payload at `row` is Python's to read."""
FAILED = 3
"""A system call failed because the socket is unusable: see `error`."""


class ReceiveState(Struct):
    """A socket, its buffers and the clocks that date payloads; payload `row` is the next to be processed."""

    fd: i32
    wake_fd: i32  # an eventfd that ends a wait
    lock: TicketLock  # of the state
    headers: Array[u8]  # struct mmsghdr, MESSAGES of them
    data: Array[u8]
    names: Array[u8]
    controls: Array[u8]
    message_count: u32  # read last
    message: u32  # to be taken apart next
    message_at: u32  # its bytes that were taken apart
    segment: u32  # size of its datagrams
    places: Array[u64]
    lengths: Array[u32]
    sources: Array[u32]  # IPv4 addresses, 0: none
    message_of: Array[u32]
    row_count: u32
    row: u32
    checks_sources: u32  # not 0: the reports' sources are checked
    skips_others: u32  # not 0: payloads that only Python reads are accounted by number only
    is_behind: u32  # not 0: payloads have been late for longer than BEHIND_NS
    behind_since_ns: u64  # since when, with the socket never empty; 0: the last payloads were not late
    is_idle: u32  # the last wait ended without a payload
    now_ns: u64  # when the payloads came
    returned_ns: u64  # when the loop returned
    read_up_to_ns: u64  # earlier payloads have been read
    came_ns: u64  # the newest time that late payloads were given
    late_messages: u32
    error: i32
    virtual_ns: u64  # the time, where the clock is not the machine's; 0: it is
    wall_ahead_ns: u64  # how far the wall clock is ahead of the machine's; wraps
    cut: u64  # datagrams that did not fit
    oldest_ns: u64  # the longest that a payload had waited when it was read, since Python looked
    refused: u32  # not 0: a payload was refused since Python looked, and this is the last of them
    refused_bytes: u32  # of `refused_head`
    refused_source: u32
    refused_head: Inline[u8, Literal[8]]
    refused_name: Inline[u8, Literal[28]]
