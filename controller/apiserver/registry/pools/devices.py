"""Placement of a pool's units on a node's devices; pure.

A unit is a slice of one device, with its part of the device's memory. Units are added where their holder has some
already, else where the least is free: so whole devices stay free for pods. They are removed where their holder has the
fewest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from msgspec.structs import replace

from controller.apiserver.resources.hardware import DeviceShare
from controller.apiserver.resources.unit_pool import UnitHolding, UnitPoolSpec
from controller.cluster.hardware import values

_WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Slice:
    """One unit's slice of a device."""

    thousandths: int
    memory_bytes: int

    def times(self, number: int, units: int) -> DeviceShare:
        """Return the share of a device that `units` units take."""
        return DeviceShare(number=number, thousandths=units * self.thousandths, memory_bytes=units * self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Room:
    """Capacity for a pool's units on each device, after what others hold of it."""

    slices: Mapping[int, Slice]
    units: Mapping[int, int]

    @classmethod
    def of(cls, spec: UnitPoolSpec, node: values.Node, others: values.Shares) -> Self:
        """Return the room on a node, given what others hold."""
        taken = {share.number: share for share in others.devices}
        slices, units = {}, {}
        for device in node.devices:
            if not _is_meant(spec, device):
                continue
            unit = Slice(spec.unit_thousandths, (device.memory_bytes or 0) * spec.unit_thousandths // _WHOLE)
            held = taken.get(device.number, values.DeviceShare(device.number, 0))
            fits = (_WHOLE - held.thousandths) // unit.thousandths
            if unit.memory_bytes:
                fits = min(fits, ((device.memory_bytes or 0) - held.memory_bytes) // unit.memory_bytes)
            slices[device.number], units[device.number] = unit, max(fits, 0)
        return cls(slices, units)

    @property
    def total(self) -> int:
        """Total capacity, including units that are held."""
        return sum(self.units.values())


def placed(room: Room, before: Sequence[UnitHolding], wanted: Sequence[UnitHolding]) -> tuple[UnitHolding, ...] | None:
    """Return holdings with the devices of their units, None if there is no room for all of them.

    Units that stay with their holder stay where they are.
    """
    was = {holding.holder: _counts(holding, room) for holding in before}
    kept = {holding.holder: _kept(was.get(holding.holder, {}), holding.units) for holding in wanted}
    free = dict(room.units)
    for counts in kept.values():
        for number, units in counts.items():
            free[number] = free.get(number, 0) - units
    for holding in wanted:
        counts = kept[holding.holder]
        missing = holding.units - sum(counts.values())
        # First where the holder is already, then where the least room is left.
        for number in sorted(free, key=lambda number: (-counts.get(number, 0), free[number], number)):
            more = min(missing, max(free[number], 0))
            if more:
                counts[number] = counts.get(number, 0) + more
                free[number] -= more
                missing -= more
        if missing:
            return None
    return tuple(replace(holding, devices=_shares(room, kept[holding.holder])) for holding in wanted)


def together(holdings: Sequence[UnitHolding]) -> tuple[DeviceShare, ...]:
    """Return the total that all holders have of each device, by device number."""
    totals: dict[int, DeviceShare] = {}
    for share in (share for holding in holdings for share in holding.devices):
        old = totals.get(share.number, DeviceShare(number=share.number, thousandths=0))
        totals[share.number] = DeviceShare(
            number=share.number,
            thousandths=old.thousandths + share.thousandths,
            memory_bytes=old.memory_bytes + share.memory_bytes,
        )
    return tuple(totals[number] for number in sorted(totals))


def _is_meant(spec: UnitPoolSpec, device: values.Device) -> bool:
    if device.gone:
        return False
    if spec.devices:
        return device.number in spec.devices
    return device.kind is spec.device_kind and spec.model in {"", device.model}


def _counts(holding: UnitHolding, room: Room) -> dict[int, int]:
    """Return a holder's units by device; those on a device that has gone do not count."""
    return {
        share.number: share.thousandths // room.slices[share.number].thousandths
        for share in holding.devices
        if share.number in room.slices
    }


def _kept(counts: Mapping[int, int], units: int) -> dict[int, int]:
    """Return the units by device that a holder keeps: it gives up those where it has the fewest."""
    left, kept = units, {}
    for number in sorted(counts, key=lambda number: (-counts[number], number)):
        stays = min(counts[number], left)
        if stays:
            kept[number] = stays
        left -= stays
    return kept


def _shares(room: Room, counts: Mapping[int, int]) -> tuple[DeviceShare, ...]:
    return tuple(room.slices[number].times(number, counts[number]) for number in sorted(counts) if counts[number])
