"""Names instead of hosts over a virtual leaf-spine: routes that producers announce, and copies on the way to them."""

from __future__ import annotations

import pytest

from controller.apps.demo.store.world import Client, Server, World
from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.tables.store import Copied
from dataplane.store.dialogues import Content, reading, recording, writing
from dataplane.store.names import digest, prefix_of
from dataplane.topology.families import leaf_spine
from dataplane.wire.store import Kind, Message

MS = 1_000_000
INTERVAL_NS = 10 * MS
LONG = bytes(range(256)) * 40  # ten blocks, under its hash
PARAMETERS = RecordedSettings(name="/job/parameters", bytes=20_000, writers=("h1",), server="h8")


@pytest.fixture(scope="module")
def world() -> World:
    """Return four racks of two hosts, whose switches copy from producers on h8 and h7."""
    settings = StoreSettings(
        producers=("h8", "h7"),
        recorded=(PARAMETERS,),
        interval_ns=INTERVAL_NS,
        on_the_way=True,
        announced_for_ns=500 * MS,
    )
    return World(leaf_spine(2, 4, 2), settings)


@pytest.fixture(scope="module")
def producers(world: World) -> tuple[Server, Server]:
    return Server(world, "h8"), Server(world, "h7")


@pytest.fixture
def servers(world: World, producers: tuple[Server, Server]) -> tuple[Server, Server]:
    """Return the producers, whose announcements are news: those of earlier tests may have ended."""
    first, second = producers
    announced = ((first, "/model"), (second, "/model/second"), (second, "/other"))
    for server, prefix in announced:
        server.announce(prefix)
        world.run(110 * MS)  # a switch takes one announcement of a port in 100 ms
    return first, second


def spine_bytes(world: World) -> int:
    """Return what the spines have sent."""
    spines = (node.name for node in world.topology.switches if node.name.startswith("spine"))
    ports = (port for spine in spines for port in world.fabric.switch(spine).counters().ports.values())
    return sum(port.tx_bytes for port in ports)


def test_readers_find_a_name_without_knowing_its_producer(world: World, servers: tuple[Server, Server]) -> None:
    for server, name in zip((*servers, servers[1]), ("/model/a", "/model/second/b", "/other/c/d"), strict=True):
        server.producer_core.publish(name, name.encode(), world.fabric.now_ns)
        content = Client(world, "h1", None).talk(reading(name))
        assert isinstance(content, Content)
        assert content.value == name.encode()
    before = [server.interests for server in servers]
    Client(world, "h3", None).talk(reading("/model/second/b"))
    assert [server.interests - told for server, told in zip(servers, before, strict=True)] == [0, 1]


def test_blocks_are_answered_at_the_readers_own_switch(world: World, servers: tuple[Server, Server]) -> None:
    servers[0].producer_core.publish("/model/long", LONG, world.fabric.now_ns)
    client = Client(world, "h2", None, port=31_000)
    for _ in range(30):
        before = spine_bytes(world)
        content = client.talk(reading("/model/long"))
        assert isinstance(content, Content)
        assert content.value == LONG
        sent = spine_bytes(world) - before
        world.run(4 * MS)
    assert sent < 3 * 1200  # the first segment there and back, and the fabric's own packets; not ten blocks
    copies = [placed for placed in world.stores["leaf1"].held().placed.values() if isinstance(placed, Copied)]
    assert len(copies) == 10
    assert all(copy.segment.number >= 1 for copy in copies)


def test_a_write_is_read_at_once_through_copies_on_the_way(world: World, servers: tuple[Server, Server]) -> None:
    reader, writer = Client(world, "h4", None, port=31_001), Client(world, "h5", "h8", port=31_002)
    for number in range(1, 6):
        value = bytes([number]) * 5000
        writer.talk(writing("/model/changing", value))
        for _ in range(6):
            content = reader.talk(reading("/model/changing"))
            assert isinstance(content, Content)
            assert content.value == value
            world.run(3 * MS)


def test_recorded_names_are_copied_nowhere_else(world: World, servers: tuple[Server, Server]) -> None:
    writer, reader = Client(world, "h1", "h8", port=31_003), Client(world, "h3", "h8", port=31_004)
    writer.talk(recording("/job/parameters", LONG, version=1))
    for _ in range(20):
        assert reader.talk(reading("/job/parameters")) == Content(LONG, 1)
        world.run(3 * MS)
    for switch in ("leaf1", "leaf2", "spine1", "spine2"):
        assert digest("/job/parameters") not in {segment.name for segment in world.stores[switch].held().placed}


def test_a_host_that_is_no_producer_announces_nothing(world: World, servers: tuple[Server, Server]) -> None:
    Server(world, "h2").announce("/stolen")
    world.run(20 * MS)
    assert not any(prefix.first == prefix_of("/stolen").first for prefix in world.stores.routes.at(world.fabric.now_ns))


def test_a_route_ends_with_its_announcements(world: World, servers: tuple[Server, Server]) -> None:
    servers[0].announce("/model")
    world.run(300 * MS)
    servers[0].announce("/model")
    world.run(300 * MS)
    routes = world.stores.routes.at(world.fabric.now_ns)
    assert prefix_of("/model").first in {prefix.first for prefix in routes}
    assert prefix_of("/other").first not in {prefix.first for prefix in routes}


def test_announcements_are_acknowledged_and_limited(world: World) -> None:
    heard: list[Message] = []
    client = Client(world, "h8", None, port=31_005)
    for number in range(3):
        client.send((0, 0), Message(Kind.ANNOUNCE, 0, number=number), heard.append)
        world.run(MS)
    assert [message.kind for message in heard] == [Kind.PUT_ACK]
