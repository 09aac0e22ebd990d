"""Fit requests on the free resources of nodes, and choose devices.

Devices are chosen to leave the least of each: the suitable one with the fewest free thousandths, then the one with the
least free memory, then the lowest number. Where any of several kinds will do, all devices of a request are of one
kind: the one with the most suitable devices. In a request for several kinds or models the one with the fewest suitable
devices chooses first. That always fits requests of one kind each if possible; a request whose parts compete for the
same devices in several sizes may be refused although another order would fit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.requests import WHOLE, DeviceRequest, Request
from controller.cluster.hardware.values import Device, DeviceShare, Node, Shares, in_order


@dataclass(frozen=True, slots=True)
class Missing:
    """A resource that a node lacks: `wanted` of `unit`, of which `free` are available."""

    resource: str
    wanted: int
    free: int
    unit: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.wanted} {self.unit} wanted, {self.free} free"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why a request does not fit, one per short resource; never empty."""

    node: str
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        return f"{self.node}: {'; '.join(map(str, self.missing))}"


def fits(node: Node, held: Shares, request: Request) -> Refusal | None:
    """Return why a request does not fit next to the held shares, None if it fits."""
    missing = [*_cores_and_memory(node, held, request)]
    if request.devices:
        devices = _devices(node, held, request)
        if isinstance(devices, Missing):
            missing.append(devices)
    return Refusal(node.name, tuple(missing)) if missing else None


def choose(node: Node, held: Shares, request: Request) -> Shares:
    """Return the shares that a request gets next to the held ones; raise HardwareError if it does not fit."""
    if (refusal := fits(node, held, request)) is not None:
        raise HardwareError(str(refusal))
    devices = _devices(node, held, request)
    assert not isinstance(devices, Missing)
    return Shares(request.cpu_milli, request.memory_bytes, devices)


def _cores_and_memory(node: Node, held: Shares, request: Request) -> list[Missing]:
    missing = []
    if request.cpu_milli > (free := node.cpu_milli - held.cpu_milli):
        missing.append(Missing("cpu", request.cpu_milli, free, "thousandths of cores"))
    if request.memory_bytes and request.memory_bytes > (free := node.memory_bytes - held.memory_bytes):
        missing.append(Missing("memory", request.memory_bytes, free, "bytes"))
    return missing


def _devices(node: Node, held: Shares, request: Request) -> tuple[DeviceShare, ...] | Missing:
    """Return the shares of devices, or the first resource that is missing."""
    free = {device.number: [WHOLE, device.memory_bytes or 0] for device in node.devices}
    for share in held.devices:
        if share.number not in free:
            raise HardwareError(f"{node.name}: shares are held of device {share.number}, which does not exist")
        free[share.number][0] -= share.thousandths
        free[share.number][1] -= share.memory_bytes
    taken: dict[int, DeviceShare] = {}
    for wanted in sorted(request.devices, key=lambda wanted: (len(_of_kind(node, wanted)), -wanted.thousandths)):
        candidates = _of_one_kind(node, free, wanted)
        good = [device for device in candidates if _serves(free[device.number], wanted)]
        if len(good) < wanted.count:
            return _missing(candidates, free, wanted, len(good))
        good.sort(key=lambda device: (*free[device.number], device.number))
        for device in good[: wanted.count]:
            left, old = free[device.number], taken.get(device.number, DeviceShare(device.number, 0))
            left[0] -= wanted.thousandths
            left[1] -= wanted.memory_bytes
            taken[device.number] = DeviceShare(
                device.number, old.thousandths + wanted.thousandths, old.memory_bytes + wanted.memory_bytes
            )
    return in_order(taken.values())


def _of_kind(node: Node, wanted: DeviceRequest) -> list[Device]:
    return [device for device in node.devices if wanted.accepts(device)]


def _of_one_kind(node: Node, free: dict[int, list[int]], wanted: DeviceRequest) -> list[Device]:
    """Return the acceptable devices, of several kinds only those of the one with the most suitable ones."""
    candidates = _of_kind(node, wanted)
    if not wanted.is_open:
        return candidates
    suitable = Counter(device.kind for device in candidates if _serves(free[device.number], wanted))
    there = Counter(device.kind for device in candidates)
    chosen = max(wanted.kinds, key=lambda kind: (suitable[kind], there[kind]))
    return [device for device in candidates if device.kind is chosen]


def _serves(free: list[int], wanted: DeviceRequest) -> bool:
    return free[0] >= wanted.thousandths and free[1] >= wanted.memory_bytes


def _missing(candidates: list[Device], free: dict[int, list[int]], wanted: DeviceRequest, good: int) -> Missing:
    """Return the shortage: of matching devices, their free thousandths, or their free memory."""
    enough = [device for device in candidates if free[device.number][0] >= wanted.thousandths]
    if len(enough) >= wanted.count:
        most = max(free[device.number][1] for device in enough)
        if wanted.count == 1:
            return Missing(f"{wanted} memory", wanted.memory_bytes, most, "bytes on one device")
        return Missing(str(wanted), wanted.count, good, f"whole devices with {wanted.memory_bytes} free bytes")
    if wanted.thousandths == WHOLE:
        return Missing(str(wanted), wanted.count, len(enough), "whole devices")
    most = max((free[device.number][0] for device in candidates), default=0)
    return Missing(str(wanted), wanted.thousandths, most, "thousandths of one device")
