"""Network maps: the fabric's endpoints in PIDs, one per host (`hosts`) or one per switch (`switches`)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import msgspec

from controller.cluster.alto.values import VersionTag
from controller.cluster.cost_map import CostMap, CostModel
from controller.cluster.cost_map.pairs import PairColumns
from dataplane.topology.values import HostNode

HOSTS: Final = "hosts"
SWITCHES: Final = "switches"

_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_:-]")
_LONGEST: Final = 64

Group = dict[str, tuple[str, ...]]
"""Prefixes by address type, as RFC 7285's EndpointAddrGroup."""


def pid_of(name: str) -> str:
    """Return a node's PID, section 10.1: its name; characters other than letters, digits, `-`, `_` and `:` become @XX.

    PIDs are unique; one that would be too long ends in a digest of the name.
    """
    pid = _FORBIDDEN.sub(lambda sign: "".join(f"@{byte:02x}" for byte in sign.group().encode()), name)
    if len(pid) <= _LONGEST:
        return pid
    return f"{pid[: _LONGEST - 18]}@@{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


@dataclass(frozen=True)
class NetworkMap:
    """A network map: its PIDs in order with their addresses, and each address's PID by index."""

    resource_id: str
    groups: dict[str, Group]
    place_of: dict[IPv4Address | IPv6Address, int]

    @cached_property
    def pids(self) -> tuple[str, ...]:
        """The PIDs in order."""
        return tuple(self.groups)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Index of each PID."""
        return {pid: index for index, pid in enumerate(self.groups)}

    @cached_property
    def vtag(self) -> VersionTag:
        """The version: it changes if and only if the content does."""
        digest = hashlib.blake2b(msgspec.json.encode(self.groups), digest_size=20).hexdigest()
        return VersionTag(resource_id=self.resource_id, tag=digest)

    def pairs(self, costs: CostMap) -> PairColumns:
        """Return the figures of [source PID, destination PID]; between switches, without access links."""
        if self.resource_id == HOSTS:
            return costs.pairs
        between, destinations = costs.between, costs.model.destinations
        return PairColumns(
            between.delay_ns[:, destinations].T,
            between.available_bps[:, destinations].T,
            between.loss_ppb[:, destinations].T,
            between.age_ns[:, destinations].T,
            between.measured[:, destinations].T,
        )


def network_maps(model: CostModel) -> dict[str, NetworkMap]:
    """Return a topology's network maps by resource id, the default one first."""
    topology = model.topology
    nodes = [topology.host[name] for name in model.hosts]
    addresses = [_addresses(node) for node in nodes]
    own = {pid_of(node.name): _group(host_addresses) for node, host_addresses in zip(nodes, addresses, strict=True)}
    places = model.host_destination.tolist()
    switches = [model.table.switches[switch] for switch in model.destinations]
    members: list[list[IPv4Address | IPv6Address]] = [[] for _ in switches]
    for index, host_addresses in zip(places, addresses, strict=True):
        members[index].extend(host_addresses)
    grouped = {
        pid_of(name): _group(tuple(switch_addresses)) for name, switch_addresses in zip(switches, members, strict=True)
    }
    by_host = {address: index for index, host_addresses in enumerate(addresses) for address in host_addresses}
    by_switch = {address: places[index] for address, index in by_host.items()}
    return {
        HOSTS: NetworkMap(HOSTS, own, by_host),
        SWITCHES: NetworkMap(SWITCHES, grouped, by_switch),
    }


def _addresses(node: HostNode) -> tuple[IPv4Address | IPv6Address, ...]:
    return (node.ipv4,) if node.ipv6 is None else (node.ipv4, node.ipv6)


def _group(addresses: tuple[IPv4Address | IPv6Address, ...]) -> Group:
    by_type = {
        f"ipv{version}": tuple(
            f"{address}/{address.max_prefixlen}" for address in addresses if address.version == version
        )
        for version in (4, 6)
    }
    return {kind: prefixes for kind, prefixes in by_type.items() if prefixes}
