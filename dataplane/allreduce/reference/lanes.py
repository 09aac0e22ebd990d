"""Lane arithmetic of the switch: the meaning of SUM and MAX."""

from __future__ import annotations

from collections.abc import Iterable

from dataplane.wire.aggregation import Operation

_MOST, _LEAST = 2**31 - 1, -(2**31)


def combine(operation: Operation, old: bytes, new: bytes) -> tuple[bytes, bool]:
    """Combine both values; return whether an int32 lane was clamped as well; lengths must be equal."""
    if operation is Operation.MAX:
        return b"".join(max(old[at : at + 2], new[at : at + 2]) for at in range(0, len(old), 2)), False
    sums = [a + b for a, b in zip(int32s(old), int32s(new), strict=True)]
    bounded = [min(max(value, _LEAST), _MOST) for value in sums]
    return of_int32s(bounded), bounded != sums


def int32s(values: bytes) -> list[int]:
    """Return the lanes of a SUM."""
    return [int.from_bytes(values[at : at + 4], "big", signed=True) for at in range(0, len(values), 4)]


def of_int32s(lanes: Iterable[int]) -> bytes:
    """Encode lanes as bytes: the inverse of `int32s`."""
    return b"".join(lane.to_bytes(4, "big", signed=True) for lane in lanes)
