"""A flow, always received by the same queue, leaves in order whichever worker serves the port."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dataplane.nic import NicPort
from dataplane.nic.ports.socket_port import MessageSocket
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import QueuedBench, own_program
from tests.waiting import wait_until

ROUNDS = 1_500
FRAME_BYTES = 64
NUMBER_BYTES = 8


@dataclass
class Receiver:
    """A datagram socket that every queue of a port sends to, so that all frames stand in one line."""

    path: Path
    last: dict[int, int] = field(default_factory=dict)
    frames: int = 0
    overtaken: list[tuple[int, int, int]] = field(default_factory=list)
    stopping: bool = False

    def __post_init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(0.2)
        self.thread = threading.Thread(target=self._receive)
        self.thread.start()

    def port(self, queues: int) -> NicPort:
        """Return a port with all queues connected here."""
        channels = []
        for _ in range(queues):
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            opened.connect(str(self.path))
            opened.setblocking(False)
            channels.append(MessageSocket(opened, 256, 1 << 12))
        return NicPort("out", channels)

    def close(self) -> None:
        self.stopping = True
        self.thread.join()
        self.socket.close()

    def _receive(self) -> None:
        while not self.stopping:
            try:
                frame = self.socket.recv(1 << 12)
            except TimeoutError:
                continue
            flow, number = frame[-NUMBER_BYTES - 1], int.from_bytes(frame[-NUMBER_BYTES:], "big")
            if number <= self.last.get(flow, -1):
                self.overtaken.append((flow, self.last[flow], number))
            self.last[flow] = number
            self.frames += 1


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path / "socket")
    yield made
    made.close()


def frame_of(flow: int, number: int) -> bytes:
    """Return a frame for `copies.p4` that leaves by port 2, with its flow and number at the end."""
    return bytes(FRAME_BYTES - NUMBER_BYTES - 1) + bytes([flow]) + number.to_bytes(NUMBER_BYTES, "big")


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_flows_stay_in_order(receiver: Receiver, threads: int) -> None:
    """Few frames at a time, for which the socket always has room: the workers compete for the port."""
    out = receiver.port(threads)
    with QueuedBench([PortSettings(1), PortSettings(2, queue_frames=4096)], threads, {2: out}) as bench:
        bench.switch.commit(own_program("copies"))
        for number in range(0, 2 * ROUNDS, 2):
            for flow in range(threads):
                bench.send(1, flow, [frame_of(flow, number), frame_of(flow, number + 1)])
            sent = (number + 2) * threads
            wait_until(lambda sent=sent: receiver.frames == sent, "frames are lost")  # type: ignore[misc]
        bench.assert_accounted()
    out.close()
    assert receiver.overtaken == []


@pytest.mark.parametrize("threads", [2, 4])
def test_flows_stay_in_order_where_the_device_pushes_back(receiver: Receiver, threads: int) -> None:
    """The socket is mostly full: frames wait in one worker's queue, and no other worker's overtake them."""
    out = receiver.port(threads)
    ports = [PortSettings(1), PortSettings(2, queue_frames=4 * ROUNDS * threads)]  # no frame finds it full
    with QueuedBench(ports, threads, {2: out}) as bench:
        bench.switch.commit(own_program("copies"))
        for number in range(0, 4 * ROUNDS, 4):
            for flow in range(threads):
                bench.send(1, flow, [frame_of(flow, number + index) for index in range(4)])
        bench.settle()
        bench.assert_accounted()
        wait_until(lambda: not any(queue.tx_pending for queue in out.queues), "frames are left lying in a queue")
        reading = out.read_counters()
    wait_until(lambda: receiver.frames == reading.tx_frames, "frames are lost")
    out.close()
    assert reading.tx_frames + sum(reading.drops.values()) == 4 * ROUNDS * threads
    assert receiver.overtaken == []
