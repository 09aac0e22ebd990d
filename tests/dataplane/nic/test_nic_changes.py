"""Consumers, producers and rules come and go while driver threads run at full speed; every frame is accounted for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from dataplane.nic import (
    Balance,
    Consumer,
    Drop,
    FlowRule,
    Mode,
    Nic,
    NicPort,
    NicSettings,
    Producer,
    ToConsumers,
    memory_pair,
    open_nic,
)
from dataplane.nic.flows.rules import Action
from tests.dataplane.nic.test_nic import assert_adds_up, has_received, udp
from tests.waiting import wait_until

CHANGES = 300
FLOWS = 8


class Changes:
    """Makes random changes to a Nic, and uses the results."""

    def __init__(self, nic: Nic, seed: int) -> None:
        self.nic, self.random = nic, random.Random(seed)
        self.consumers: list[Consumer] = []
        self.producers: list[Producer] = []
        self.rules: list[str] = []
        self.made = self.received = self.queued = 0

    def make_one(self) -> None:
        kinds: tuple[Callable[[], None], ...] = (
            self._join,
            self._leave,
            self._begin,
            self._end,
            self._rule,
            self._unrule,
        )
        self.made += 1
        self.random.choice(kinds)()
        for consumer in self.consumers:
            packets = consumer.receive(64)
            self.received += len(packets)
            for packet in packets:
                packet.release()
        for producer in self.producers:
            self.queued += producer.send(udp(1)) is not None

    def have_met_frames(self) -> bool:
        self.make_one()
        return self.received > 0 and self.queued > 0

    def _join(self) -> None:
        if len(self.consumers) < 6:
            group = f"group-{self.made % 2}"
            self.consumers.append(self.nic.add_consumer(f"consumer-{self.made}", group=group, buffers={64: 32}))
            self.nic.set_balance(group, self.random.choice(list(Balance)))

    def _leave(self) -> None:
        if self.consumers:
            self.consumers.pop(self.random.randrange(len(self.consumers))).close()

    def _begin(self) -> None:
        if len(self.producers) < 4:
            self.producers.append(self.nic.add_producer(f"producer-{self.made}", queue_packets=16))

    def _end(self) -> None:
        if self.producers:
            self.producers.pop(self.random.randrange(len(self.producers))).close()

    def _rule(self) -> None:
        name, port = f"rule-{self.made}", self.random.randrange(FLOWS)
        actions: list[Action] = [Drop(), ToConsumers("group-0"), ToConsumers("group-1")]
        action = self.random.choice(actions)
        self.nic.classifier.insert(FlowRule(name, {"udp.dst": port}, action, priority=self.made, count=True))
        self.rules.append(name)

    def _unrule(self) -> None:
        if self.rules:
            self.nic.classifier.remove(self.rules.pop(self.random.randrange(len(self.rules))))


class Load:
    """Sends continuously into one end of a cable, and receives the returned frames."""

    def __init__(self, port: NicPort) -> None:
        self.port = port
        self.sent = self.received = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        frames = [udp(flow) for flow in range(FLOWS)] * 8
        while not self._stop.is_set():
            self.sent += self.port.send(frames)
            self.received += len(self.port.receive(256))


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.name)
def test_nothing_is_lost_from_sight(mode: Mode) -> None:
    near, far = memory_pair(("near", "far"), slot_bytes=256)
    with far, open_nic(near, NicSettings(mode=mode)) as nic:
        nic.classifier.set_default(ToConsumers("group-0"))
        changes = Changes(nic, seed=mode)
        with Load(far) as load:
            for _ in range(CHANGES):
                changes.make_one()
            wait_until(changes.have_met_frames)
        wait_until(has_received(nic, load.sent))
        for producer in changes.producers:
            producer.close()
        wait_until(lambda: nic.read_statistics().manager.departed.queued == changes.queued)
        assert_adds_up(nic.read_statistics())
        left = nic.read_statistics().manager
        drops = left.departed.producer_drops
        assert changes.queued == left.departed.sent + drops["producer_left"] + drops["down"]
        assert load.received + len(far.receive(1024)) == nic.read_statistics().sent == left.departed.sent
    assert_adds_up(nic.read_statistics())
