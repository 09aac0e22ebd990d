"""Detects whether a host's TCP/IP stack, and nothing else, takes what a device sends into its cable.

This can be known only for a veth pair. rtnetlink reports its other end, even in another network namespace if this one
has an id for it (IFLA_LINK_NETNSID, netlink message RTM_GETLINK with IFLA_TARGET_NETNSID), and that namespace can be
queried for sockets and tc filters. Whatever cannot be queried counts as a reader.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from dataplane.linux import bpf
from dataplane.nic.devices.netlink import DUMP, HEADER, REQUEST, SOCK_DIAG, Netlink, request
from dataplane.nic.devices.netns import enter_netns, open_netns

T = TypeVar("T")

PLAIN_STACK: Final = ""
"""Result of `look` if nothing but a host's stack takes frames."""
_LONGEST_PACKET = 65_536
_RTM_GETLINK, _RTM_GETNSID, _RTM_GETQDISC, _SOCK_DIAG_BY_FAMILY = 18, 90, 38, 20
_SKIP_STATISTICS = 1 << 3
"""RTEXT_FILTER_SKIP_STATS: without statistics, a link's message changes only when the link does."""
_ALL_PROTOCOLS, _IPV4 = 0x0003, 0x0800
_SHOW_INFORMATION = 1
_PACKET_SOCKET: Final = struct.Struct("=BBHIII")
"""struct packet_diag_msg: family, type, protocol, inode, cookie."""
_PACKET_DEVICE_OFFSET: Final = HEADER.size + _PACKET_SOCKET.size + 4
_QUEUEING: Final = struct.Struct("=B3xiIII")
"""struct tcmsg: family, device, handle, parent, info."""
_FILTERS_PARENT = 0xFFFF_FFF1
"""The parent handle of the disciplines `ingress` and `clsact`, which hold filters."""
_IDENTITY: Final = struct.Struct("=B3xHHi")
"""struct rtgenmsg and one attribute: family, length, type, value."""
_NETNSA_FD = 3
_TCX_INGRESS, _TCX_EGRESS = 46, 47
_RAW_TCP: Final = re.compile(r"^ *\d+: [0-9A-F]+:0006 ", re.MULTILINE)
_SCAN_RESTS = 20
_NAMED: Final = Path("/run/netns")
_SWITCHES: Final = frozenset({b"dataplane.switch.process", b"simple_switch_grpc", b"simple_switch"})
_MOST_SOCKETS = 1024
"""Sockets whose owner is remembered."""

NO_VETH = "it is not a veth device"
SAME_NAMESPACE = "its other end is in the namespace of the switch"
NOT_VISIBLE = "its other end is in a namespace that neither /run/netns nor a process of this machine leads to"
CAPTURED = "something reads frames at this end"
SHAPED = "tc holds what it sends"
FILTERED_HERE = "tc has filters at this end"
PROMISCUOUS = "its other end is promiscuous: something reads frames there"
SWITCH_THERE = "its other end is a port of another switch, which takes frames as they are on the wire"
HAS_MASTER = "its other end is part of a bridge or of another device"
HAS_XDP = "its other end has an XDP program"
SMALLER_MTU = "its other end has a smaller MTU"
SHORT_PACKETS = "one of its ends takes shorter packets only (gso_max_size, gro_max_size)"
PACKET_SOCKET = "a packet socket in the namespace of its other end reads frames"
RAW_SOCKET = "a raw socket in the namespace of its other end reads TCP"
FILTERED_THERE = "tc has filters at its other end"


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """The facts that rtnetlink reports of one end of a cable, as far as they matter here.

    other, namespace: index of the other end, and the id of its namespace (None: this one). longest_packet: as limited
    by gso and gro of the device.
    """

    kind: str
    other: int
    namespace: int | None
    mtu: int
    queueing: str
    promiscuity: int
    has_master: bool
    has_xdp: bool
    longest_packet: int


