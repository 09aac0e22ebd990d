"""A driver thread's state in memory: its queues, its pace and its counts."""

from __future__ import annotations

from typing import Literal

from dataplane.native import Array, Inline, Struct, u8, u32, u64
from dataplane.native.doorbell import Bell
from dataplane.nic.buffers.software_queue import ManagerThread
from dataplane.nic.flows.structures import Classifier
from dataplane.nic.structures import Stamp, Verdict

LEAST_BATCH, MOST_BATCH = 8, 256
"""Bounds of the frames that a driver thread takes from a queue at a time."""


class Pacer(Struct):
    """Schedule of a driver thread's next look at its queues."""

    mode: u32  # a Mode
    batch: u32  # current frames per request
    target_batch: u64  # frames that should arrive during a pause
    least_pause_ns: u64
    most_pause_ns: u64
    quiet_ns: u64  # time without a frame after which to sleep until one arrives
    pause_ns: u64  # the current one
    found: u64  # frames since the queues were last empty
    empty_ns: u64  # time when they last were empty
    active_ns: u64  # time of the last frame in or out


class Counts(Struct):
    """Outcomes of frames; the thread writes them all together, so that they add up whenever they are read."""

    version: u64  # odd: being written
    received: u64
    received_bytes: u64
    handed_out: u64
    called: u64
    dropped_by_rule: u64
    closing: u64  # meant for functions that were no longer called
    not_handed_out: u64  # for a reason that the packet manager counts


class DriverState(Struct):
    """One driver thread."""

    stop: u32
    queue_count: u32
    epoch: u64  # odd: inside a turn, tables may be in use
    queues: Array[u64]  # addresses of PortQueues
    numbers: Array[u32]  # the queues' numbers in the device
    frames: Array[u64]  # room for MOST_BATCH of each
    lengths: Array[u32]
    stamps: Array[u64]
    stamp_kinds: Array[u8]
    classifier: Classifier
    manager: ManagerThread
    bell: Bell  # the thread sleeps on it; owned by the packet manager
    verdict: Inline[Verdict, Literal[1]]
    stamp: Inline[Stamp, Literal[1]]
    pacer: Inline[Pacer, Literal[1]]
    _gap: Inline[u64, Literal[8]]
    counts: Inline[Counts, Literal[1]]
    full: u32  # 1: a queue may have frames left after this turn
    is_waiting: u32  # 1: asleep until something happens
    sent: u64  # packets that left the software queues
    polls: u64
    empty_polls: u64
    pauses: u64  # sleeps between polls, ended by the clock
    wakeups: u64  # returns from waits for something to happen
    interrupts: u64  # those of them that the device ended
