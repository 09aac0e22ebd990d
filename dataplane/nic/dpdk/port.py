"""DPDK ports: a DPDK device with its queues, each with its own pool of mbufs."""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import struct
import time
from collections.abc import Sequence

from dataplane.errors import PortError
from dataplane.linux import PACKET_ADD_MEMBERSHIP, PACKET_MEMBERSHIP_PROMISCUOUS, SOL_PACKET
from dataplane.nic.devices.device import Device
from dataplane.nic.devices.netns import in_netns, open_netns
from dataplane.nic.dpdk.environment import Environment, start_environment
from dataplane.nic.dpdk.plan import PCI, Plan, is_pci_address, plan_port
from dataplane.nic.dpdk.sockets import DriverSocket, find_sockets, open_descriptors
from dataplane.nic.dpdk.stale_xdp import ProgramNote
from dataplane.nic.dpdk.timer import Timer
from dataplane.nic.layouts import ETHERNET_BYTES
from dataplane.nic.ports.queue import DpdkLine, DpdkQueue, PortKind
from dataplane.nic.settings import RingSettings

_ATTEMPTS, _PAUSE_S = 10, 0.05
_numbers = itertools.count()


class DpdkPort:
    """A running DPDK device; its queues must be out of use when it closes. Raises PortError."""

    def __init__(
        self, environment: Environment, plan: Plan, interface: str, queues: int, device: Device | None
    ) -> None:
        self.environment, self.plan, self.interface = environment, plan, interface
        self.note: ProgramNote | None = None
        self.mtu = 0 if device is None else device.mtu
        self.is_open = False
        self.sockets: list[DriverSocket | None] = [None] * queues
        """The kernel's sockets beneath the queues, if any."""
        self._sockets: list[DriverSocket] = []
        self._number = ctypes.c_uint16()
        self._contexts = (ctypes.c_void_p * queues)()
        self._made = 0
        self._see_all: socket.socket | None = None
        self._netns = open_netns()
        before = open_descriptors()
        try:
            self._attach(queues)
            self._begin(queues)
            if device is not None:
                self._sockets = find_sockets(before, interface)
                self._see_all = _see_all_frames(device)
        except OSError as error:
            self.close()
            raise PortError(f"interface {interface}: {plan.name}: {error.strerror}") from error
        except PortError:
            self._sockets = find_sockets(before, interface)
            self.close()
            raise
        if len(self._sockets) == queues:
            self.sockets = [*self._sockets]

    def _attach(self, queues: int) -> None:
        available, mtu, plan = ctypes.c_uint16(), ctypes.c_uint16(), self.plan
        words = map(str.encode, (plan.bus, plan.name, plan.arguments))
        self._require(self.environment.shim.millrace_attach(*words, self._number, available, mtu))
        self.is_open = True
        self.mtu = self.mtu or mtu.value
        if queues > available.value:
            raise PortError(f"interface {self.interface}: {plan.name} has {available.value} queues, not {queues}")

    def _begin(self, queues: int) -> None:
        shim, plan = self.environment.shim, self.plan
        for index in range(queues):
            pool, context = f"mr{self._number.value}q{index}".encode(), ctypes.c_void_p()
            size = (plan.mbufs, plan.data_bytes, plan.counts_sent)
            self._require(shim.millrace_make_queue(pool, self._number, index, *size, context))
            self._contexts[index] = context.value
            self._made += 1
        slots = (plan.descriptors, plan.descriptors)
        self._require(shim.millrace_begin(self._number, self._contexts, queues, *slots, plan.bus == PCI))

    def _require(self, result: int) -> None:
        self.environment.require(result, f"interface {self.interface}: {self.plan.name}")

    def describe(self, index: int, queue: DpdkQueue) -> None:
        """Fill in a queue."""
        shim, context = self.environment.shim, self._contexts[index]
        queue.context = context or 0
        queue.line = DpdkLine.from_address(context or 0)
        for name in ("receive", "release", "peek", "transmit"):
            function = ctypes.cast(getattr(shim, f"millrace_{name}"), ctypes.c_void_p)
            setattr(queue, f"{name}_function", function.value)
        queue.transmit_room = queue.line.room
        queue.shortest_frame = ETHERNET_BYTES
        queue.longest_frame = self.mtu + ETHERNET_BYTES

    def count_drops(self) -> int:
        """Return how many frames the device itself reports as dropped or received with errors."""
        missed, wrong = ctypes.c_uint64(), ctypes.c_uint64()
        shim = self.environment.shim
        failed = not self.is_open or shim.millrace_count_drops(self._number, missed, wrong)
        return 0 if failed else missed.value + wrong.value

    def close(self) -> None:
        """Stop the device and give back all memory; a second call does nothing."""
        for each in (*self._sockets, self._see_all):
            if each is not None:
                each.close()
        plan, end = self.plan, self.environment.shim.millrace_end
        if self.is_open:
            self.is_open = False
            with in_netns(self._netns):
                end(self._number, plan.bus.encode(), plan.name.encode(), self._contexts, self._made)
            for forgotten in self._sockets:
                forgotten.close_forgotten()
            self.environment.log()
        if self._netns >= 0:
            os.close(self._netns)
            self._netns = -1
            if self.note is not None:
                self.note.close()


