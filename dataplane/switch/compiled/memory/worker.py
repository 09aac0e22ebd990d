"""State of one thread of the forwarding loop: its core, its queue of each port, its bell."""

from __future__ import annotations

from typing import Literal

from dataplane.native import Array, Inline, Struct, u8, u32, u64
from dataplane.native.doorbell import Bell
from dataplane.switch.compiled.memory.core import Core
from dataplane.switch.compiled.memory.rings import PacketRing
from dataplane.switch.compiled.memory.taps import Tap
from dataplane.switch.compiled.memory.traffic import OutPort, Traffic

BURST_FRAMES = 32
"""Frames taken from a port before the next port's turn."""


class Worker(Struct):
    """State of one thread of the forwarding loop; `queues` has an entry for each port of `traffic`."""

    core: Inline[Core, Literal[1]]
    number: u64
    traffic: Traffic
    queues: Array[u64]  # addresses of this worker's PortQueue, 0 where a port has none
    polled: Array[u64]  # the same without gaps
    polled_count: u32
    stop: u32  # 1: return at the end of the turn
    bell: Bell  # wakes this worker
    other: Bell  # of a worker that has queues of all ports
    reports: Bell  # wakes Python when there is something to look at
    frames: Array[u64]  # BURST_FRAMES addresses
    lengths: Array[u32]
    scratch: Array[u8]  # BUFFER_BYTES
    injected: PacketRing  # frames from Python; null for all workers but one
    cpu_port: OutPort
    packets_in: PacketRing  # frames for Python
    tap: Tap  # frames for who explains them; null: nobody does
    takes_packets_in: u64  # 1: a client reads them
    spin_ns: u64  # at most
    spin_now_ns: u64  # what has paid lately
    down_seen: u64  # which queues were down when it last looked, hashed
    hello_changed: u64  # 1: hellos were set, changed or are to be sent at once
    hello_due_ns: u64  # when there is something to do for hellos
    hello_look_ns: u64  # the longest sleep while hellos are waited for, or 0
    turns: u64
    sleeps: u64
