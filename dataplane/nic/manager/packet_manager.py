"""The packet manager: groups of consumers, their members, and the tables that driver threads read.

Driver threads read immutable tables that are replaced as a whole, and are never waited for.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dataplane.clock import Clock
from dataplane.errors import PortError
from dataplane.native import array_at, pointer_to, u64
from dataplane.nic.buffers.buffer_pools import BufferPools, default_sizes
from dataplane.nic.buffers.sleeper import Sleeper
from dataplane.nic.buffers.software_queue import GroupState, ManagerThread
from dataplane.nic.epoch_reclamation import Epoch, EpochReclamation
from dataplane.nic.layouts import field_offset
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.kernels.distribute import MOST_TOUCHED
from dataplane.nic.manager.manager_reading import GroupReading, ManagerReading, PastReading
from dataplane.nic.manager.manager_table import LoadedTable, Membership, build_table
from dataplane.nic.manager.producer import Producer
from dataplane.nic.structures import FLOW_BUCKETS, Bucket

MOST_GROUPS = 1 << 8
UNSETTLED_PACKETS = 1 << 14
"""Packets of one driver thread that the device may hold without having reported them."""


@dataclass(slots=True)
class _Group:
    name: str
    balance: Balance
    states: list[GroupState]
    members: list[Consumer] = field(default_factory=list)
    anchor: int | None = None


class PacketManager:
    """Hands packets of some driver threads out to consumers, and takes packets from producers.

    Any thread may call it. `threads` are for the driver threads; what they point to lives as long as this object.
    """

    def __init__(
        self,
        threads: int,
        *,
        name: str,
        longest_frame: int,
        memory_bytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._name, self._longest_frame, self._clock = name, longest_frame, clock
        self._pools = BufferPools(name, memory_bytes)
        self._lock = threading.RLock()
        self._reclamation = EpochReclamation()
        self._serials = itertools.count(1)
        self._groups: dict[str, _Group] = {}
        self._consumers: list[Consumer] = []
        self._producers: list[Producer] = []
        self._departing: list[Consumer | Producer] = []
        self._departed = PastReading()
        self._bells = [Sleeper(clock) for _ in range(threads)]
        self.threads = [_make_thread(bell) for bell in self._bells]
        self._tables: list[LoadedTable | None] = [None] * threads
        self._is_closed = False
        self._publish()

    def follow(self, epochs: Sequence[Epoch]) -> None:
        """Follow the epochs of the driver threads from now on (dataplane/nic/epoch_reclamation.py)."""
        with self._lock:
            self._reclamation.follow(epochs)

    def ring(self, thread: int) -> None:
        """Wake a driver thread."""
        self._bells[thread].wake()

    def group_number(self, name: str) -> int:
        """Return the number by which a `Verdict` names a group; creates the group if need be.

        Raises PortError if there are too many.
        """
        with self._lock:
            if name not in self._groups:
                self._make_group(name)
                self._publish()
            return list(self._groups).index(name)

    def set_balance(self, group: str, balance: Balance) -> None:
        """Choose how packets are spread over a group's consumers, from the next packet on."""
        with self._lock:
            self.group_number(group)
            self._groups[group].balance = balance
            self._publish()

    def add_consumer(
        self,
        name: str,
        *,
        group: str | None = None,
        buffers: int | Mapping[int, int] = 4096,
        queue_packets: int | None = None,
    ) -> Consumer:
        """Return a new member of a group, by default the group of the same name.

        For each driver thread it gets `buffers`: a number, of sizes that suit the device, or sizes in bytes and how
        many of each; and a queue of `queue_packets`, None: as many as there are buffers. Raises PortError naming the
        consumer if it exists, or its memory does not fit.
        """
        user = f"consumer {name}"
        with self._lock:
            self._require_new(user, name, self._consumers)
            self.group_number(group or name)
            joined = self._groups[group or name]
            sleeper = Sleeper(self._clock)
            sizes = default_sizes(buffers, self._longest_frame) if isinstance(buffers, int) else buffers
            try:
                queues = [
                    self._pools.make_receive_queue(user, number, sizes, queue_packets, bell=sleeper.bell, state=state)
                    for number, state in enumerate(joined.states)
                ]
            except PortError:
                sleeper.close()
                raise
            consumer = Consumer(name, joined.name, next(self._serials), sleeper, queues)
            consumer.joined(lambda: self._remove_consumer(consumer))
            self._consumers.append(consumer)
            joined.anchor = joined.members[0].serial if len(joined.members) == 1 else joined.anchor
            joined.members.append(consumer)
            self._publish()
            return consumer

    def add_producer(
        self,
        name: str,
        *,
        thread: int | None = None,
        queue_packets: int = 1024,
        buffers: int | Mapping[int, int] | None = None,
    ) -> Producer:
        """Return a new producer served by a driver thread, None: the thread with the fewest producers.

        Its software queue holds `queue_packets`, rounded up to a power of two; `buffers` are as a consumer's, None: one
        for each packet. Raises PortError naming the producer if it exists, or its memory does not fit.
        """
        user = f"producer {name}"
        with self._lock:
            self._require_new(user, name, self._producers)
            number = self._idlest_thread() if thread is None else thread
            if not 0 <= number < len(self.threads):
                raise PortError(f"{user}: there is no driver thread {number}")
            count = queue_packets if buffers is None else buffers
            sizes = default_sizes(count, self._longest_frame) if isinstance(count, int) else count
            sleeper = Sleeper(self._clock)
            try:
                queue = self._pools.make_send_queue(
                    user, number, sizes, queue_packets, bell=sleeper.bell, driver_bell=self._bells[number].bell
                )
            except PortError:
                sleeper.close()
                raise
            producer = Producer(name, sleeper, queue)
            producer.joined(lambda: self._remove_producer(producer))
            self._producers.append(producer)
            self._publish()
            return producer

    def read(self) -> ManagerReading:
        """Return all current counters; also once closed."""
        with self._lock:
            self.collect()
            here = [*self._consumers, *(user for user in self._departing if isinstance(user, Consumer))]
            senders = [*self._producers, *(user for user in self._departing if isinstance(user, Producer))]
            return ManagerReading(
                consumers=tuple(consumer.read() for consumer in here),
                producers=tuple(producer.read() for producer in senders),
                groups=tuple(map(_read_group, self._groups.values())),
                departed=self._departed,
                no_consumer=sum(thread.no_consumer for thread in self.threads),
                memory_bytes=self._pools.memory_bytes,
            )

    def collect(self) -> None:
        """Free what no driver thread uses any more, and the memory of members that left and hold nothing."""
        with self._lock:
            self._reclamation.collect()
            for user in tuple(self._departing):
                if isinstance(user, Consumer) and user.is_drained and not user.holds_buffers:
                    self._departed = self._departed.with_consumer(user.free())
                elif isinstance(user, Producer) and user.is_drained and not user.is_on_device:
                    self._departed = self._departed.with_producer(user.free())
                    # A driver thread settles packets first, then looks for waiters to wake.
                    self._reclamation.when_unused(user.fall_silent)
                else:
                    continue
                self._departing.remove(user)

    def close(self) -> None:
        """Remove all members; only once the driver threads have ended. A second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            everyone: list[Consumer | Producer] = [*self._consumers, *self._producers]
            for user in everyone:
                user.close()
            self._reclamation.finish()
            self.collect()
            self._reclamation.finish()
            for user in self._departing:
                if isinstance(user, Producer):
                    user.fall_silent()
            for bell in self._bells:
                bell.close()

    def _require_new(self, user: str, name: str, others: Sequence[Consumer | Producer]) -> None:
        if self._is_closed:
            raise PortError(f"{user}: {self._name} is closed")
        if any(other.name == name for other in others):
            raise PortError(f"{user} already exists on {self._name}")

    def _make_group(self, name: str) -> None:
        if len(self._groups) == MOST_GROUPS:
            raise PortError(f"group {name}: {self._name} already has {MOST_GROUPS} groups")
        states = []
        for _ in self.threads:
            state = GroupState()
            state.buckets = pointer_to((Bucket * FLOW_BUCKETS)())
            states.append(state)
        self._groups[name] = _Group(name, Balance.FLOW_HASH, states)

    def _remove_consumer(self, consumer: Consumer) -> None:
        with self._lock:
            self._consumers.remove(consumer)
            self._groups[consumer.group].members.remove(consumer)
            self._departing.append(consumer)
            self._publish()
            self._reclamation.when_unused(consumer.discard)
            self.collect()

    def _remove_producer(self, producer: Producer) -> None:
        with self._lock:
            self._producers.remove(producer)
            self._departing.append(producer)
            self._publish()
            self._reclamation.when_unused(producer.abandon)
            self.collect()

    def _idlest_thread(self) -> int:
        counts = Counter(producer.thread for producer in self._producers)
        return min(range(len(self.threads)), key=lambda number: counts[number])

    def _publish(self) -> None:
        """Publish new tables to the driver threads; the old ones live until none reads them."""
        old = list(self._tables)
        for number, thread in enumerate(self.threads):
            groups = [_membership(group, number) for group in self._groups.values()]
            senders = [producer.queue.address for producer in self._producers if producer.thread == number]
            loaded = build_table(groups, senders)
            word = array_at(u64, thread.address + field_offset(ManagerThread, "table"))
            self._reclamation.publish(word, loaded.table.address)
            self._tables[number] = loaded
        self._reclamation.when_unused(old.clear)
        self._reclamation.collect()


def _make_thread(bell: Sleeper) -> ManagerThread:
    thread = ManagerThread(unsettled_mask=UNSETTLED_PACKETS - 1)
    thread.bell = bell.bell
    thread.touched = pointer_to((ctypes.c_uint64 * MOST_TOUCHED)())
    thread.unsettled = pointer_to((ctypes.c_uint64 * UNSETTLED_PACKETS)())
    return thread


def _membership(group: _Group, thread: int) -> Membership:
    queues = tuple((member.queues[thread].address, member.serial) for member in group.members)
    return Membership(queues, group.balance, group.anchor, group.states[thread])


def _read_group(group: _Group) -> GroupReading:
    names = tuple(member.name for member in group.members)
    return GroupReading(group.name, names, sum(state.no_consumer for state in group.states))
