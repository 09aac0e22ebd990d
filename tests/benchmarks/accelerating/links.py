"""Machines that are namespaces on one bridge, with links shaped by TBF both ways."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Final, Self

from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.manifest import held_namespaces

BURST_BYTES: Final = 32 << 10
QUEUE_BYTES: Final = 16 << 20
"""As much as all senders of a round may have on the way: no frame is lost."""
GOODPUT: Final = 1448 / 1514
"""TCP's payload in a frame of 1,500 bytes with time stamps, as TBF counts it, with the Ethernet header."""


class Links:
    """A number of machines plus a link for the client, while the `with` block lasts; needs root."""

    def __init__(self, count: int) -> None:
        self._prefix = f"mr-ratio-{secrets.token_hex(3)}"
        self.addresses = tuple(f"10.77.0.{index + 1}" for index in range(count))
        self.namespaces = tuple(f"{self._prefix}-{index}" for index in range(count))
        self.coordinator = f"{self._prefix}-c"
        self._bridge = f"{self._prefix}-b"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(held_namespaces(self._bridge, self.coordinator, *self.namespaces))
            namespaces.call(self._bridge, _make_bridge)
            ends = [(self.coordinator, "10.77.0.250"), *zip(self.namespaces, self.addresses, strict=True)]
            for index, (name, address) in enumerate(ends):
                self._attach(name, f"p{index}", address)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def shape(self, rate_bps: float | None) -> None:
        """Have all machines' links carry so much in each direction, or as much as they can."""
        for index, name in enumerate(self.namespaces):
            namespaces.call(name, partial(_shape, "eth0", rate_bps))
            namespaces.call(self._bridge, partial(_shape, f"p{index + 1}", rate_bps))

    def _attach(self, name: str, port: str, address: str) -> None:
        namespaces.call(self._bridge, partial(_make_port, port, name))
        namespaces.call(name, partial(_address, address))


def _make_bridge() -> None:
    with IPRoute() as netlink:
        netlink.link("add", ifname="b0", kind="bridge", br_stp_state=0)
        netlink.link("set", ifname="b0", state="up")


def _make_port(port: str, namespace: str) -> None:
    """Make a cable between the bridge, whose namespace this is, and a machine's."""
    with IPRoute() as netlink, namespaces.open_namespace(namespace) as there:
        netlink.link("add", ifname=port, kind="veth", peer={"ifname": "eth0", "net_ns_fd": there.fileno()})
        bridge = netlink.link_lookup(ifname="b0")[0]
        netlink.link("set", ifname=port, master=bridge, state="up")


def _address(address: str) -> None:
    with IPRoute() as netlink:
        device = netlink.link_lookup(ifname="eth0")[0]
        netlink.addr("add", index=device, address=address, prefixlen=24)
        netlink.link("set", index=device, state="up")
        netlink.link("set", ifname="lo", state="up")


def _shape(device: str, rate_bps: float | None) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        if any(get_qdisc.get_attr("TCA_KIND") == "tbf" for get_qdisc in netlink.get_qdiscs(index)):
            netlink.tc("del", index=index, handle=0x10000, root=True)
        if rate_bps is not None:
            netlink.tc("add", "tbf", index, 0x10000, rate=int(rate_bps) // 8, burst=BURST_BYTES, limit=QUEUE_BYTES)
