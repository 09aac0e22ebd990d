"""Connection of a driver to a device: the driver sends a request, the device answers, then the driver binds."""

from __future__ import annotations

from dataclasses import dataclass, field

from dataplane.errors import PortError
from dataplane.nic.devices.device import find_device
from dataplane.nic.dpdk.plan import has_kernel_device
from dataplane.nic.driver.opening import open_port
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import PortKind
from dataplane.nic.settings import RingSettings


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    """A driver's request to a device of the calling thread's network namespace."""

    interface: str
    kind: PortKind = PortKind.PACKET_V2
    queues: int = 1
    rings: RingSettings = field(default_factory=RingSettings)


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A device's answer: its identity, and what the driver gets when it binds.

    index: of the device in its namespace, 0 if it is not a kernel device. Known once bound: longest_frame, in bytes,
    without VLAN tag; is_zero_copy, whether frames stay where the device's driver wrote them; program_place, where the
    XDP program runs, "" without one.
    """

    interface: str
    kind: PortKind
    queues: int
    rings: RingSettings
    index: int
    longest_frame: int = 0
    is_zero_copy: bool = False
    program_place: str = ""


def request_connection(request: ConnectionRequest) -> ConnectionInfo:
    """Request a connection; raises PortError if the device is missing, down, or may not be inspected."""
    on_kernel = request.kind is not PortKind.DPDK or has_kernel_device(request.interface, request.rings)
    index = find_device(request.interface).index if on_kernel else 0
    return ConnectionInfo(request.interface, request.kind, request.queues, request.rings, index)


def bind(info: ConnectionInfo) -> NicPort:
    """Open the device's queues as agreed and map their rings; raises PortError if it is another device by now."""
    port = open_port(info.interface, info.kind, info.queues, info.rings)
    try:
        if info.index and find_device(info.interface).index != info.index:
            raise PortError(f"interface {info.interface}: was replaced by another device while it was being opened")
    except PortError:
        port.close()
        raise
    return port


def describe_port(port: NicPort, rings: RingSettings, index: int = 0) -> ConnectionInfo:
    """Describe the result of binding to an open port's device."""
    first, information = port.queues[0], port.information
    kind, count = PortKind(first.kind), len(port.queues)
    return ConnectionInfo(
        port.name, kind, count, rings, index, first.longest_frame, information.is_zero_copy, information.program_place
    )