def why_not_by_links(near: LinkFacts, far: LinkFacts) -> str:
    """Return the reason in either end's link against joining, or PLAIN_STACK."""
    reasons = (
        (near.queueing != "noqueue", SHAPED),
        (far.has_master, HAS_MASTER),
        (far.has_xdp, HAS_XDP),
        (far.promiscuity > 0, PROMISCUOUS),
        (far.mtu < near.mtu, SMALLER_MTU),
        (min(near.longest_packet, far.longest_packet) < _LONGEST_PACKET, SHORT_PACKETS),
    )
    return next((reason for holds, reason in reasons if holds), PLAIN_STACK)


class NamespacePaths:
    """Paths to network namespaces, named ones and those of processes, by their ids in the querying namespace."""

    def __init__(self) -> None:
        self._known: dict[int, Path] = {}
        self._scan_again_at = 0.0
        self.switches: dict[int, bool] = {}
        """True for each inode of a switch's socket, false for others': the owner stays the same."""

    def open(self, route: Netlink, namespace: int) -> int | None:
        """Return a descriptor of the namespace with an id; None if no known path leads to it."""
        path = self._known.get(namespace)
        opened = None if path is None else _open_if(path, route, namespace)
        if opened is None and time.monotonic() >= self._scan_again_at:
            self._scan(route)
            path = self._known.get(namespace)
            opened = None if path is None else _open_if(path, route, namespace)
        return opened

    def _scan(self, route: Netlink) -> None:
        """Scan for all namespaces; the time grows with the number of processes, so this is not done all the time."""
        begun = time.monotonic()
        self._known = {}
        for path in _paths():
            opened = _open_with_id(path, route)
            if opened is not None:
                os.close(opened[0])
                self._known[opened[1]] = path
        now = time.monotonic()
        self._scan_again_at = now + _SCAN_RESTS * (now - begun)


class FarEnd:
    """Inspects the other end of a device, as it is now, from the namespace of the thread that made this.

    `own_sockets` are the inodes of legitimate readers at this end. The inspecting thread is back in that namespace
    afterwards; nothing stays open in the other one, since that would keep it alive.
    """

    def __init__(self, index: int, own_sockets: Collection[int], paths: NamespacePaths) -> None:
        self._index, self._own_sockets = index, frozenset(own_sockets)
        self._here = open_netns()
        self._links: dict[bytes, LinkFacts] = {}
        self._paths = paths
        self.ends: frozenset[tuple[int | None, int]] = frozenset([(None, index)])
        """Both ends of the cable as last found: ids of their namespaces (None: this one), indexes there."""

    def close(self) -> None:
        """Close the sockets."""
        os.close(self._here)

    def look(self) -> str:
        """Return why more than a host's stack takes what the device sends, or PLAIN_STACK."""
        enter_netns(self._here)
        try:
            with Netlink(socket.NETLINK_ROUTE) as route:
                near = self._link(route, self._index, None)
                if near.kind != "veth":
                    return NO_VETH
                if near.namespace is None:
                    return SAME_NAMESPACE
                if near.namespace < 0:  # it has no id: it is being deleted
                    return NOT_VISIBLE
                self.ends = frozenset([(None, self._index), (near.namespace, near.other)])
                far = self._link(route, near.other, near.namespace)
                reason = why_not_by_links(near, far) or self._why_not_here(route)
                if reason == PROMISCUOUS and self._is_switch_there(route, near.namespace, near.other):
                    return SWITCH_THERE
                return reason or self._why_not_there(route, near.namespace, near.other)
        except OSError as error:
            return f"its other end cannot be inspected: {os.strerror(error.errno or 0)}"

    def _link(self, route: Netlink, index: int, namespace: int | None) -> LinkFacts:
        (message,) = route.ask(_link_request(index, namespace))
        body = message[HEADER.size :]
        facts = self._links.get(body)
        if facts is None:
            if len(self._links) > 1:
                self._links.clear()
            facts = self._links[body] = _link_facts(message)
        return facts

    def _why_not_here(self, route: Netlink) -> str:
        """Return what sees frames leaving by this end."""
        with Netlink(SOCK_DIAG) as diag:
            for protocol, inode, device in _packet_sockets(diag):
                if protocol == _ALL_PROTOCOLS and device in {0, self._index} and inode not in self._own_sockets:
                    return CAPTURED
        has_filters = _has_filters(route, self._index) or bpf.count_programs(self._index, _TCX_EGRESS) > 0
        return FILTERED_HERE if has_filters else PLAIN_STACK

    def _why_not_there(self, route: Netlink, namespace: int, index: int) -> str:
        """Return what sees frames in the namespace of the other end, whatever device they are bound to."""
        there = self._paths.open(route, namespace)
        return NOT_VISIBLE if there is None else self._call(there, lambda: _why_not_inside(index))

    def _is_switch_there(self, route: Netlink, namespace: int, index: int) -> bool:
        """Return whether a switch has opened the other end as a port."""
        there = self._paths.open(route, namespace)
        if there is None:
            return False
        identity = os.fstat(there)
        for inode in self._call(there, lambda: _readers(index)):
            known = self._paths.switches
            if inode not in known:
                if len(known) >= _MOST_SOCKETS:
                    known.clear()
                known[inode] = _is_of_a_switch(inode, (identity.st_dev, identity.st_ino))
            if known[inode]:
                return True
        return False

    def _call(self, there: int, function: Callable[[], T]) -> T:
        """Call a function in a namespace, whose descriptor is closed afterwards."""
        try:
            enter_netns(there)
            try:
                return function()
            finally:
                enter_netns(self._here)
        finally:
            os.close(there)


