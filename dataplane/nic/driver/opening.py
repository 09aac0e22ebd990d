"""Opens ports on network devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dataplane.errors import PortError
from dataplane.nic.devices.device import Device, DeviceWatch, find_device
from dataplane.nic.devices.offloads import disable_offloads, enable_segmentation
from dataplane.nic.dpdk.plan import has_kernel_device
from dataplane.nic.port import PortInformation
from dataplane.nic.ports.nic_port import Channel, NicPort
from dataplane.nic.ports.packet_socket import open_packet_sockets
from dataplane.nic.ports.queue import PortKind
from dataplane.nic.ports.xdp_socket import open_xdp_sockets
from dataplane.nic.run_off_loop import run_off_loop
from dataplane.nic.settings import RingSettings

DEVICE_KINDS = (PortKind.PACKET_V2, PortKind.PACKET_V3, PortKind.XDP)
"""Port kinds that need nothing but Linux."""


@run_off_loop
def open_port(
    interface: str,
    kind: PortKind = PortKind.PACKET_V2,
    queues: int = 1,
    settings: RingSettings | None = None,
) -> NicPort:
    """Open a device of the calling thread's network namespace: promiscuous, offloads off, own frames not received.

    Raises PortError if the device is missing, down, busy or does not have the number of queues that AF_XDP is asked to
    use, or if rights or memory for the rings are missing.
    """
    if kind not in (*DEVICE_KINDS, PortKind.DPDK):
        raise PortError(f"interface {interface}: ports of kind {kind.name} have no device")
    if queues < 1:
        raise PortError(f"interface {interface}: a port has at least one queue, not {queues}")
    chosen = settings or RingSettings()
    if chosen.stamps == "hardware":
        refuse_hardware_stamps(interface, kind)
    if kind is PortKind.DPDK and not has_kernel_device(interface, chosen):
        return NicPort(interface, _open_dpdk(interface, queues, chosen, None))
    device = find_device(interface)
    if chosen.join_segments == "gated" and device.kind != "veth":
        chosen = replace(chosen, join_segments="never")  # nothing would open the gate
    disable_offloads(interface)
    if chosen.join_segments == "always":
        enable_segmentation(interface)
    if chosen.stamps == "hardware":
        from dataplane.nic.devices.ethernet import stamp_all_frames  # noqa: PLC0415 - only Linux has netlink

        stamp_all_frames(interface)
    watch = DeviceWatch(interface, device.index)
    try:
        return _open_queues(device, kind, queues, chosen, watch)
    except PortError:
        watch.close()
        raise


def _open_queues(device: Device, kind: PortKind, queues: int, settings: RingSettings, watch: DeviceWatch) -> NicPort:
    if kind is PortKind.XDP:
        sockets = open_xdp_sockets(device, queues, settings)
        information = PortInformation(queues, all(each.is_zero_copy for each in sockets), sockets[0].program_place)
        return NicPort(device.name, sockets, watch, information)
    if kind is PortKind.DPDK:
        return NicPort(device.name, _open_dpdk(device.name, queues, settings, device), watch)
    packet_sockets = open_packet_sockets(device, kind, queues, settings)
    return NicPort(device.name, packet_sockets, watch, gate=packet_sockets[0].gate)


def _open_dpdk(interface: str, queues: int, settings: RingSettings, device: Device | None) -> Sequence[Channel]:
    from dataplane.nic.dpdk.port import open_dpdk_queues  # noqa: PLC0415 - as above

    return open_dpdk_queues(interface, queues, settings, device)


def refuse_hardware_stamps(interface: str, kind: PortKind) -> None:
    """Raise PortError for a kind that does not report hardware timestamps."""
    names = {PortKind.XDP: "AF_XDP", PortKind.DPDK: "DPDK"}
    if kind in names:
        problem = f"{names[kind]} does not report hardware time stamps: use PACKET_V2 or PACKET_V3"
        raise PortError(f"interface {interface}: {problem}")
