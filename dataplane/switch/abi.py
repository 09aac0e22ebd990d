"""Memory shared by compiled code and the kernels around it: packets, machines, entries, events.

All numbers are in the machine's byte order unless a comment says otherwise; "address" is a u64, 0 for none. A packet's
block in memory is its `Packet`, then the program's region (headers and metadata), then the frame's bytes.
"""

from __future__ import annotations

from enum import IntEnum

from dataplane.native import Array, Struct, u8, u32, u64

UNLIMITED = 0xFFFF_FFFF
"""`Packet.truncate` of a packet that is not truncated."""
SESSION_VALID = 1 << 15
"""Set in `Packet.clone_session` to distinguish session 0 from no session."""
MAX_CLONE_SESSIONS = 1 << 15
MAX_MULTICAST_GROUPS = 1 << 16


class Reason(IntEnum):
    """Reason why a packet ends in the pipeline; the counter of a reason has the same name, in lower case."""

    NONE = 0
    INGRESS_DROP = 1
    EGRESS_DROP = 2
    MULTICAST_GROUP_EMPTY = 3
    CLONE_SESSION_UNKNOWN = 4
    RESUBMIT_LIMIT = 5
    PRIORITY_OUT_OF_RANGE = 6
    STACK_OUT_OF_BOUNDS = 7
    NEGATIVE_SHIFT = 8
    UNDEFINED_DIVISION = 9
    ACTION_TOO_LONG = 10
    ACTION_NOT_IN_TABLE = 11
    ASSERT_FAILED = 12
    ASSUME_FAILED = 13
    NO_BUFFER = 14
    FRAME_TOO_LONG = 15
    DIGEST_QUEUE_FULL = 16
    """Counts digests, not packets."""


class Packet(Struct):
    """One packet in flight. The fields from `clone_session` to `truncate` are not inherited by clones."""

    next: u64  # address of the next packet in a queue or in the free list
    data: Array[u8]  # the frame as it came in; the payload is data[parsed:length]
    region: Array[u8]  # headers and metadata, as the compiler laid them out
    length: u32
    parsed: u32
    port: u32  # its ingress port
    parser_error: u32
    packet_length: u32  # kept current as headers come and go
    ingress_length: u32
    clone_session: u32  # session | SESSION_VALID, or 0
    clone_list: u32
    resubmit: u32  # field list, or 0
    recirculate: u32
    digest: u32  # index in Program.digests + 1 of the digest to send at the end of ingress, or 0
    exit: u32
    truncate: u32
    egress_port: u32  # from here on: used by the traffic manager
    priority: u32
    enq_qdepth: u32
    deq_qdepth: u32
    refused_depth: u32  # depth of the full queue that it was deflected from, or 0
    enqueued_ns: u64


class Entry(Struct):
    """Target of a hit. Immutable once a packet can see it, except for what the pointers point at."""

    action: u32  # index of the action in Program.actions
    flags: u32
    choice: u64  # address of the choice for `select_member`, or 0
    tally: u64  # address of a Tally, or 0
    meter: u64  # address of a MeterCell, or 0
    arguments: Array[u64]  # each argument takes ceil(width / 64) words, low word first


class Tally(Struct):
    """A direct counter, and the time of the entry's last hit."""

    packets: u64
    bytes: u64
    last_hit_us: u64


class MeterCell(Struct):
    """A cell of a meter; `dataplane.switch.tables.meters` defines its meaning."""

    lock: u32
    flags: u32
    cir: u64
    pir: u64
    committed_capacity: u64
    peak_capacity: u64
    committed: u64
    peak: u64
    last_us: u64


class TableHead(Struct):
    """Common head of every table; the rest depends on the kind of match."""

    default: Entry


class Replicas(Struct):
    """A multicast group or clone session; replaced as a whole, never changed."""

    count: u32
    class_of_service: u32
    packet_length: u32  # 0: whole
    reserved: u32
    ports: Array[u32]
    instances: Array[u32]


class EventRing(Struct):
    """Digests and log messages for Python: a byte ring with one spin lock for writers, one reader.

    A record is kind (0 digest, 1 log message), number (index in Program.digests, or of the message), then its values,
    each ceil(width / 64) words; the very first word is the record's length in words, including itself.
    """

    lock: u64
    head: u64  # words written, ever
    tail: u64  # words read, ever
    mask: u64  # capacity of the ring in words - 1
    dropped: u64
    words: Array[u64]


class Machine(Struct):
    """Everything that a worker's code needs; arrays of addresses are in the order of the program's mappings."""

    epoch: u64  # odd while a burst is processed
    now_us: u64
    random_state: u64
    log_enabled: u64
    tables: Array[u64]  # addresses of TableHead
    counters: Array[u64]  # addresses of pairs (packets, bytes)
    registers: Array[u64]  # addresses of cells of ceil(width / 64) words
    register_locks: Array[u64]  # one spin lock per register
    meters: Array[u64]  # addresses of MeterCell arrays
    value_sets: Array[u64]  # addresses of TableHead
    sessions: Array[u64]  # MAX_CLONE_SESSIONS addresses of Replicas
    groups: Array[u64]  # MAX_MULTICAST_GROUPS addresses of Replicas
    drops: Array[u64]  # by Reason
    parser_errors: Array[u64]  # by declared error code, the last one for all others
    events: EventRing
