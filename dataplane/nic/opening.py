"""Opens ports on network devices."""

from __future__ import annotations

from collections.abc import Sequence

from dataplane.errors import PortError
from dataplane.nic.device import DeviceWatch, find_device
from dataplane.nic.nic_port import Channel, NicPort
from dataplane.nic.offloads import disable_offloads
from dataplane.nic.packet_socket import open_packet_sockets
from dataplane.nic.queue import PortKind
from dataplane.nic.settings import RingSettings
from dataplane.nic.xdp_socket import open_xdp_sockets

DEVICE_KINDS = (PortKind.PACKET_V2, PortKind.PACKET_V3, PortKind.XDP)


def open_port(
    interface: str,
    kind: PortKind = PortKind.PACKET_V2,
    queues: int = 1,
    settings: RingSettings | None = None,
) -> NicPort:
    """Open a device of the calling thread's network namespace: promiscuous, offloads off, own frames not received.

    Raises PortError if the device is missing, down, busy or has another number of queues than AF_XDP is asked to use;
    if rights are missing, or memory for the rings.
    """
    if kind not in DEVICE_KINDS:
        raise PortError(f"interface {interface}: ports of kind {kind.name} are not on devices")
    if queues < 1:
        raise PortError(f"interface {interface}: a port has one queue at least, not {queues}")
    device = find_device(interface)
    disable_offloads(interface)
    chosen = settings or RingSettings()
    channels: Sequence[Channel]
    if kind is PortKind.XDP:
        channels = open_xdp_sockets(device, queues, chosen)
    else:
        channels = open_packet_sockets(device, kind, queues, chosen)
    return NicPort(interface, channels, DeviceWatch(interface))