def _why_not_inside(index: int) -> str:
    """Return what sees frames arriving by a device of this thread's namespace."""
    with Netlink(SOCK_DIAG) as diag:
        if any(protocol in {_ALL_PROTOCOLS, _IPV4} for protocol, _, _ in _packet_sockets(diag)):
            return PACKET_SOCKET
    if _RAW_TCP.search(Path("/proc/thread-self/net/raw").read_text(encoding="ascii")):
        return RAW_SOCKET
    with Netlink(socket.NETLINK_ROUTE) as route:
        has_filters = _has_filters(route, index) or bpf.count_programs(index, _TCX_INGRESS) > 0
    return FILTERED_THERE if has_filters else PLAIN_STACK


def _readers(index: int) -> list[int]:
    """Return the inodes of packet sockets that are bound to a device of this thread's namespace."""
    with Netlink(SOCK_DIAG) as diag:
        return [inode for protocol, inode, device in _packet_sockets(diag) if protocol and device == index]


def _is_of_a_switch(inode: int, namespace: tuple[int, int]) -> bool:
    """Return whether a switch in a namespace has a socket open."""
    name = f"socket:[{inode}]"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            status = (process / "ns/net").stat()
            if (status.st_dev, status.st_ino) != namespace:
                continue
            words = {Path(os.fsdecode(word)).name.encode() for word in (process / "cmdline").read_bytes().split(b"\0")}
            is_switch = bool(words & _SWITCHES) or (
                b"switch" in words and bool(words & {b"millrace", b"controller.apps.cli"})
            )
            if is_switch and any(str(opened.readlink()) == name for opened in (process / "fd").iterdir()):
                return True
        except OSError:  # it has ended meanwhile, or is another user's
            continue
    return False


@functools.lru_cache
def _link_request(index: int, namespace: int | None) -> bytes:
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg  # noqa: PLC0415 - only Linux has netlink

    message = ifinfmsg()
    message["header"]["type"], message["header"]["flags"], message["index"] = _RTM_GETLINK, REQUEST, index
    # IFLA_IF_NETNSID is the older name of IFLA_TARGET_NETNSID.
    attributes: list[tuple[str, int]] = [] if namespace is None else [("IFLA_IF_NETNSID", namespace)]
    message["attrs"] = [("IFLA_EXT_MASK", _SKIP_STATISTICS), *attributes]
    message.encode()
    return bytes(message.data)


