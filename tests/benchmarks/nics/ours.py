"""Our receivers: a Nic in each mode, with a native consumer on a thread of its own or a function on the driver's."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.native import Array, array_at, kernel, kernel_library, load_acquire, stack_array, u8, u32, u64, view
from dataplane.native.doorbell import Bell
from dataplane.nic import Call, FlowRule, Mode, Nic, NicSettings, PortKind, ToConsumers, open_nic
from dataplane.nic.buffers.kernels.software_queues import acquire, await_packets, give_back_all
from dataplane.nic.buffers.software_queue import ReceiveQueue
from dataplane.nic.dpdk.shim import load_shim
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.structures import Buffer
from tests.benchmarks.nics.cable import Cable
from tests.benchmarks.nics.generator import DESTINATION_PORT, STAMP_OFFSET, Generator
from tests.benchmarks.nics.kernels import MAGIC, MOST_BYTES, STAMP_BYTES, Tally, note
from tests.benchmarks.nics.receivers import Consumers, Open, Receiver, TallySheet, Wakes
from tests.benchmarks.nics.usage import pin

_GROUP = "benchmark"
_BUFFERS = {256: 8_192, 2_048: 8_192}
_BURST = 256
_LOOK_S, _LOOK_NS = 0.1, 100_000_000
_STOP_LIMIT_S = 10.0
Read = Callable[[TallySheet, Consumer], None]


@kernel
def consume(tally: Tally, bell: Bell, queues: Array[u64], count: u32) -> None:
    """Take packets from queues (addresses) and return them, asleep while there are none, until stopped."""
    packets = stack_array(u64, _BURST)
    while load_acquire(tally.stop) == 0:
        total: u32 = 0
        index: u32 = 0
        while index < count:
            taken: u32 = take(tally, view(ReceiveQueue, queues[index]), packets)
            total += taken
            index += 1
        if total == 0:
            await_packets(bell, queues, count, _LOOK_NS)


@kernel(inline=True)
def take(tally: Tally, queue: ReceiveQueue, packets: Array[u64]) -> u32:
    """Note a burst of packets; return how many there were."""
    count: u32 = acquire(queue, packets, _BURST)
    i: u32 = 0
    while i < count:
        packet = view(Buffer, packets[i])
        note(tally, array_at(u8, packet.data), packet.length)
        i += 1
    give_back_all(queue, packets, count)
    return count


@kernel
def note_on_driver(context: u64, frame: u64, length: u32, verdict: u64) -> None:
    """Note a frame that the driver has just taken off the ring, in place; a FrameFunction."""
    note(view(Tally, context), array_at(u8, frame), length)


@dataclass(frozen=True, slots=True)
class NicReceiver:
    """A Nic, its tallies and all its threads."""

    nic: Nic
    tallies: list[TallySheet]
    threads: frozenset[int]

    def read_wakes(self) -> Wakes | None:
        """Return what the driver's statistics count."""
        read = self.nic.read_statistics()
        return Wakes(read.interrupts, read.wakeups + read.pauses)


@contextmanager
def _with_consumer(
    settings: NicSettings, read: Read, cable: Cable, queues: int, generator: Generator
) -> Iterator[Receiver]:
    with _opened(settings, cable, queues) as nic, nic.add_consumer(_GROUP, buffers=_BUFFERS) as consumer:
        nic.classifier.insert(FlowRule(_GROUP, {"udp.dst": DESTINATION_PORT}, ToConsumers(_GROUP)))
        sheet = TallySheet()
        consumers = Consumers([functools.partial(read, sheet, consumer)])
        try:
            yield NicReceiver(nic, [sheet], consumers.threads | frozenset(nic.thread_ids))
        finally:
            sheet.tally.stop = 1
            consumers.join(_STOP_LIMIT_S)


@contextmanager
def _with_function(settings: NicSettings, cable: Cable, queues: int, generator: Generator) -> Iterator[Receiver]:
    library, sheet = kernel_library(note_on_driver), TallySheet()
    with _opened(settings, cable, queues) as nic:
        action = Call(library.call_address(note_on_driver), sheet.tally.address)
        nic.classifier.insert(FlowRule(_GROUP, {"udp.dst": DESTINATION_PORT}, action))
        yield NicReceiver(nic, [sheet], frozenset(nic.thread_ids))


def read_native(sheet: TallySheet, consumer: Consumer) -> None:
    """Consume in machine code."""
    queues = consumer.queues
    addresses = (ctypes.c_uint64 * len(queues))(*(queue.address for queue in queues))
    kernel_library(consume).bind(consume)(sheet.tally, consumer.bell, addresses, len(queues))


def read_python(sheet: TallySheet, consumer: Consumer) -> None:
    """Consume in Python, burst by burst, with numpy; treat each packet as `kernels.note` does."""
    tally, latencies = sheet.tally, sheet.memory
    rows, lengths = np.zeros((_BURST, MOST_BYTES), np.uint8), np.zeros(_BURST, np.uint32)
    while not tally.stop:
        count = consumer.receive_into(rows, lengths)
        if count == 0:
            consumer.wait(_LOOK_S)
            continue
        now_ns = time.monotonic_ns()
        stamps = rows[:count, STAMP_OFFSET : STAMP_OFFSET + STAMP_BYTES].copy().view(">u8")
        stamped_ns = stamps[stamps[:, 0] == MAGIC, 1]
        sent_ns = stamped_ns[stamped_ns > 0][: len(latencies) - tally.timed]
        latencies[tally.timed : tally.timed + len(sent_ns)] = now_ns - sent_ns
        tally.timed += len(sent_ns)
        tally.received += len(stamped_ns)


def _opened(settings: NicSettings, cable: Cable, queues: int) -> Nic:
    """Open the receiver's end: one driver thread for all queues, as there is one processor for the receiver."""
    chosen = replace(settings, queues=queues, threads=1)
    nic = namespaces.call(cable.receiver, lambda: open_nic(cable.sink, chosen))
    pin(nic.thread_ids)
    return nic


def available_sides() -> dict[str, Open]:
    """Return our receivers by name, those over DPDK only where it is installed."""
    sides: dict[str, Open] = {
        "hybrid": functools.partial(_with_consumer, NicSettings.balanced(), read_native),
        "hybrid, Python": functools.partial(_with_consumer, NicSettings.balanced(), read_python),
        "hybrid, function": functools.partial(_with_function, NicSettings.balanced()),
        "low latency": functools.partial(_with_consumer, NicSettings.low_latency(), read_native),
        "low latency, function": functools.partial(_with_function, NicSettings.low_latency()),
        "throughput": functools.partial(_with_consumer, NicSettings.throughput(), read_native),
        "throughput, function": functools.partial(_with_function, NicSettings.throughput()),
        "polling": functools.partial(_with_function, NicSettings(mode=Mode.POLLING)),
        "waiting": functools.partial(_with_consumer, NicSettings(mode=Mode.WAITING), read_native),
    }
    kinds = {"AF_XDP": PortKind.XDP}
    if _has_dpdk():
        kinds["DPDK"] = PortKind.DPDK
    for name, kind in kinds.items():
        sides[f"{name} hybrid"] = functools.partial(_with_consumer, NicSettings.balanced(kind), read_native)
        sides[f"{name} polling"] = functools.partial(_with_function, NicSettings(kind, mode=Mode.POLLING))
    return sides


def _has_dpdk() -> bool:
    """Return whether DPDK and what builds on it are installed."""
    try:
        load_shim()
    except PortError:
        return False
    return True
