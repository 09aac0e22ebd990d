"""The daemon with a store over gRPC, a built-in switch, and frames of a reader and a producer."""

from __future__ import annotations

import asyncio
import logging
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from controller.common.errors import ControllerError
from controller.network.content.reconciler import StoreReconciler
from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.content.stores import Stores
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.process import serve
from controller.network.tables.store import Copied, Recorded
from dataplane.clock import MonotonicClock
from dataplane.store.content_database import ContentDatabase
from dataplane.store.names import Segment, digest
from dataplane.store.producer_core import ProducerCore, ProducerSettings
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.addressing import gateway_mac
from dataplane.wire import store as wire
from dataplane.wire.packet import udp_frame
from dataplane.wire.store import UDP_PORT, Kind, Message
from tests.integration.test_virtual_store import rack
from tests.waiting import finish_within, until

MS = 1_000_000
BOUND_S = 60.0
STORE = StoreSettings(
    producers=("h4",),
    recorded=(RecordedSettings(name="/kept", bytes=1500, writers=("h1",), server="h4"),),
    interval_ns=50 * MS,
)
TOPOLOGY = rack()


class Rack:
    """A switch with a reader at h1 and a producer at h4, whose frames are passed by hand."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._database = ContentDatabase(":memory:")
        self._producer = ProducerCore(self._database, ProducerSettings(freshness_ms=60_000), 0)
        for name in ("/a", "/b"):
            self._producer.publish(name, name.encode(), 0)
        self.start()

    def start(self) -> None:
        ports = [PortSettings(end.port) for end in TOPOLOGY.attachment.values()]
        self._switch = Switch(1, ports, MonotonicClock())
        self._server = P4RuntimeServer(P4RuntimeCore(self._switch), [self._address])
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def close(self) -> None:
        self.stop()
        self._database.close()

    def is_answered_by_the_switch(self, name: str) -> bool:
        """Request a name once; the producer answers what reaches it."""
        interest = Message(Kind.INTEREST, digest(name), content=bytes(1024), number=7)
        for port, frame in self._through("h1", "h4", (20_000, UDP_PORT), interest):
            if port == TOPOLOGY.attachment["h1"].port:
                return wire.decode(frame, 42).kind is Kind.DATA
            answer = self._producer.receive((1, 1), wire.decode(frame, 42), 0)
            assert answer is not None
            self._through("h4", "h1", (UDP_PORT, 20_000), answer)
        return False

    def _through(self, src: str, dst: str, ports: tuple[int, int], message: Message) -> list[tuple[int, bytes]]:
        hosts = TOPOLOGY.host
        addresses: tuple[IPv4Address, IPv4Address] = hosts[src].ipv4, hosts[dst].ipv4
        frame = udp_frame(
            src_mac=hosts[src].mac,
            dst_mac=gateway_mac(TOPOLOGY, src),
            src=addresses[0],
            dst=addresses[1],
            src_port=ports[0],
            dst_port=ports[1],
            payload=message.encode(),
        )
        self._switch.receive(TOPOLOGY.attachment[src].port, (frame[:40] + b"\0\0" + frame[42:],))
        return [(sent.port, sent.data) for sent in self._switch.advance(self._switch.now_ns())]


def test_daemon_copies_hot_names_and_recovers_restarted_switches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    address = f"unix:{tmp_path}/s1.sock"
    switch = Rack(address)
    settings = DaemonSettings(
        topology="unused",
        switches={"s1": address},
        store=STORE,
        retry=RetrySettings(first_wait_ns=10 * MS, longest_wait_ns=100 * MS),
    )

    async def scene() -> None:
        stop, keepers = asyncio.Event(), list[StoreReconciler]()
        running = asyncio.create_task(serve(settings, TOPOLOGY, MonotonicClock(), stop, on_store=keepers.append))
        await until(lambda: bool(keepers))
        (keeper,) = keepers
        store = keeper.store("s1")
        await until(lambda: switch.is_answered_by_the_switch("/a"))
        await until(lambda: Segment(digest("/a")) in store.held().placed)  # after the write is acknowledged
        kept = [entry for entry in store.held().placed.values() if isinstance(entry, Recorded)]
        assert [entry.segment for entry in kept] == [Segment(digest("/kept"), 0), Segment(digest("/kept"), 1)]
        before = {entry.generation for entry in store.held().placed.values()}

        switch.stop()
        switch.start()
        await until(lambda: switch.is_answered_by_the_switch("/a"))
        again = store.held().placed.values()
        assert {entry.segment for entry in again if isinstance(entry, Copied)} == {Segment(digest("/a"))}
        assert min(entry.generation for entry in again) > max(before)

        more = RecordedSettings(name="/more", bytes=10, writers=("h1", "h2"), server="h4")
        await keeper.record(more)
        assert Segment(digest("/more")) in store.held().placed
        keeper.forget(more)
        await until(lambda: Segment(digest("/more")) not in store.held().placed)
        switch.stop()
        await until(lambda: keeper.problem("s1") != "")
        with pytest.raises(ControllerError, match=r"/more: s1 not written within 0\.05 s: "):
            await keeper.record(more, deadline_s=0.05)
        stop.set()
        await running

    try:
        asyncio.run(finish_within(scene(), BOUND_S))
    finally:
        switch.close()
    assert not [record for record in caplog.records if record.exc_info and record.name.startswith("millrace")]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (StoreSettings(producers=("h9",)), "store: topology rack has no host 'h9'"),
        (
            StoreSettings(recorded=(RecordedSettings(name="/a", bytes=1, writers=("h9",), server="h1"),)),
            "store: topology rack has no host 'h9'",
        ),
        (
            StoreSettings(recorded=(RecordedSettings(name="a", bytes=1, writers=("h1",), server="h1"),)),
            "'a' is not a name: it begins with / and has no empty component",
        ),
        (
            StoreSettings(recorded=(RecordedSettings(name="/a", bytes=4095 * 1024, writers=("h1",), server="h1"),)),
            "/a: s1: 0 of 4095 cells are in use, 4096 more are needed",
        ),
    ],
)
def test_settings_that_do_not_fit_the_topology_are_refused(settings: StoreSettings, problem: str) -> None:
    with pytest.raises(ControllerError) as caught:
        Stores(TOPOLOGY, settings)
    assert str(caught.value) == problem
