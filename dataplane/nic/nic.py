"""A device with driver threads, flow classifier and packet manager on top, as consumers and producers use it.

device queue -> driver thread -> flow classifier -> packet manager -> software queue -> consumer
producer -> software queue -> driver thread -> device queue
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType

from dataplane.errors import PortError
from dataplane.nic.driver.connection import ConnectionInfo, ConnectionRequest, bind, describe_port, request_connection
from dataplane.nic.driver.driver import Driver, DriverThread, Stages
from dataplane.nic.driver.driver_state import DriverState
from dataplane.nic.flows.classifier import FlowClassifier
from dataplane.nic.layouts import field_offset
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.manager.producer import Producer
from dataplane.nic.modes import Mode
from dataplane.nic.nic_settings import NicSettings
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.run_off_loop import run_off_loop
from dataplane.nic.statistics import NicStatistics, QueueStatistics

_SENDER = "nic.send"


class Nic:
    """A port served by driver threads; closed with the Nic. Made by `open_nic`."""

    def __init__(self, port: NicPort, settings: NicSettings, info: ConnectionInfo) -> None:
        self.info = info
        self.settings = settings
        self._port = port
        if settings.mode is Mode.WAITING:
            self._check_wake()
        count = _thread_count(port, settings)
        self._manager = PacketManager(count, name=port.name, longest_frame=port.queues[0].transmit_room)
        self.classifier = FlowClassifier(self._manager.group_number)
        self._driver = Driver(port.name, [self._make_thread(number, count) for number in range(count)])
        self._manager.follow([functools.partial(getattr, thread.state, "epoch") for thread in self._driver.threads])
        for epoch in self._epoch_addresses():
            self.classifier.register_driver(epoch)
        # Guards the port; a signal handler may close the Nic in the middle of a call of the same thread.
        self._guard = threading.RLock()
        self._sender: Producer | None = None
        self._closed = False
        try:
            if settings.threads != 0:
                self._driver.start(settings.cpus)
        except BaseException:
            self._manager.close()
            raise
        self._at_exit = weakref.finalize(self, _give_up, self._driver, self._manager, port, os.getpid())

    def _make_thread(self, number: int, count: int) -> DriverThread:
        """Return the thread that serves every `count`-th queue."""
        queues = list(enumerate(self._port.queues))[number::count]
        owners = (self._port, self._manager, self.classifier)
        stages = Stages(self.classifier.native, self._manager.threads[number], owners)
        return DriverThread(f"nic-{self.name}-{number}", queues, stages, self.settings)

    def _epoch_addresses(self) -> list[int]:
        return [thread.state.address + field_offset(DriverState, "epoch") for thread in self._driver.threads]

    @property
    def name(self) -> str:
        """Return the interface's name."""
        return self._port.name

    @property
    def is_down(self) -> bool:
        """True if the device is down or gone."""
        with self._guard:
            return self._port.is_down

    @property
    def has_link(self) -> bool:
        """True if sent frames would reach the other end."""
        with self._guard:
            return self._port.has_link

    @property
    def thread_ids(self) -> tuple[int, ...]:
        """Return the kernel ids of the driver threads (gettid(2))."""
        return tuple(thread.native_id for thread in self._driver.threads if thread.native_id is not None)

    @property
    def can_wake(self) -> bool:
        """True if the device can wake a thread, which Mode.WAITING requires."""
        return all(queue.fd >= 0 for queue in self._port.queues)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Return what each driver thread does while its queues are empty."""
        return tuple(thread.mode for thread in self._driver.threads)

    def set_mode(self, mode: Mode, queue: int | None = None) -> None:
        """Change the mode of the thread that serves a queue, or of all threads; no frame is lost by it.

        The settings' other values, for Mode.HYBRID, stay. Raises PortError for a queue that the Nic does not have, for
        a device that cannot wake a thread, and once closed.
        """
        if mode is Mode.WAITING:
            self._check_wake()
        count = len(self._port.queues)
        if queue is not None and not 0 <= queue < count:
            raise PortError(f"interface {self.name}: it has {count} queues, so none of number {queue}")
        threads = self._driver.threads
        with self._guard:
            if self._closed:
                raise PortError(f"interface {self.name}: it is closed")
            for thread in threads if queue is None else (threads[queue % len(threads)],):
                thread.set_mode(mode)

    def _check_wake(self) -> None:
        if not self.can_wake:
            problem = f"a {self.info.kind.name} device raises no wake-up: it cannot be waited for"
            raise PortError(f"interface {self.name}: {problem}")

    def add_consumer(
        self,
        name: str,
        *,
        group: str | None = None,
        buffers: int | Mapping[int, int] = 4096,
        queue_packets: int | None = None,
    ) -> Consumer:
        """Return a consumer with its own reserve of buffers for each driver thread; see `PacketManager`."""
        return self._manager.add_consumer(name, group=group, buffers=buffers, queue_packets=queue_packets)

    def set_balance(self, group: str, balance: Balance) -> None:
        """Choose how a group's packets are spread over its consumers."""
        self._manager.set_balance(group, balance)

    def add_producer(self, name: str, *, thread: int | None = None, queue_packets: int = 1024) -> Producer:
        """Return a producer with its own software transmit queue, which a driver thread serves (None: any)."""
        return self._manager.add_producer(name, thread=thread, queue_packets=queue_packets)

    def send(self, frames: Sequence[bytes]) -> int:
        """Queue frames to be sent; return how many found room; the others are counted as drops.

        Calling threads take turns; threads that must not wait for each other should have their own producers.
        """
        with self._guard:
            if self._sender is None:
                self._sender = self.add_producer(_SENDER)
            send = self._sender.send
        return sum(send(frame) is not None for frame in frames)

    def step(self, now_ns: int) -> int:
        """Run one turn at a given time, in a Nic without threads; return how many frames came or went.

        Raises PortError in a Nic that has threads.
        """
        if self.settings.threads != 0:
            raise PortError(f"interface {self.name}: its own threads run its turns: step() is for threads=0")
        return self._driver.step(now_ns)

    def read_statistics(self) -> NicStatistics:
        """Return all statistics so far; at any time, from any thread, also once closed."""
        # Each reading resets the kernel's count of drops, so only one runs at a time.
        with self._guard:
            self._port.read_counters()
        return NicStatistics(
            self.name,
            tuple(map(QueueStatistics.of, range(len(self._port.queues)), self._port.queues)),
            tuple(thread.read() for thread in self._driver.threads),
            self._manager.read(),
        )

    def metrics(self) -> str:
        """Return the statistics in Prometheus's text format."""
        from dataplane.nic.metrics import metrics_text  # noqa: PLC0415 - its library takes longer to load than all else

        return metrics_text(self.read_statistics)

    def close(self) -> None:
        """End the threads, then release the device; a second call does nothing.

        Raises PortError, and releases nothing, if a thread does not end.
        """
        if self._closed:
            return
        self._driver.close()
        with self._guard:
            self._closed = True
        self._at_exit.detach()
        for epoch in self._epoch_addresses():
            self.classifier.unregister_driver(epoch)
        self._manager.close()
        with self._guard:
            self._port.close()

    def __enter__(self) -> Nic:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _give_up(driver: Driver, manager: PacketManager, port: NicPort, process: int) -> None:
    """Do what `close` does for a Nic without remaining references; a forked process has none of the threads."""
    if os.getpid() == process:
        driver.close()
        manager.close()
        port.close()


def _thread_count(port: NicPort, settings: NicSettings) -> int:
    """Return into how many separately served parts the queues are divided."""
    if settings.threads is None:
        return len(port.queues)
    return max(min(settings.threads, len(port.queues)), 1)


@run_off_loop
def open_nic(device: str | NicPort, settings: NicSettings | None = None) -> Nic:
    """Bind to a device of the calling thread's network namespace, or take over an open port, and start its threads.

    Raises PortError if the device is missing, down, busy or has another number of queues than requested, or if rights
    or memory are missing.
    """
    chosen = settings or NicSettings()
    if isinstance(device, NicPort):
        port, index = device, 0
    else:
        answer = request_connection(ConnectionRequest(device, chosen.kind, chosen.queues, chosen.rings))
        port, index = bind(answer), answer.index
    try:
        return Nic(port, chosen, describe_port(port, chosen.rings, index))
    except BaseException:
        port.close()
        raise
