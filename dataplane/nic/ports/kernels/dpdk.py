"""Queues of DPDK ports: one call of the shim per burst, through addresses stored in the queue.

Frames to send are written into prepared mbufs, so that a frame needs no call; `flush` hands all of them over.
"""

from __future__ import annotations

from dataplane.linux import IFF_UP, SIOCGIFFLAGS
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u64,
    invoke,
    kernel,
    load_u16,
    offset,
    signature,
    stack_array,
    u8,
    u32,
    u64,
)
from dataplane.native.doorbell import read
from dataplane.nic.ports.kernels.counting import count_no_room, may_send, refresh_mtu
from dataplane.nic.ports.kernels.system import ioctl
from dataplane.nic.ports.kernels.timestamps import stamp_burst
from dataplane.nic.ports.queue import DpdkQueue


@signature
def ReceiveFunction(context: u64, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:  # noqa: N802 - a type
    """Return how many frames were lent."""
    raise NotImplementedError


@signature
def ReleaseFunction(context: u64) -> None:  # noqa: N802 - a type
    """Take back what was lent."""
    raise NotImplementedError


@signature
def PeekFunction(context: u64) -> u32:  # noqa: N802 - a type
    """Return how many frames have arrived, at least."""
    raise NotImplementedError


@signature
def TransmitFunction(context: u64, count: u32) -> u32:  # noqa: N802 - a type
    """Send the first `count` slots; return how many the driver took."""
    raise NotImplementedError


@kernel
def receive_dpdk(queue: DpdkQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Borrow up to `limit` mbufs."""
    lent: u32 = invoke(ReceiveFunction, queue.receive_function, queue.context, frames, lengths, limit)
    nbytes: u64 = 0
    count: u32 = 0
    i: u32 = 0
    while i < lent:
        if lengths[i] >= queue.shortest_frame:
            frames[count] = frames[i]
            lengths[count] = lengths[i]
            nbytes += as_u64(lengths[i])
            count += 1
        i += 1
    queue.rx_too_short += as_u64(lent - count)
    if lent > 0:
        queue.down = 0
    elif queue.timer_fd >= 0:
        # It becomes readable again one period later.
        read(queue.timer_fd, stack_array(u64, 1), 8)
    stamp_burst(queue, count)
    queue.rx_frames += as_u64(count)
    queue.rx_bytes += nbytes
    queue.rx_too_long = queue.line.rx_too_long
    return count


@kernel(inline=True)
def release_dpdk(queue: DpdkQueue) -> None:
    """Give the borrowed mbufs back to their pool."""
    invoke(ReleaseFunction, queue.release_function, queue.context)


@kernel(inline=True)
def is_readable_dpdk(queue: DpdkQueue) -> bool:
    """Return whether the driver has frames; they are kept for the next `receive`."""
    return invoke(PeekFunction, queue.peek_function, queue.context) > 0


@kernel(inline=True)
def reserve_dpdk(queue: DpdkQueue, length: u32) -> Array[u8]:
    """Return the data of the next mbuf, or null (counted) if there is none."""
    if queue.tx_pending == queue.line.filled:
        flush_dpdk(queue)
    if length > queue.transmit_room or queue.tx_pending == queue.line.filled:
        count_no_room(queue, length)
        return array_at(u8, 0)
    return array_at(u8, queue.line.slots[queue.tx_pending])


@kernel(inline=True)
def commit_dpdk(queue: DpdkQueue, length: u32) -> bool:
    """Queue the reserved mbuf."""
    if queue.tx_pending == 0:
        # The driver would silently drop frames longer than a reduced MTU.
        refresh_mtu(queue)
    if not may_send(queue, array_at(u8, queue.line.slots[queue.tx_pending]), length):
        return False
    queue.line.lengths[queue.tx_pending] = length
    queue.tx_pending += 1
    return True


@kernel
def flush_dpdk(queue: DpdkQueue) -> u32:
    """Hand queued frames to the driver, as far as it has room; return how many it took."""
    taken: u32 = 0
    while queue.tx_pending > 0:
        part: u32 = invoke(TransmitFunction, queue.transmit_function, queue.context, queue.tx_pending)
        if part == 0:
            drop_if_down(queue)
            break
        queue.tx_pending -= part
        taken += part
        count_taken(queue, part)
    return taken


@kernel
def count_taken(queue: DpdkQueue, taken: u32) -> None:
    """Count frames that the driver took, and separately those that it then could not send."""
    lost: u64 = queue.line.lost - queue.tx_lost
    queue.tx_lost = queue.line.lost
    queue.tx_bytes += queue.line.sent_bytes - queue.tx_sent_bytes
    queue.tx_sent_bytes = queue.line.sent_bytes
    queue.tx_frames += as_u64(taken) - lost
    if lost == 0:
        queue.down = 0
    elif is_device_down(queue):
        queue.down = 1
        queue.tx_down += lost
    else:
        queue.tx_refused += lost


@kernel
def drop_if_down(queue: DpdkQueue) -> None:
    """Drop and count the frames queued for a device that is down; their mbufs can be written again."""
    if is_device_down(queue):
        queue.down = 1
        queue.tx_down += as_u64(queue.tx_pending)
        queue.tx_pending = 0


@kernel
def is_device_down(queue: DpdkQueue) -> bool:
    """Return whether the kernel's device beneath the port, if any, is down or gone."""
    if address(queue.device) == 0:
        return False
    if ioctl(queue.device_fd, SIOCGIFFLAGS, queue.device) != 0:
        return True
    return (load_u16(offset(queue.device, 16), 0) & IFF_UP) == 0
