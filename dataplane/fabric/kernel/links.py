"""Cables and addresses of a kernel fabric, through rtnetlink: no ARP, no router discovery, no offloads.

A host has only its own address (/32, /128) and sends everything to its gateway, the switch port, whose MAC address is a
permanent neighbour. A switch port has no address at all, so its kernel never sends anything by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dataplane.errors import FabricError, PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic.devices.offloads import disable_offloads
from dataplane.topology.addressing import format_mac
from dataplane.topology.values import HostNode

GATEWAY_IPV4 = "169.254.0.1"
GATEWAY_IPV6 = "fe80::1"
_LOSE = 0x10000
"""Handle (1:0) of the queueing discipline that drops everything."""
_NUD_PERMANENT = 0x80
_RTNH_F_ONLINK = 4
_IFA_F_NODAD = 2
_QUIET_HOST = {"accept_dad": 0, "dad_transmits": 0, "accept_ra": 0, "autoconf": 0, "addr_gen_mode": 1}
_SILENT = {"disable_ipv6": 1}


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One end of a veth pair: `device`, with a 48-bit MAC address, in a namespace."""

    namespace: str
    device: str
    mac: int
    mtu: int


def silence(namespace: str) -> None:
    """Keep devices of a switch's namespace from sending IPv6 by themselves; call before any device exists."""
    namespaces.call(namespace, lambda: _set_ipv6(_SILENT))


def prepare_host(namespace: str, host: HostNode) -> None:
    """Disable duplicate detection, router discovery and link-local addresses on a host; call before it has a device."""
    namespaces.call(namespace, lambda: _set_ipv6(_QUIET_HOST if host.ipv6 is not None else _SILENT))


def connect(a: CableEnd, b: CableEnd) -> None:
    """Create a veth pair with its ends in two namespaces; they stay down."""
    with namespaces.open_namespace(a.namespace) as here, namespaces.open_namespace(b.namespace) as there:
        try:
            with IPRoute() as netlink:
                netlink.link(
                    "add",
                    kind="veth",
                    **_end(a, here.fileno()),
                    peer=_end(b, there.fileno()),
                )
        except NetlinkError as error:
            raise FabricError(f"cable {a.namespace} {a.device} - {b.namespace} {b.device}: {error}") from error


def set_device(namespace: str, device: str, mac: int, mtu: int) -> None:
    """Set the MAC address and MTU of an existing device."""

    def act() -> None:
        with IPRoute() as netlink:
            netlink.link("set", index=_index(netlink, device), address=format_mac(mac), mtu=mtu)

    _in_namespace(namespace, act)


def bring_up(namespace: str, devices: Iterable[str]) -> None:
    """Disable the devices' offloads, then bring them and the loopback up."""

    def act() -> None:
        with IPRoute() as netlink:
            for device in devices:
                disable_offloads(device)
                netlink.link("set", index=_index(netlink, device), state="up")
            netlink.link("set", index=_index(netlink, "lo"), state="up")

    _in_namespace(namespace, act)


def set_up(namespace: str, device: str, *, up: bool) -> None:
    """Set a device up or down."""

    def act() -> None:
        with IPRoute() as netlink:
            netlink.link("set", index=_index(netlink, device), state="up" if up else "down")

    _in_namespace(namespace, act)


def lose(namespace: str, device: str, *, lost: bool) -> None:
    """Make a device drop everything sent through it, unseen by the sender, or carry it again."""

    def act() -> None:
        with IPRoute() as netlink:
            index = _index(netlink, device)
            # A queue with no room for even one frame.
            netlink.tc("add" if lost else "del", "pfifo", index=index, handle=_LOSE, limit=0)

    _in_namespace(namespace, act)


def address_host(namespace: str, device: str, host: HostNode, gateway_mac: int) -> None:
    """Give a host that is up its addresses, default routes and the gateway's MAC address."""

    def act() -> None:
        with IPRoute() as netlink:
            index = _index(netlink, device)
            netlink.addr("add", index=index, address=str(host.ipv4), prefixlen=32)
            _add_gateway(netlink, index, AF_INET, GATEWAY_IPV4, gateway_mac)
            if host.ipv6 is not None:
                netlink.addr("add", index=index, address=str(host.ipv6), prefixlen=128, flags=_IFA_F_NODAD)
                _add_gateway(netlink, index, AF_INET6, GATEWAY_IPV6, gateway_mac)

    _in_namespace(namespace, act)


def _end(end: CableEnd, descriptor: int) -> dict[str, Any]:  # pyroute2's attributes of a link
    return {"ifname": end.device, "mtu": end.mtu, "address": format_mac(end.mac), "net_ns_fd": descriptor}


def _add_gateway(netlink: Any, index: int, family: int, gateway: str, mac: int) -> None:  # noqa: ANN401 - untyped
    netlink.neigh("add", ifindex=index, family=family, dst=gateway, lladdr=format_mac(mac), state=_NUD_PERMANENT)
    netlink.route("add", family=family, dst="default", gateway=gateway, oif=index, flags=_RTNH_F_ONLINK)


def _index(netlink: Any, device: str) -> int:  # noqa: ANN401 - pyroute2 is untyped
    index: int = netlink.link_lookup(ifname=device)[0]
    return index


def _in_namespace(namespace: str, act: Any) -> None:  # noqa: ANN401
    try:
        namespaces.call(namespace, act)
    except (NetlinkError, PortError) as error:
        raise FabricError(f"{namespace}: {error}") from error


def _set_ipv6(values: dict[str, int]) -> None:
    """Set defaults for future devices; without IPv6 in the kernel there is nothing to silence."""
    folder = Path("/proc/sys/net/ipv6/conf/default")
    if not folder.is_dir():
        return
    for name, value in values.items():
        (folder / name).write_text(str(value), encoding="ascii")
