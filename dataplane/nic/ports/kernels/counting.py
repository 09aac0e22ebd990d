"""Checks which frames a queue may send, and counts each reason for a refusal."""

from __future__ import annotations

from dataplane.linux import ENETDOWN, ENODEV, ENXIO, SIOCGIFMTU
from dataplane.native import Array, address, i32, kernel, load_be16, load_u32, offset, u8, u32
from dataplane.nic.layouts import ETHERNET_BYTES, ETHERTYPE_VLAN, VLAN_BYTES
from dataplane.nic.ports.kernels.system import ioctl
from dataplane.nic.ports.queue import PortQueue


@kernel(inline=True)
def may_send(queue: PortQueue, frame: Array[u8], length: u32) -> bool:
    """Return whether a frame's length suits the port; count the drop if not."""
    if length < queue.shortest_frame:
        queue.tx_refused += 1
        return False
    if length > longest(queue, frame):
        refresh_mtu(queue)
    if length > longest(queue, frame) or length > queue.transmit_room:
        queue.tx_too_long += 1
        return False
    return True


@kernel(inline=True)
def longest(queue: PortQueue, frame: Array[u8]) -> u32:
    """Return this frame's maximum length: the kernel allows one 802.1Q tag above the MTU (packet_snd)."""
    if queue.longest_frame >= 14 and load_be16(frame, 12) == ETHERTYPE_VLAN:
        return queue.longest_frame + VLAN_BYTES
    return queue.longest_frame


@kernel
def refresh_mtu(queue: PortQueue) -> None:
    """Read the MTU, which may have changed, from the device if there is one."""
    if address(queue.device) != 0 and ioctl(queue.device_fd, SIOCGIFMTU, queue.device) == 0:
        queue.longest_frame = load_u32(offset(queue.device, 16), 0) + ETHERNET_BYTES


@kernel
def count_no_room(queue: PortQueue, length: u32) -> None:
    """Count a frame that finds no slot."""
    if length > queue.transmit_room:
        queue.tx_too_long += 1
    elif queue.down != 0:
        queue.tx_down += 1
    else:
        queue.tx_full += 1


@kernel(inline=True)
def means_down(error: i32) -> bool:
    """Return whether an errno means that the device is down or gone."""
    return error == ENETDOWN or error == ENXIO or error == ENODEV  # noqa: PLR1714 - kernels have no `in`
