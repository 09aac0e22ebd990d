"""Nodes from a topology's hosts and from discovered machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collectors.devices.values import Machine
from controller.cluster.hardware.requests import WHOLE
from controller.cluster.hardware.values import Device, Node
from dataplane.topology.values import Device as Devices
from dataplane.topology.values import DeviceKind, HostNode, Topology


def nodes_of(topology: Topology) -> tuple[Node, ...]:
    """Return the hosts with cores, memory or devices in the topology, in its order."""
    return tuple(node_of(host) for host in topology.hosts if host.cores or host.memory or host.devices)


def node_of(host: HostNode, labels: Mapping[str, str] | None = None) -> Node:
    """Return a host as a node; unspecified cores count as none, so that nothing is placed on a guess."""
    return Node(
        name=host.name,
        cpu_milli=(host.cores or 0) * WHOLE,
        memory=host.memory,
        devices=numbered(devices for devices in host.devices if devices.kind is not DeviceKind.CPU),
        processors=numbered(devices for devices in host.devices if devices.kind is DeviceKind.CPU),
        labels=labels or {},
    )


def node_of_machine(name: str, machine: Machine, labels: Mapping[str, str] | None = None) -> Node:
    """Return a discovered machine as a node, with the resources that control groups grant the discovering process."""
    grouped = machine.grouped_devices
    return Node(
        name=name,
        cpu_milli=machine.cpu_milli,
        memory=machine.allowed_memory,
        devices=numbered(entry.device for entry in machine.devices),
        processors=numbered(devices for devices in grouped if devices.kind is DeviceKind.CPU),
        labels=labels or {},
    )


def numbered(groups: Iterable[Devices]) -> tuple[Device, ...]:
    """Return each device of groups of equal ones, numbered from 0."""
    singles = [group for group in groups for _ in range(group.count)]
    return tuple(
        Device(number, group.kind, group.model, group.memory_bytes, group.bus, group.rates)
        for number, group in enumerate(singles)
    )
