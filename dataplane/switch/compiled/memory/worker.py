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
    queues: Array[u64]  # addresses of this worker's PortQueues, 0 if a port has none
    polled: Array[u64]  # the same without gaps
    polled_count: u32
    stop: u32  # 1: return at the end of the turn
    bell: Bell  # wakes this worker
    other: Bell  # bell of a worker that has queues of all ports
    reports: Bell  # wakes Python when there is news
    frames: Array[u64]  # BURST_FRAMES addresses
    lengths: Array[u32]
    scratch: Array[u8]  # BUFFER_BYTES
    injected: PacketRing  # frames from Python; null for all workers but one
    cpu_port: OutPort
    packets_in: PacketRing  # frames for Python
    tap: Tap  # frames for the tracer; null: no tracer
    takes_packets_in: u64  # 1: a client reads them
    spin_ns: u64  # maximum spin
    spin_now_ns: u64  # spin that has paid off lately
    down_seen: u64  # hash of the queues that were down when last checked
    hello_changed: u64  # 1: hellos were set, changed or must be sent at once
    hello_due_ns: u64  # time of the next hello work
    hello_look_ns: u64  # the longest sleep while hellos are expected, or 0
    turns: u64
    idle_turns: u64  # those without work
    sleeps: u64
