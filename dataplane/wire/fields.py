"""Helpers shared by all header codecs: bounds checks on data and on field values."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from dataplane.errors import WireError

IpAddress = IPv4Address | IPv6Address


def need(header: str, data: bytes, offset: int, size: int) -> None:
    """Raise WireError unless `size` bytes of `data` follow `offset`."""
    left = len(data) - offset
    if left < size:
        raise WireError(header, f"needs {size} bytes, {max(left, 0)} left", offset=offset)


def fit(header: str, **fields: tuple[int, int]) -> None:
    """Raise WireError unless each field, given as (value, bits), is an unsigned value of that many bits."""
    for name, (value, bits) in fields.items():
        if not 0 <= value < 1 << bits:
            raise WireError(header, f"{name} {value} does not fit {bits} bits")


def absent(value: int, bits: int) -> int | None:
    """Return None for all ones, which means "not available" in INT and reports (INT v2.1, section 5.8)."""
    return None if value == (1 << bits) - 1 else value


def present(value: int | None, bits: int) -> int:
    """Return all ones for None: the inverse of `absent`."""
    return (1 << bits) - 1 if value is None else value
