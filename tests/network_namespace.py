"""Network namespaces that a test has to itself, with veth pairs in them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.manifest import held_namespaces
from dataplane.nic.devices import ethernet


@contextmanager
def network_namespace(*pairs: tuple[str, str], mtu: int = 1500, queues: int | None = None) -> Iterator[str]:
    """Yield the name of a namespace with these veth pairs, up at both ends and silent; skip the test without root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    name = f"mr-test-{secrets.token_hex(3)}"
    with held_namespaces(name):
        for near, far in pairs:
            namespaces.call(name, lambda near=near, far=far: add_pair(near, far, mtu, queues))  # type: ignore[misc]
        yield name


def add_pair(near: str, far: str, mtu: int = 1500, queues: int | None = None) -> None:
    """Add a veth pair to the present namespace, where no device speaks IPv6 from now on, and set both ends up."""
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    each = {"mtu": mtu} if queues is None else {"mtu": mtu, "num_rx_queues": queues, "num_tx_queues": queues}
    with IPRoute() as netlink:
        netlink.link("add", ifname=near, kind="veth", **each, peer={"ifname": far, **each})
    for device in (near, far):
        ethernet.set_up(device, is_up=True)
