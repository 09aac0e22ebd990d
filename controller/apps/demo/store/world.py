"""Hosts of a virtual fabric that serve, read and write named content, and switches that keep copies of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address

from controller.network.content.settings import StoreSettings
from controller.network.content.stores import Stores
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.errors import WireError
from dataplane.fabric.virtual import VirtualFabric
from dataplane.store.content_database import ContentDatabase
from dataplane.store.dialogues import Dialogue, T
from dataplane.store.names import prefix_of
from dataplane.store.producer_core import ProducerCore, ProducerSettings
from dataplane.store.proofs import Source
from dataplane.store.talk import Talk
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory
from dataplane.topology.addressing import gateway_mac
from dataplane.topology.values import Topology
from dataplane.wire import store as wire
from dataplane.wire.packet import udp_frame
from dataplane.wire.store import NAMES_ADDRESS, UDP_PORT, Kind, Message

US = 1_000
_PAYLOAD = 42
_SETTINGS = ProducerSettings(freshness_ms=60_000)
_FIRST_PORT = 30_000


class World:
    """A fabric whose switches hold content; `loss` is that of each packet of hosts, both ways."""

    def __init__(
        self,
        topology: Topology,
        settings: StoreSettings,
        *,
        loss: float = 0.0,
        seed: int = 1,
        pipeline_factory: PipelineFactory = compiled_pipeline,
    ) -> None:
        self.topology, self.settings, self.loss = topology, settings, loss
        self.chance = random.Random(seed)
        self.fabric = VirtualFabric(topology, pipeline_factory=pipeline_factory)
        self._schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
        self.sessions = {
            node.name: InProcessSession(node.name, node.node_id, self.fabric.p4runtime(node.name), self._schema)
            for node in topology.switches
        }
        self.controller = self._control()
        self.controller.start()

    @property
    def stores(self) -> Stores:
        """Known state of the switches."""
        assert self.controller.features.content is not None
        return self.controller.features.content.stores

    def run(self, duration_ns: int) -> None:
        """Let time pass."""
        self.fabric.run_until(self.fabric.now_ns + duration_ns)

    def carry(
        self, src: str, dst: IPv4Address, ports: tuple[int, int], message: Message, *, claims: str | None = None
    ) -> None:
        """Send a packet from a host, which may claim to be another, or lose it."""
        if self.chance.random() < self.loss:
            return
        node = self.topology.host[src]
        frame = udp_frame(
            src_mac=node.mac,
            dst_mac=gateway_mac(self.topology, src),
            src=self.topology.host[claims or src].ipv4,
            dst=dst,
            src_port=ports[0],
            dst_port=ports[1],
            payload=message.encode(),
        )
        self.fabric.host(src).send(frame[:40] + b"\0\0" + frame[42:])  # no checksum

    def _control(self) -> VirtualController:
        return VirtualController(
            self.topology,
            self.sessions,
            self.fabric.clock,
            self.fabric.call_at,
            watches=(),
            delays=WriteDelays(write_delay_ns=0),
            store=self.settings,
        )


class Server:
    """A producer on a host, with a fixed time per packet."""

    def __init__(
        self, world: World, host: str, *, service_ns: int = 10 * US, settings: ProducerSettings = _SETTINGS
    ) -> None:
        self._database, self._settings = ContentDatabase(":memory:"), settings
        self.producer_core = ProducerCore(self._database, settings, world.fabric.now_ns)
        self.interests = 0
        self._world, self._host, self._service_ns = world, host, service_ns
        self._free_ns = 0
        world.fabric.host(host).on_frame(self._receive)

    def close(self) -> None:
        """Close the stand-in for the disk."""
        self._database.close()

    def announce(self, prefix: str) -> None:
        """Announce a prefix of its names, once."""
        message = Message(Kind.ANNOUNCE, prefix_of(prefix).number)
        self._world.carry(self._host, IPv4Address(NAMES_ADDRESS), (UDP_PORT, UDP_PORT), message)

    def start_again(self) -> None:
        """Forget everything that is not on the disk."""
        self.producer_core = ProducerCore(self._database, self._settings, self._world.fabric.now_ns)

    def _receive(self, frame: bytes, now_ns: int) -> None:
        # The UDP destination port: behind 14 bytes of Ethernet, 20 of IPv4 and the source port.
        if int.from_bytes(frame[36:38], "big") != UDP_PORT:
            return
        message = _message_in(frame)
        if message is None:
            return
        self.interests += message.kind is Kind.INTEREST
        address, port = int.from_bytes(frame[26:30], "big"), int.from_bytes(frame[34:36], "big")
        answer = self.producer_core.receive((address, port), message, now_ns)
        if answer is not None:
            self._free_ns = max(self._free_ns, now_ns) + self._service_ns
            back = partial(self._world.carry, self._host, IPv4Address(address), (UDP_PORT, port), answer)
            self._world.fabric.call_at(self._free_ns, back)


class Client:
    """A host that queries one server, or whoever has announced a name; the network of a `Talk`."""

    def __init__(self, world: World, host: str, server: str | None, *, port: int = _FIRST_PORT) -> None:
        self.chance = random.Random(f"{host}/{port}")
        self._world, self._host, self._port = world, host, port
        self._server = IPv4Address(NAMES_ADDRESS) if server is None else world.topology.host[server].ipv4
        self._is_by_name = server is None
        self._source = int(world.topology.host[host].ipv4), port
        self._backs: dict[int, Callable[[Message], None]] = {}
        world.fabric.host(host).on_frame(self._receive)

    @property
    def now_ns(self) -> int:
        """The fabric's time."""
        return self._world.fabric.now_ns

    def after(self, delay_ns: int, call: Callable[[], None]) -> object:
        """Call after a delay."""
        return self._world.fabric.call_after(delay_ns, call)

    def send(self, source: Source, message: Message, back: Callable[[Message], None]) -> None:  # noqa: ARG002 - known
        """Send a request to the server; its answers are passed back."""
        self._backs[message.number] = back
        self._world.carry(self._host, self._server, (self._port, UDP_PORT), message)

    def begin(self, dialogue: Dialogue[T]) -> Talk:
        """Begin a dialogue with the server."""
        return Talk(self, self._source, dialogue)

    def talk(self, dialogue: Dialogue[T]) -> object:
        """Carry out a dialogue, however long it takes; return its result or raise its error."""
        return self.timed(dialogue)[0]

    def timed(self, dialogue: Dialogue[T]) -> tuple[object, int]:
        """Carry out a dialogue; return its result, and how long it took in ns, or raise its error."""
        talk, began_ns = self.begin(dialogue), self.now_ns
        while not talk.is_over:
            self._world.run(10 * US)
        if talk.error is not None:
            raise talk.error
        return talk.result, talk.ended_ns - began_ns

    def _receive(self, frame: bytes, _now_ns: int) -> None:
        is_expected = self._is_by_name or frame[26:30] == self._server.packed
        if int.from_bytes(frame[36:38], "big") != self._port or not is_expected:
            return
        if self._world.chance.random() >= self._world.loss:
            message = _message_in(frame)
            back = None if message is None else self._backs.get(message.number)
            if message is not None and back is not None:
                back(message)


def _message_in(frame: bytes) -> Message | None:
    """Decode a frame; None for a malformed one, which sockets drop."""
    try:
        return wire.decode(frame, _PAYLOAD)
    except WireError:
        return None
