"""A Nic on a device: kinds, queues and modes, senders and receivers, faults, and a process that is killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataplane.errors import PortError
from dataplane.nic import Drop, FlowRule, Mode, Nic, NicPort, NicSettings, PortKind, ToConsumers, open_nic
from dataplane.nic.driver.connection import ConnectionRequest, bind, describe_port, request_connection
from dataplane.nic.driver.opening import DEVICE_KINDS
from tests.dataplane.nic.conftest import Cable
from tests.dataplane.nic.test_nic import assert_adds_up, has_received, udp
from tests.network_namespace import add_pair
from tests.waiting import wait_until

pytestmark = pytest.mark.root
ROOT = Path(__file__).parents[3]
PATIENCE_S = 10.0
HOLDER = """
import sys
from dataplane.nic import NicSettings, PortKind, open_nic
nic = open_nic("there", NicSettings(PortKind[sys.argv[1]]))
nic.add_consumer("all")
print("ready", flush=True)
sys.stdin.read()
"""


def open_there(cable: Cable, settings: NicSettings) -> Nic:
    return cable.call(lambda: open_nic("there", settings))


def send_all(port: NicPort, frames: list[bytes]) -> int:
    return sum(port.send(frames[start : start + 64]) for start in range(0, len(frames), 64))


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_every_frame_arrives_and_is_counted(cable: Cable, kind: PortKind, mode: Mode) -> None:
    with cable.open("here") as here, open_there(cable, NicSettings(kind, mode=mode)) as nic:
        assert (nic.info.interface, nic.info.kind, nic.info.longest_frame) == ("there", kind, 2014)
        consumer = nic.add_consumer("odd", buffers=8192)
        nic.classifier.insert(FlowRule("odd", {"udp.dst": 1}, ToConsumers("odd")))
        nic.classifier.set_default(Drop())
        for sent in range(1_000, 5_000, 1_000):
            # No more than the smallest ring holds: a busy machine may not run the thread for a while.
            assert send_all(here, [udp(number % 2) for number in range(1_000)]) == 1_000
            wait_until(has_received(nic, sent))
        statistics = nic.read_statistics()
        assert (statistics.handed_out, statistics.dropped["rule"]) == (2_000, 2_000)
        assert sum(statistics.missed.values()) == 0
        assert_adds_up(statistics)
        packets = consumer.receive(4_000)
        assert len(packets) == 2_000
        assert {bytes(packet) for packet in packets} == {udp(1)}


def test_several_queues_share_the_load_and_keep_flows_in_order(cable: Cable) -> None:
    settings = NicSettings(queues=4, threads=2)
    with cable.open("here") as here, open_there(cable, settings) as nic:
        assert len(nic.thread_ids) == 2
        consumer = nic.add_consumer("all", buffers=16_384)
        nic.classifier.set_default(ToConsumers("all"))
        frames = [udp(flow, sequence.to_bytes(18, "big")) for sequence in range(100) for flow in range(1, 65)]
        assert send_all(here, frames) == len(frames)
        wait_until(lambda: nic.read_statistics().received == len(frames))
        statistics = nic.read_statistics()
        assert [thread.queues for thread in statistics.threads] == [(0, 2), (1, 3)]
        assert all(thread.received for thread in statistics.threads)
        assert sum(queue.received > 0 for queue in statistics.queues) >= 3
        assert_adds_up(statistics)
        seen: dict[bytes, list[int]] = {}
        for packet in consumer.receive(len(frames)):
            frame = bytes(packet)
            seen.setdefault(frame[36:38], []).append(int.from_bytes(frame[42:], "big"))
        assert seen == {flow.to_bytes(2, "big"): [*range(100)] for flow in range(1, 65)}


@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_what_producers_send_leaves_and_is_reported(cable: Cable, kind: PortKind) -> None:
    with open_there(cable, NicSettings(queues=1)) as receiver:
        sender = cable.call(lambda: open_nic("here", NicSettings(kind)))
        with sender:
            got = receiver.add_consumer("all")
            receiver.classifier.set_default(ToConsumers("all"))
            producers = [sender.add_producer(f"worker-{number}") for number in range(3)]
            for number in range(50):
                positions = [producer.send(udp(number)) for producer in producers]
            for producer, position in zip(producers, positions, strict=True):
                assert position is not None
                assert producer.wait_sent(position, PATIENCE_S)
            wait_until(lambda: receiver.read_statistics().received == 150)
            assert sender.read_statistics().sent == 150
            assert sum(sender.read_statistics().not_sent.values()) == 0
            assert len(got.receive(200)) == 150


def test_device_that_goes_down_is_noticed_and_recovers(cable: Cable) -> None:
    with cable.open("here") as here, open_there(cable, NicSettings()) as nic:
        nic.classifier.set_default(Drop())
        cable.change("there", state="down")
        wait_until(lambda: nic.is_down)
        cable.change("there", state="up")
        wait_until(lambda: not nic.is_down)

        def arrives() -> bool:
            here.send([udp(1)])
            return nic.read_statistics().received > 0

        wait_until(arrives)


def test_a_cable_whose_other_end_is_down_has_no_link(cable: Cable) -> None:
    with open_there(cable, NicSettings()) as nic:
        assert nic.has_link
        cable.change("here", state="down")
        wait_until(lambda: not nic.has_link)
        assert not nic.is_down


def test_a_device_that_is_gone_keeps_nobody_busy_and_closes(cable: Cable) -> None:
    with open_there(cable, NicSettings()) as nic:
        cable.change("there", "del")
        wait_until(lambda: nic.is_down)
        wait_until(lambda: nic.read_statistics().threads[0].is_waiting)
        producer = nic.add_producer("late")
        position = producer.send(udp(1))
        assert position is not None
        assert producer.wait_sent(position, PATIENCE_S)
        assert producer.read().sent == 0
        polls = nic.read_statistics().polls
        wait_until(lambda: nic.read_statistics().threads[0].is_waiting)
        assert nic.read_statistics().polls - polls < 1_000


@pytest.mark.parametrize(
    ("settings", "device", "problem"),
    [
        (NicSettings(), "gone", "interface gone: no such device in this network namespace"),
        (NicSettings(PortKind.XDP, queues=2), "there", "interface there: has 1 receive queues"),
        (NicSettings(PortKind.MEMORY), "there", "interface there: ports of kind MEMORY have no device"),
    ],
)
def test_devices_that_cannot_be_bound_say_why(cable: Cable, settings: NicSettings, device: str, problem: str) -> None:
    with pytest.raises(PortError, match=problem):
        cable.call(lambda: open_nic(device, settings))


def test_a_driver_binds_to_what_the_device_answered(cable: Cable) -> None:
    answer = cable.call(lambda: request_connection(ConnectionRequest("there", PortKind.PACKET_V3)))
    assert (answer.interface, answer.kind, answer.queues) == ("there", PortKind.PACKET_V3, 1)
    with cable.call(lambda: bind(answer)) as port:
        bound = describe_port(port, answer.rings, answer.index)
        assert bound == dataclasses.replace(answer, longest_frame=2014)
    cable.change("there", "del")
    cable.call(lambda: add_pair("here", "there", queues=1))
    with pytest.raises(PortError, match="interface there: was replaced by another device"):
        cable.call(lambda: bind(answer))


def test_a_device_that_is_down_says_so(cable: Cable) -> None:
    cable.change("there", state="down")
    with pytest.raises(PortError, match="interface there is down"):
        open_there(cable, NicSettings())


@pytest.mark.parametrize("kind", DEVICE_KINDS, ids=lambda kind: kind.name)
def test_a_killed_process_leaves_the_device_free(cable: Cable, kind: PortKind) -> None:
    command = [sys.executable, "-c", HOLDER, kind.name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    holder = cable.call(
        lambda: subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with cable.open("here") as here, open_there(cable, NicSettings(kind)) as nic:
        nic.classifier.set_default(Drop())
        here.send([udp(1)] * 10)
        wait_until(lambda: nic.read_statistics().received == 10)
