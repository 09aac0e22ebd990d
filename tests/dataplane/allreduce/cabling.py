"""Two namespaces and a veth cable between them, for tests and benchmarks of the packet engine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.links import CableEnd, bring_up, connect


@contextmanager
def cabled(prefix: str, macs: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Yield two namespaces by the address that a device `eth0` has in each; no neighbour is known."""
    names = {address: f"{prefix}-{secrets.token_hex(3)}" for address in macs}
    with ExitStack() as stack:
        for name in names.values():
            namespaces.create(name)
            stack.callback(namespaces.remove, name)
        connect(*(CableEnd(names[address], "eth0", mac, 1500) for address, mac in macs.items()))
        for address, name in names.items():
            bring_up(name, ["eth0"])
            namespaces.call(name, lambda address=address: _give(address))  # type: ignore[misc]
        yield names


def _give(address: str) -> None:
    with IPRoute() as netlink:
        netlink.addr("add", index=netlink.link_lookup(ifname="eth0")[0], address=address, prefixlen=24)
