"""Times and shares of the plain twin, in whole numbers."""

from __future__ import annotations

from controller.learning.environment.model import LOAD_BITS, LOAD_UNIT_NS
from controller.learning.environment.values import Memory
from dataplane.clock import NS_PER_S

_SHARE_BITS = 16
"""Shares that are seen are counted in whole parts of 1 / 65536."""


def transfer_ns(amount: int, per_s: int) -> int:
    """Return the time for some bits or operations at a rate per second, in ns rounded up."""
    return -(-amount * NS_PER_S // per_s)


def serving_ns(memory: Memory, bits: int, *, is_write: bool) -> int:
    """Return the time that a memory takes to read or write this many bits."""
    if is_write:
        return memory.write_ns + transfer_ns(bits, memory.write_bps)
    return memory.read_ns + transfer_ns(bits, memory.read_bps)


def logarithmic(figure: int, bits: int = LOAD_BITS) -> float:
    """Return log2(1 + figure / unit) over bits, straight between powers of two; 0 below 0 and 1 at most."""
    units = LOAD_UNIT_NS + max(figure, 0)
    high = units.bit_length() - 1
    part = ((units << _SHARE_BITS) >> high) & ((1 << _SHARE_BITS) - 1)
    log = ((high - LOAD_UNIT_NS.bit_length() + 1) << _SHARE_BITS) + part
    return share(min(log, bits << _SHARE_BITS), bits << _SHARE_BITS)


def share(part: int, whole: int) -> float:
    """Return part / whole in whole parts of 1 / 65536, as both twins see it."""
    return ((part << _SHARE_BITS) // whole) / (1 << _SHARE_BITS)
