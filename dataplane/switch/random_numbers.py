"""The random numbers of P4 programs: splitmix64, so that every pipeline draws the same numbers from the same seed.

Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

MASK_64 = (1 << 64) - 1
INCREMENT = 0x9E3779B97F4A7C15
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class SplitMix:
    """A generator whose whole state is one 64-bit number."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK_64

    def next(self) -> int:
        """Return the next 64-bit number."""
        self.state = (self.state + INCREMENT) & MASK_64
        mixed = self.state
        for shift, factor in zip((30, 27), FACTORS, strict=True):
            mixed = ((mixed ^ mixed >> shift) * factor) & MASK_64
        return mixed ^ mixed >> 31

    def between(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, inclusive, 0 <= low <= high < 2^64; the modulus favours a few."""
        return low + self.next() % (high - low + 1)
