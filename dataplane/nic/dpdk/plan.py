"""A port's DPDK configuration, derived only from its name and settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dataplane.errors import PortError
from dataplane.nic.devices.device import Device
from dataplane.nic.ports.memory_map import require_memory
from dataplane.nic.settings import RingSettings

AF_PACKET, AF_XDP = "net_af_packet", "net_af_xdp"
PCI, VIRTUAL = "pci", "vdev"
DESCRIPTORS, XDP_DESCRIPTORS = 1024, 2048
"""Descriptors per ring, unless set; net_af_xdp never offers more than 2,048 mbufs to receive into."""
RING_FRAMES = 4096
LENT_MBUFS = 2047
"""The most that the shim lends, mbufs ready to send, and some spare; a power of two less one fits DPDK's ring best."""
XDP_MBUFS = 12_287
"""Adds the contents of the four rings of an AF_XDP socket."""
ONE_PAGE = 0
"""The shim's marker for mbufs that take a page each."""
_PCI_ADDRESS = re.compile(r"([0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RING_HEAD_BYTES = 112
"""Upper bound of headers, address and alignment in a slot of an AF_PACKET ring, in bytes."""
_PAGE_BYTES = 4096
_SHORTEST_ROOM, _LONGEST_ROOM = 1 << 11, 1 << 15


@dataclass(frozen=True, slots=True)
class Plan:
    """The name of DPDK's device, its driver's arguments, and the needs of each queue.

    counts_sent: the driver accepts frames that it cannot send, so its statistics have to be read. leaves_program: it
    puts an XDP program onto the kernel's device, which stays when the process is killed.
    """

    bus: str
    name: str
    arguments: str = ""
    mbufs: int = LENT_MBUFS
    data_bytes: int = _SHORTEST_ROOM
    descriptors: int = DESCRIPTORS
    counts_sent: bool = False
    leaves_program: bool = False


def is_pci_address(name: str) -> bool:
    """Return whether a port's name is that of a PCI device."""
    return _PCI_ADDRESS.fullmatch(name) is not None


def has_kernel_device(interface: str, settings: RingSettings) -> bool:
    """Return whether the port uses a device of the kernel's."""
    return settings.dpdk.driver in (AF_PACKET, AF_XDP) and not is_pci_address(interface)


def plan_port(interface: str, queues: int, settings: RingSettings, device: Device | None, number: int) -> Plan:
    """Return the plan; raises PortError for frames or rings that are too large. `number` makes names unique."""
    frame_bytes = settings.frame_bytes or (device.slot_bytes if device is not None else 0)
    if frame_bytes > _LONGEST_ROOM - _RING_HEAD_BYTES:
        raise PortError(f"interface {interface}: frames of {frame_bytes} bytes do not fit a DPDK mbuf")
    if is_pci_address(interface):
        slots = settings.rx_frames or DESCRIPTORS
        mbufs = 2 * slots + LENT_MBUFS
        return Plan(PCI, interface, mbufs=mbufs, data_bytes=_room(frame_bytes), descriptors=slots)
    driver, arguments = settings.dpdk.driver, settings.dpdk.arguments
    plan = Plan(VIRTUAL, f"{driver}{number}", arguments, data_bytes=_room(frame_bytes))
    if driver == AF_PACKET:
        return _on_packet_socket(plan, interface, queues, settings.rx_frames or RING_FRAMES, frame_bytes)
    if driver == AF_XDP:
        own = _join(f"iface={interface}", f"queue_count={queues}", arguments)
        plan = replace(plan, arguments=own, mbufs=XDP_MBUFS, data_bytes=ONE_PAGE)
        return replace(plan, descriptors=XDP_DESCRIPTORS, leaves_program=True)
    return plan


def _on_packet_socket(plan: Plan, interface: str, queues: int, slots: int, frame_bytes: int) -> Plan:
    """Add rings for each direction; the driver requires mbufs as large as a slot."""
    slot_bytes = _room(frame_bytes + _RING_HEAD_BYTES)
    require_memory(f"interface {interface}", slots * slot_bytes)
    block_bytes = max(slot_bytes, _PAGE_BYTES)
    in_block = block_bytes // slot_bytes
    ring = (f"blocksz={block_bytes}", f"framesz={slot_bytes}", f"framecnt={-(-slots // in_block) * in_block}")
    own = _join(f"iface={interface}", f"qpairs={queues}", *ring, plan.arguments)
    return replace(plan, arguments=own, data_bytes=slot_bytes, counts_sent=True)


def _join(*arguments: str) -> str:
    return ",".join(filter(None, arguments))


def _room(nbytes: int) -> int:
    """Return the smallest power of two that holds that many bytes."""
    return max(1 << max(nbytes - 1, 0).bit_length(), _SHORTEST_ROOM)