def _link_facts(raw: bytes) -> LinkFacts:
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg  # noqa: PLC0415 - as above

    class LinkMessage(ifinfmsg):  # type: ignore[misc] # pyroute2 is untyped
        """A link's message, with the attributes that pyroute2 does not know."""

        nla_map = (
            *ifinfmsg.nla_map[:62],
            ("IFLA_DEVLINK_PORT", "hex"),
            ("IFLA_GSO_IPV4_MAX_SIZE", "uint32"),
            ("IFLA_GRO_IPV4_MAX_SIZE", "uint32"),
        )

    message: Any = LinkMessage(raw)
    message.decode()
    information, xdp = message.get_attr("IFLA_LINKINFO"), message.get_attr("IFLA_XDP")
    sizes = [message.get_attr(f"IFLA_{name}_MAX_SIZE") for name in ("GSO", "GRO", "GSO_IPV4", "GRO_IPV4")]
    return LinkFacts(
        kind="" if information is None else information.get_attr("IFLA_INFO_KIND") or "",
        other=message.get_attr("IFLA_LINK") or 0,
        namespace=message.get_attr("IFLA_LINK_NETNSID"),
        mtu=message.get_attr("IFLA_MTU"),
        queueing=message.get_attr("IFLA_QDISC"),
        promiscuity=message.get_attr("IFLA_PROMISCUITY"),
        has_master=message.get_attr("IFLA_MASTER") is not None,
        has_xdp=xdp is not None and bool(xdp.get_attr("IFLA_XDP_ATTACHED")),
        # A kernel that has no such limit has GSO and GRO of 64 KB.
        longest_packet=min([_LONGEST_PACKET, *(size for size in sizes if size is not None)]),
    )


def _packet_sockets(diag: Netlink) -> Iterator[tuple[int, int, int]]:
    """Yield protocol, inode and device (0: any) of each packet socket of the namespace."""
    body = struct.pack("=BBHIIII", socket.AF_PACKET, 0, 0, 0, _SHOW_INFORMATION, 0, 0)
    for message in diag.ask(request(_SOCK_DIAG_BY_FAMILY, DUMP, body)):
        _, _, protocol, inode, _, _ = _PACKET_SOCKET.unpack_from(message, HEADER.size)
        yield protocol, inode, struct.unpack_from("=i", message, _PACKET_DEVICE_OFFSET)[0]


def _has_filters(route: Netlink, index: int) -> bool:
    """Return whether a device has a discipline with filters for incoming frames, or outgoing ones past all queues."""
    body = _QUEUEING.pack(0, 0, 0, 0, 0)
    for message in route.ask(request(_RTM_GETQDISC, DUMP, body)):
        _, device, _, parent, _ = _QUEUEING.unpack_from(message, HEADER.size)
        if device == index and parent == _FILTERS_PARENT:
            return True
    return False


def _open_if(path: Path, route: Netlink, namespace: int) -> int | None:
    """Return a descriptor of the namespace that a path leads to if it has that id here, else None."""
    opened = _open_with_id(path, route)
    if opened is None or opened[1] == namespace:
        return None if opened is None else opened[0]
    os.close(opened[0])
    return None


def _open_with_id(path: Path, route: Netlink) -> tuple[int, int] | None:
    """Return a descriptor of the namespace that a path leads to, and its id here (-1: it has none)."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # gone meanwhile, or no permission: then it does not lead there
        return None
    try:
        return opened, _namespace_id(route, opened)
    except OSError:  # not a namespace
        os.close(opened)
        return None


def _namespace_id(route: Netlink, descriptor: int) -> int:
    """Return the id of a namespace here, -1: none."""
    asked = _IDENTITY.pack(socket.AF_UNSPEC, _IDENTITY.size - 4, _NETNSA_FD, descriptor)
    (answer,) = route.ask(request(_RTM_GETNSID, 0, asked))
    number: int = _IDENTITY.unpack_from(answer, HEADER.size)[3]
    return number


def _paths() -> Sequence[Path]:
    """Return a path to each network namespace of a name or a process on this machine."""
    paths: dict[tuple[int, int], Path] = {}
    for path in (*_NAMED.glob("*"), *Path("/proc").glob("[0-9]*/ns/net")):
        try:
            status = path.stat()
        except OSError:  # a process that has ended meanwhile, or that we may not inspect
            continue
        paths.setdefault((status.st_dev, status.st_ino), path)
    return tuple(paths.values())