class DpdkChannel:
    """One queue of a port; closing one closes the port."""

    def __init__(self, port: DpdkPort, index: int) -> None:
        self._port, self._index = port, index
        self._seen = 0
        self._socket = port.sockets[index]
        self._timer: Timer | None = None
        self.queue = DpdkQueue(kind=PortKind.DPDK, fd=-1, timer_fd=-1, device_fd=-1)
        port.describe(index, self.queue)
        if self._socket is not None:
            self._socket.ignore_outgoing()
            self.queue.fd = self._socket.fileno()

    def fileno(self) -> int:
        """Return the descriptor to poll: the kernel's socket, or a timer that signals when to look."""
        if self._socket is not None:
            return self._socket.fileno()
        if self._timer is None and self._port.is_open:
            self._timer = Timer()
            self.queue.timer_fd = self._timer.fileno()
        return -1 if self._timer is None else self._timer.fileno()

    def read_drops(self) -> None:
        """Update the queue's `rx_dropped`; counts known only for the whole device go to the first queue."""
        self._port.environment.log()
        if self._socket is not None and self._socket.fileno() >= 0:
            count, since_last = self._socket.read_drops()
            self.queue.rx_dropped += count if since_last else count - self._seen
            self._seen = count
        elif self._socket is None and self._index == 0:
            self.queue.rx_dropped = max(self._port.count_drops(), self.queue.rx_dropped)

    def close(self) -> None:
        """Close the port."""
        self.read_drops()
        self._port.close()
        if self._timer is not None:
            self._timer.close()


def open_dpdk_queues(
    interface: str, queues: int, settings: RingSettings, device: Device | None
) -> Sequence[DpdkChannel]:
    """Return the queues of a DPDK device; `device` is the kernel's device beneath it, if any."""
    environment = start_environment(settings.dpdk.memory_mib, with_pci=is_pci_address(interface))
    plan = plan_port(interface, queues, settings, device, next(_numbers))
    if device is not None and plan.leaves_program:
        port = _open_noted(environment, plan, interface, queues, device)
    else:
        port = DpdkPort(environment, plan, interface, queues, device)
    return [DpdkChannel(port, index) for index in range(queues)]


def _open_noted(environment: Environment, plan: Plan, interface: str, queues: int, device: Device) -> DpdkPort:
    """Open a port whose driver puts an XDP program onto the device, and record that the program is ours.

    The note comes first: a driver that gives up detaches whatever program is attached. The kernel frees the queues of a
    closed port with a delay, so the driver may have to retry.
    """
    note = ProgramNote(device)
    for left in reversed(range(_ATTEMPTS)):
        try:
            port = DpdkPort(environment, plan, interface, queues, device)
        except PortError:
            if left == 0:
                note.close()
                raise
            time.sleep(_PAUSE_S)
            continue
        break
    note.write()
    port.note = note
    return port


def _see_all_frames(device: Device) -> socket.socket:
    """Keep the device promiscuous while the returned socket is open, however it closes."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(
        SOL_PACKET, PACKET_ADD_MEMBERSHIP, struct.pack("=iHH8s", device.index, PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
    )
    return opened
