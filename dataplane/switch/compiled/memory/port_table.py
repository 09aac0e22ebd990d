"""The ports of a native switch: their structs in memory, where kernels find them, and their counters."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from dataplane.native import pointer_to
from dataplane.switch.compiled.memory.traffic import PORT_NUMBERS, OutPort, Traffic
from dataplane.switch.counters import HELLO_FORGED, NO_PACKET_IN_RECEIVER, NO_PROGRAM, OVERSIZE, PORT_DOWN
from dataplane.switch.ports.states import PortCounters
from dataplane.switch.traffic import NO_SUCH_PORT, PROGRAM_REPLACED, QUEUE_FULL, PortSettings, gap_of, jitter_seed
from dataplane.switch.v1model import PRIORITIES

CABLE_FULL = "cable_full"
PACKET_IN_FULL = "packet_in_full"


class PortTable:
    """Queues and counters of every port, the CPU port last; `traffic` is the kernels' view."""

    def __init__(self, ports: Sequence[PortSettings], *, seed: int = 0) -> None:
        self._ports = {settings.number: _make(settings, seed) for settings in ports}
        self.traffic = Traffic()
        self.traffic.count = len(ports)
        self.traffic.ports = pointer_to((ctypes.c_uint64 * len(ports))(*(port.address for port in self.all)))
        by_number = (ctypes.c_uint64 * PORT_NUMBERS)()
        for number, port in self._ports.items():
            by_number[number] = port.address
        self.traffic.by_number = pointer_to(by_number)

    @property
    def all(self) -> tuple[OutPort, ...]:
        """The ports in the order in which they are served."""
        return tuple(self._ports.values())

    def __contains__(self, number: int) -> bool:
        return number in self._ports

    def __getitem__(self, number: int) -> OutPort:
        return self._ports[number]

    def counters(self) -> dict[int, PortCounters]:
        """Return the counters of every port."""
        return {number: _read(port) for number, port in self._ports.items()}

    def occupancy(self, number: int) -> tuple[int, ...]:
        """Return how many frames wait at a port, by priority."""
        return tuple(self._ports[number].queues[priority].depth for priority in range(PRIORITIES))

    def set_queue_frames(self, number: int, frames: int) -> None:
        """Set the capacity, in frames, of each of a port's queues; frames already waiting stay."""
        self._ports[number].limit = frames

    def set_packet_rate(self, number: int, packets_per_s: int) -> None:
        """Set the maximum packets per second that leave a port's queues; 0: limited only by its rate."""
        self._ports[number].gap_ns = gap_of(packets_per_s)

    @property
    def in_flight(self) -> int:
        """Frames on the cables."""
        return sum(port.in_flight for port in self.all)

    @property
    def drops(self) -> dict[str, int]:
        """Drops that belong to no single port, by name."""
        drops = {NO_SUCH_PORT: self.traffic.no_such_port, CABLE_FULL: sum(port.cable_full for port in self.all)}
        return {name: number for name, number in drops.items() if number}


def _make(settings: PortSettings, seed: int) -> OutPort:
    port = OutPort()
    port.number, port.limit, port.is_up = settings.number, settings.queue_frames, 1
    port.rate_bps, port.delay_ns = settings.rate_bps or 0, settings.delay_ns
    port.jitter_ns, port.chance = settings.jitter_ns, jitter_seed(seed, settings.number)
    return port


def _read(port: OutPort) -> PortCounters:
    drops = {
        QUEUE_FULL: port.queue_full,
        PROGRAM_REPLACED: port.program_replaced,
        OVERSIZE: port.oversize,
        NO_PROGRAM: port.no_program,
        PORT_DOWN: port.rx_port_down + port.tx_port_down,
        NO_PACKET_IN_RECEIVER: port.no_receiver,
        PACKET_IN_FULL: port.receiver_full,
        HELLO_FORGED: port.hello_forged,
    }
    return PortCounters(
        rx_frames=port.rx_frames,
        rx_bytes=port.rx_bytes,
        tx_frames=port.tx_frames,
        tx_bytes=port.tx_bytes,
        queued_frames=port.waiting,
        drops={name: number for name, number in drops.items() if number},
    )
