"""Two hosts with a row of bridges or switches between them, over veth cables without offloads."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

from pyroute2 import IPRoute

from dataplane.errors import FabricError
from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.links import CableEnd, address_host, bring_up, connect, prepare_host, silence
from dataplane.fabric.kernel.manifest import held_namespaces
from dataplane.topology.values import HostNode

MTU = 1_500
NEAR, FAR = 1, 2
"""Ports of each switch: towards the client, towards the server."""
DEVICE = "eth0"
CLIENT = HostNode("client", 0x02_00_00_00_01_01, IPv4Address("10.0.1.1"))
SERVER = HostNode("server", 0x02_00_00_00_02_02, IPv4Address("10.0.2.2"))
_FIRST_MAC = 0x02_00_00_00_03_00
_START_S, _OVERTIME_S, _POLL_S = 10.0, 20, 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a switch: its namespace, and its devices by port."""

    switch: str
    ports: dict[int, str]


@dataclass(frozen=True, slots=True)
class TcpPath:
    """The hosts' namespaces, and the places between them in order."""

    client: str
    server: str
    places: tuple[Place, ...]


@contextmanager
def tcp_path(length: int) -> Iterator[TcpPath]:
    """Set up hosts and cables for this many switches while the `with` block lasts; needs root."""
    client, middle, server = (f"tcp-{name}-{os.getpid()}" for name in ("client", "switches", "server"))
    places = tuple(Place(middle, {NEAR: f"s{number}-near", FAR: f"s{number}-far"}) for number in range(1, length + 1))
    between = [(middle, hop.ports[port]) for hop in places for port in (NEAR, FAR)]
    macs = [CLIENT.mac, *range(_FIRST_MAC, _FIRST_MAC + len(between)), SERVER.mac]
    ends = [(client, DEVICE), *between, (server, DEVICE)]
    cable_ends = [CableEnd(*end, mac, MTU) for end, mac in zip(ends, macs, strict=True)]
    with held_namespaces(client, middle, server):
        silence(middle)
        prepare_host(client, CLIENT)
        prepare_host(server, SERVER)
        for near, far in zip(cable_ends[::2], cable_ends[1::2], strict=True):
            connect(near, far)
        for namespace, device in ends:
            bring_up(namespace, [device])
        # The other host's own address: bridging does not change it.
        address_host(client, DEVICE, CLIENT, SERVER.mac)
        address_host(server, DEVICE, SERVER, CLIENT.mac)
        yield TcpPath(client, server, places)


@contextmanager
def bridged(path: TcpPath) -> Iterator[None]:
    """Have the kernel's own bridge in each place while the `with` block lasts."""
    with ExitStack() as stack:
        for number, hop in enumerate(path.places, 1):
            name = f"bridge{number}"
            namespaces.call(hop.switch, functools.partial(_add_bridge, name, hop.ports.values()))
            stack.callback(namespaces.call, hop.switch, functools.partial(_remove, name))
        yield


def _add_bridge(name: str, devices: Iterable[str]) -> None:
    with IPRoute() as netlink:
        netlink.link("add", ifname=name, kind="bridge")
        (bridge,) = netlink.link_lookup(ifname=name)
        for device in devices:
            (port,) = netlink.link_lookup(ifname=device)
            netlink.link("set", index=port, master=bridge)
        netlink.link("set", index=bridge, state="up")


def _remove(name: str) -> None:
    with IPRoute() as netlink:
        netlink.link("del", ifname=name)


def iperf_bps(path: TcpPath, seconds: int) -> float:
    """Return the bits a second that iperf3's server received over one connection; raise FabricError."""
    with namespaces.start(path.server, ["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL) as server:
        try:
            return _client_bps(
                path, ["iperf3", "--client", str(SERVER.ipv4), "--time", str(seconds), "--json"], seconds
            )
        finally:
            server.kill()


def _client_bps(path: TcpPath, command: Sequence[str], seconds: int) -> float:
    """Run the client; until the server listens, it is refused."""
    limit_s = time.monotonic() + _START_S
    while True:
        with namespaces.start(path.client, command, stdout=subprocess.PIPE) as client:
            try:
                out, _ = client.communicate(timeout=seconds + _OVERTIME_S)
            except subprocess.TimeoutExpired as error:
                client.kill()
                raise FabricError(f"iperf3 did not end in {seconds + _OVERTIME_S} s") from error
        report = json.loads(out)
        if "error" not in report:
            return float(report["end"]["sum_received"]["bits_per_second"])
        if time.monotonic() > limit_s:
            raise FabricError(f"iperf3: {report['error']}")
        time.sleep(_POLL_S)
