"""Counters and bounds common to the native and the interpreting switch: drops by name, ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dataplane.switch.ports.states import PortCounters, PortState

DEFAULT_CPU_PORT = 255
MAX_FRAME_BYTES = 9_238
"""A jumbo payload of 9,216 bytes after Ethernet and two VLAN tags; longer frames are dropped as `oversize`."""
CPU_QUEUE_FRAMES = 256

OVERSIZE = "oversize"
NO_PROGRAM = "no_program"
NO_PACKET_IN_RECEIVER = "no_packet_in_receiver"
ENDLESS_LOOP = "endless_loop"
PORT_DOWN = "port_down"
HELLO_FORGED = "hello_forged"
"""Frames from a program that a neighbour could mistake for a hello."""


@dataclass(slots=True)
class Tally:
    """Frames and bytes that a port has received, sent and dropped so far."""

    rx_frames: int = 0
    rx_bytes: int = 0
    tx_frames: int = 0
    tx_bytes: int = 0
    drops: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SwitchCounters:
    """Counters of every port (the CPU port too), and drops that belong to none: the pipeline's, by its own names."""

    ports: Mapping[int, PortCounters]
    drops: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SwitchFigures:
    """A switch's counters and its ports' states at one moment; decodable from the file of `--stats-file`."""

    ports: Mapping[int, PortCounters]
    drops: Mapping[str, int]
    port_states: Mapping[int, PortState]
