"""Environment of a distributed job: machines, the network between them, and the devices beyond their CPUs.

Pure: files, topologies and cost maps are passed in as values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Choice, Works
from controller.acceleration.network.devices import completed, of_kind
from controller.acceleration.network.hardware import OPTIONAL, Hardware
from controller.acceleration.network.switches import Sums, SwitchTree, switch_choice, switch_tree
from controller.acceleration.network.timing import TimedTree, timed, tree_over
from controller.acceleration.values import Accelerator, Machines, Network, Round, TransferModel
from controller.cluster.cost_map import Basis, CostMap
from dataplane.topology.values import Device, DeviceKind, Topology

NO_PARALLELISM: Final = "in the topology, but no hardware file gives their parallelism"
NO_SWITCH: Final = "no hardware file has switches that add up"
_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Ground:
    """The environment for decisions about operators; `notes` state its assumptions, one line each.

    `tree` is None if the network is only a rate. `hosts` are the machines by name, () if unnamed. `switch` is where
    sums are added up in the network, or why they are not. `devices` are those of each machine that a topology describes
    by cores, memory or devices; empty if it describes none.
    """

    machines: Machines
    accelerators: tuple[Accelerator, ...]
    preset: float
    hosts: tuple[str, ...]
    tree: TimedTree | None
    switch: SwitchTree | str
    notes: tuple[str, ...]
    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    tie_band: float = 0.0

    def others(self, works: Works, sums: Sequence[Sums | str]) -> tuple[Choice, ...]:
        """Return the choices that belong to no single machine: the switch, if a hardware file has it.

        Machines compute for it on their CPUs or on any of their accelerators. `sums` gives for each operator what it
        adds up, or why it is no sum.
        """
        if self.switch == NO_SWITCH:
            return ()
        switch = switch_choice(works, self.machines, sums, self.switch)
        # If nothing can be added up, report the reason once, not for each accelerator.
        by = () if all(switch.refusals) else self.accelerators
        return (switch, *(switch_choice(works, self.machines, sums, self.switch, accelerator) for accelerator in by))


def ground_by_rate(hardware: Hardware, rate_bps: float, topology: Topology | None = None) -> Ground:
    """Return machines connected at one rate, sharing only the aggregators' own links.

    Raise AccelerationError for an invalid rate, hosts missing from the topology, and a missing number of machines.
    """
    hosts: tuple[str, ...] = ()
    if topology is not None:
        hosts = machines_of(hardware, topology)
        count = len(hosts)
    elif isinstance(hardware.machines, int):
        count = hardware.machines
    elif hardware.machines is not None:
        count = len(hosts := hardware.machines)
    else:
        raise AccelerationError("the number of machines is unknown: give it, or a topology")
    accelerators, notes = _accelerators(hardware, topology, hosts)
    network = Network(hardware.rate_gbit_per_s(rate_bps))
    machines = _machines(hardware, network, count, TransferModel.SUM)
    switch = NO_SWITCH if hardware.switch is None else "sums in switches need a topology and its paths"
    devices = _described(topology, hosts)
    return Ground(machines, accelerators, hardware.preset, hosts, None, switch, notes, devices, hardware.tie_band)


def ground_over(hardware: Hardware, costs: CostMap) -> Ground:
    """Return machines that reduce over a fabric's real paths, from a cost map.

    Raise AccelerationError or PathError for hosts that are missing from the fabric or unreachable.
    """
    topology = costs.model.topology
    hosts = machines_of(hardware, topology)
    tree = tree_over(costs, hosts, hardware.fan_in, hardware.aggregators)
    timed_tree = timed(costs, tree, efficiency=hardware.network_efficiency, host_bps=hardware.host_rate_bps)
    accelerators, notes = _accelerators(hardware, topology, hosts)
    network = Network(timed_tree.rate_gbit_per_s, rounds_of(timed_tree))
    machines = _machines(hardware, network, len(hosts), TransferModel.PER_PATH)
    switch = NO_SWITCH if hardware.switch is None else switch_tree(costs, hosts, hardware.switch)
    notes += notes_of(timed_tree)
    devices = _described(topology, hosts)
    return Ground(
        machines, accelerators, hardware.preset, tree.hosts, timed_tree, switch, notes, devices, hardware.tie_band
    )


def machines_of(hardware: Hardware, topology: Topology) -> tuple[str, ...]:
    """Return the hosts that share a job: the named ones, else those with hardware in the topology.

    If none has any, all but the collector's. Raise AccelerationError for a missing host, and for fewer hosts than
    required.
    """
    if isinstance(hardware.machines, tuple):
        for name in hardware.machines:
            if name not in topology.host:
                raise AccelerationError(f"machines: topology {topology.name} has no host {name!r}", at="machines")
        return hardware.machines
    others = [host for host in topology.hosts if topology.collector is None or host.name != topology.collector.host]
    described = [host.name for host in others if host.cores or host.memory or host.devices]
    hosts = tuple(described or [host.name for host in others])
    if isinstance(hardware.machines, int):
        if len(hosts) < hardware.machines:
            problem = f"machines: {hardware.machines} requested, topology {topology.name} has {len(hosts)}"
            raise AccelerationError(problem, at="machines")
        return hosts[: hardware.machines]
    if not hosts:
        raise AccelerationError(f"topology {topology.name} has no host that could share a job")
    return hosts


def _described(topology: Topology | None, names: Sequence[str]) -> dict[str, tuple[Device, ...]]:
    hosts = [] if topology is None else [topology.host[name] for name in names]
    if not any(host.cores or host.memory or host.devices for host in hosts):
        return {}
    return {host.name: host.devices for host in hosts}


def _machines(hardware: Hardware, network: Network, count: int, transfer: TransferModel) -> Machines:
    return Machines(network, count, hardware.fan_in, hardware.transfer or transfer, hardware.has_finite_sum)


def _accelerators(
    hardware: Hardware, topology: Topology | None, hosts: Sequence[str]
) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """Return the accelerators common to all machines, completed from the topology, and notes on those that are not."""
    if topology is None:
        return hardware.accelerators, ()
    devices = {name: topology.host[name].devices for name in hosts}
    notes: list[str] = []
    accelerators: list[Accelerator] = []
    is_described = any(device.kind is not DeviceKind.CPU for group in devices.values() for device in group)
    for accelerator, given in zip(hardware.accelerators, chain(hardware.given, repeat(OPTIONAL)), strict=False):
        lacking = next((name for name in hosts if not of_kind(devices[name], accelerator.kind)), None)
        if is_described and lacking is not None:
            notes.append(f"{accelerator.label}: not a choice, machine {lacking} has none")
        else:
            accelerators.append(completed(accelerator, given, devices) if is_described else accelerator)
    kinds = {device.kind for group in devices.values() for device in group} - {DeviceKind.CPU}
    notes += [
        f"{kind}: {NO_PARALLELISM}"
        for kind in sorted(kinds - {accelerator.kind for accelerator in hardware.accelerators})
    ]
    return tuple(accelerators), tuple(notes)


def rounds_of(tree: TimedTree) -> tuple[Round, ...]:
    """Return a tree's rounds as the model counts them."""
    return tuple(Round(part.s_per_gb, part.delay_s, part.grown_s_per_gb) for part in tree.rounds)


def notes_of(tree: TimedTree) -> tuple[str, ...]:
    """Return notes about a tree's rounds: the basis of bandwidths, and full links."""
    notes, rounds = [], tree.rounds
    bases = {part.basis for part in rounds}
    if bases and bases != {Basis.MEASURED}:
        weakest = Basis.NOMINAL if bases == {Basis.NOMINAL} else Basis.PARTLY_MEASURED
        notes.append(f"free bandwidth between machines is {weakest}")
    full = sorted({str(link) for part in rounds for link in part.full})
    if full:
        shown = ", ".join(full[:4]) + (f" and {len(full) - 4} more" if len(full) > 4 else "")
        notes.append(f"full: {shown}: flows are assumed to get a twentieth of their rate there")
    return tuple(notes)
