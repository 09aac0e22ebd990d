"""Maps a run's workers to hosts of a topology, and times their tree's rounds over the paths between them."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from controller.acceleration.network.grounds import machines_of, notes_of, rounds_of
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.network.timing import near_order, timed
from controller.acceleration.network.trees import Aggregators, reduction_tree
from controller.acceleration.running.channels import host_and_port
from controller.acceleration.running.errors import RunError
from controller.acceleration.values import Machines, Network, TransferModel
from controller.cluster.cost_map import CostMap
from dataplane.topology.values import Topology


def hosts_of(addresses: Sequence[str], hardware: Hardware, costs: CostMap) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return each worker's host, and notes: by a hardware file's names, in order, else by addresses.

    Workers on sockets of this machine represent as many hosts, near ones adjacent. Raise RunError for workers on hosts
    missing from the topology, two on one host, and a number of workers different from that of named hosts.
    """
    count, topology = len(addresses), costs.model.topology
    if isinstance(hardware.machines, tuple):
        if len(hardware.machines) != count:
            raise RunError(f"machines: {len(hardware.machines)} named, but {count} workers")
        return machines_of(hardware, topology), ()
    if not all(address.startswith("unix:") for address in addresses):
        return _by_address(addresses, topology), ()
    hosts = near_order(costs.model, machines_of(hardware, topology))
    if len(hosts) < count:
        raise RunError(f"{count} workers: topology {topology.name} has {len(hosts)} machines")
    return hosts[:count], (f"local workers represent {', '.join(hosts[:count])}, without the links between them",)


def machines_between(
    costs: CostMap, hosts: Sequence[str], fan_in: int, efficiency: float = 1.0
) -> tuple[Machines, tuple[str, ...]]:
    """Return machines that reduce over the paths between these hosts, in this order, like workers; and notes."""
    timed_tree = timed(costs, reduction_tree(hosts, fan_in, Aggregators.MEMBER), efficiency=efficiency)
    network = Network(timed_tree.rate_gbit_per_s, rounds_of(timed_tree))
    return Machines(network, len(hosts), fan_in, TransferModel.PER_PATH), notes_of(timed_tree)


def _by_address(addresses: Sequence[str], topology: Topology) -> tuple[str, ...]:
    hosts: list[str] = []
    for address in addresses:
        name = address if address.startswith("unix:") else host_and_port(address)[0]
        node = topology.host.get(name) or next(
            (host for host in topology.hosts if _is_at(name, host.ipv4, host.ipv6)), None
        )
        if node is None:
            raise RunError(
                f"worker {address}: topology {topology.name} has no host of that name or address;"
                " name the hosts in the hardware file (machines)"
            )
        if node.name in hosts:
            raise RunError(f"worker {address}: host {node.name} has another worker; each needs a machine of its own")
        hosts.append(node.name)
    return tuple(hosts)


def _is_at(text: str, *addresses: object) -> bool:
    try:
        return ip_address(text) in addresses
    except ValueError:
        return False
