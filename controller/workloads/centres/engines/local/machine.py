"""Resources of this machine for a centre: those found, less those that the settings leave to others."""

from __future__ import annotations

from pathlib import Path

from collectors.devices.discovery import discover
from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from collectors.devices.values import Machine
from controller.workloads.centres.settings import LocalSettings
from controller.workloads.centres.units import MILLI, Found, FoundDevice
from dataplane.cgroups import parse_cpus
from dataplane.topology.values import DeviceKind, MediumKind


def look(settings: LocalSettings, nvml: Nvml | str, root: Path = Path("/")) -> Found:
    """Return the resources to divide now."""
    return found_of(discover(Root(root), nvml), settings)


def found_of(machine: Machine, settings: LocalSettings) -> Found:
    """Return the part of a machine that settings and control groups leave to this centre."""
    online, allowed = machine.processors.online, machine.limits.cpus
    cores = online if allowed is None else online & allowed
    if settings.cores is not None:
        cores &= parse_cpus(settings.cores)
    quotas = [len(cores) * MILLI, settings.cpu_milli, machine.limits.cpu_milli]
    memory = [medium.capacity_bytes for medium in machine.allowed_memory if medium.kind is MediumKind.DRAM]
    has = sum(memory) if memory else None
    if settings.memory_bytes is not None:
        has = settings.memory_bytes if has is None else min(has, settings.memory_bytes)
    return Found(
        cores=tuple(sorted(cores)),
        cpu_milli=min(quota for quota in quotas if quota is not None),
        memory_bytes=has,
        devices=tuple(
            FoundDevice(
                number,
                sampled.device.kind,
                sampled.device.model,
                sampled.device.memory_bytes or 0,
                sampled.uuid or sampled.address,
            )
            for number, sampled in enumerate(each for each in machine.devices if each.device.kind is not DeviceKind.CPU)
        ),
    )
