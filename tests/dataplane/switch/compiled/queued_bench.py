"""A native switch with several workers on ports that have a queue for each, all in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from dataplane.local.deadline import LocalDeadline
from dataplane.nic import NicPort, memory_pair
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.compiled.activity import Forwarding
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.traffic import PortSettings
from tests.waiting import wait_until

PROGRAMS = Path(__file__).parents[2] / "programs"
DEADLINE_S = 30.0
NOT_PACKETS = ("digest_queue_full", "no_digest_receiver", "packet_out_full", "receiver_failed", "cable_full")
"""Drops of frames that are not packets yet, or no longer."""


def own_program(name: str) -> Program:
    """Return one of the test programs."""
    return load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


def settle(switch: NativeSwitch, sent: int) -> None:
    """Wait until a switch has received this many frames in total, and none is queued, on a cable or in processing."""

    def is_quiet() -> bool:
        ports = switch.counters().ports.values()
        received = sum(port.rx_frames for port in ports)
        waiting = sum(port.queued_frames for port in ports)
        return received == sent and waiting == switch.packets_in_use == switch.in_flight == 0

    wait_until_between_bursts(switch, is_quiet, f"frames are left lying: {switch.counters()}")


def wait_until_between_bursts(switch: NativeSwitch, condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds for a switch with no burst in progress.

    A burst is counted as received before it is queued, and leaves the queue before it is sent.
    """

    def holds() -> bool:
        if not condition():
            return False
        with switch.paused():
            return condition()

    wait_until(holds, what)


class QueuedBench:
    """A running switch; the test names the queue by which frames enter a port."""

    def __init__(
        self, ports: Iterable[PortSettings], threads: int, replaced: Mapping[int, NicPort] | None = None
    ) -> None:
        settings = tuple(ports)
        self.threads = threads
        replaced = replaced or {}
        self._pairs = {
            port.number: [
                memory_pair((f"s{port.number}.{queue}", f"t{port.number}.{queue}")) for queue in range(threads)
            ]
            for port in settings
            if port.number not in replaced
        }
        self._near = {
            number: NicPort(f"s{number}", [channel for near, _ in pairs for channel in near._channels])
            for number, pairs in self._pairs.items()
        }
        devices = {**self._near, **replaced}
        self.switch = NativeSwitch(1, settings, devices, seed=7, forwarding=Forwarding(threads=threads))
        self.sent: Counter[int] = Counter()

    def __enter__(self) -> QueuedBench:
        self.switch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.switch.close()
        for port in (*self._near.values(), *(far for pairs in self._pairs.values() for _, far in pairs)):
            port.close()

    def send(self, port: int, queue: int, frames: Sequence[bytes]) -> None:
        """Send all frames into one queue of a port, waiting for room."""
        left = list(frames)
        deadline = LocalDeadline(DEADLINE_S, "a test")
        while left:
            taken = self._pairs[port][queue][1].send(left)
            del left[:taken]
            self.sent[port] += taken
            if left:
                assert not deadline.has_passed(), "the switch takes no more frames"
                time.sleep(0)

    def receive(self) -> dict[int, list[bytes]]:
        """Return what the switch has sent since the last call, by port."""
        return {
            number: [frame for _, far in pairs for frame in far.receive(100_000)]
            for number, pairs in self._pairs.items()
        }

    def settle(self) -> None:
        """Wait until everything sent was received and has left, or was dropped."""
        settle(self.switch, self.sent.total())

    def assert_accounted(self) -> None:
        """Check that what came in, and the copies made, were sent, wait, or were dropped under a name."""
        with self.switch.paused():
            counters, copies, in_use = self.switch.counters(), self.switch.copies, self.switch.packets_in_use
        ports = counters.ports.values()
        drops = Counter(counters.drops)
        for port in ports:
            drops.update(port.drops)
        for name in NOT_PACKETS:
            drops.pop(name, None)
        received, sent = sum(port.rx_frames for port in ports), sum(port.tx_frames for port in ports)
        queued = sum(port.queued_frames for port in ports)
        assert received + copies == sent + queued + drops.total(), counters
        assert in_use == queued
