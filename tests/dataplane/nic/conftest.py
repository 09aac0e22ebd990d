"""A network namespace with a veth pair, made and removed by each test that asks for it."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.nic.dpdk.shim import load_shim
from tests.network_namespace import network_namespace

T = TypeVar("T")
PATIENCE_S = 10.0


def why_no_dpdk() -> str:
    """Return why this machine has no ports of kind DPDK, "" if it has."""
    try:
        load_shim()
    except PortError as error:
        return str(error)
    return ""


needs_dpdk = pytest.mark.skipif(bool(why_no_dpdk()), reason=why_no_dpdk())


@dataclass(frozen=True, slots=True)
class Cable:
    """A pair `here` - `there` in a namespace of its own."""

    namespace: str

    def call(self, function: Callable[[], T]) -> T:
        """Run a function inside the namespace."""
        return namespaces.call(self.namespace, function)

    def open(
        self,
        device: str,
        kind: PortKind = PortKind.PACKET_V2,
        queues: int = 1,
        settings: RingSettings | None = None,
    ) -> NicPort:
        """Open one end."""
        return self.call(lambda: open_port(device, kind, queues, settings))

    def change(self, device: str, command: str = "set", **values: object) -> None:
        """Change or delete a device."""

        def act() -> None:
            with IPRoute() as netlink:
                netlink.link(command, index=netlink.link_lookup(ifname=device)[0], **values)

        self.call(act)


@pytest.fixture
def make_cable() -> Iterator[Callable[..., Cable]]:
    """Make cables with an MTU and a number of queues."""
    with ExitStack() as stack:

        def make(mtu: int = 2000, queues: int = 1) -> Cable:
            made = network_namespace(("here", "there"), mtu=mtu, queues=queues)
            return Cable(stack.enter_context(made))

        yield make


@pytest.fixture
def cable(make_cable: Callable[..., Cable]) -> Cable:
    """A cable with an MTU of 2000 bytes."""
    return make_cable()


def receive(port: NicPort, count: int) -> list[bytes]:
    """Wait for this many frames, as long as some keep coming."""
    frames: list[bytes] = []
    while len(frames) < count and select.select([port], [], [], 2.0)[0]:
        frames += port.receive(64)
    return frames


def total_bytes(frames: Sequence[bytes]) -> int:
    return sum(map(len, frames))
