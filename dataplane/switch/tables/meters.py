"""Meters: two rates, three colours (RFC 2698, colour-blind), in whole numbers, so that every pipeline agrees.

Token buckets as in bmv2: both start full, the peak one is charged first (red if it lacks tokens, and nothing is
charged), then the committed one (yellow if it lacks them, the peak one stays charged), else green. An unconfigured
meter makes everything green.

The arithmetic, exactly: a bucket's level counts millionths of a unit (a byte or a packet), so that a rate in units a
second adds `rate` to it each microsecond. capacity = min(burst, MAX_BURST) * 1,000,000. On each packet, if now > last:
level = min(level + (now - last) * rate, capacity) for both buckets, in unbounded integers, and last = now; a clock that
stands or goes back adds nothing. A packet costs nbytes * 1,000,000 (1,000,000 where packets are counted) and a bucket
lacks tokens where its level is below the cost. bmv2 computes the same in floating point and may differ by one unit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import MeterSpec, MeterUnit

GREEN, YELLOW, RED = 0, 1, 2
SCALE = 1_000_000
MAX_BURST = 1 << 43
"""Units; 8.8 terabytes: a larger burst acts like this one, so that levels fit 64 bits."""
MAX_RATE = (1 << 63) - 1
CELL_WORDS = 8
"""Words of a cell, in the order of `dataplane.switch.abi.MeterCell`."""

_STATE, _CIR, _PIR, _COMMITTED_CAPACITY, _PEAK_CAPACITY, _COMMITTED, _PEAK, _LAST_US = range(CELL_WORDS)
CONFIGURED = 1 << 32
COUNTS_PACKETS = 1 << 33
"""Flags in a cell's first word, whose lower half is a lock that compiled code takes."""


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Committed and peak rates in units per second, and bursts in units; the meter's units are bytes or packets."""

    cir: int
    cburst: int
    pir: int
    pburst: int


def check_config(config: MeterConfig, where: str) -> None:
    """Raise EntryError naming `where` unless rates and bursts are in range, the peak rate at least the committed."""
    for value in (config.cir, config.cburst, config.pir, config.pburst):
        if not 0 <= value <= MAX_RATE:
            raise EntryError(EntryFault.INVALID, f"meter: {value} is not in 0..2^63-1", where=where)
    if config.pir < config.cir:
        problem = f"meter: the peak rate {config.pir} is below the committed rate {config.cir}"
        raise EntryError(EntryFault.INVALID, problem, where=where)


def fresh_words(config: MeterConfig | None, unit: MeterUnit) -> tuple[int, ...]:
    """Return the words of a cell with full buckets; all zero if it is not configured."""
    if config is None:
        return (0,) * CELL_WORDS
    state = CONFIGURED | (COUNTS_PACKETS if unit is MeterUnit.PACKETS else 0)
    committed, peak = (min(burst, MAX_BURST) * SCALE for burst in (config.cburst, config.pburst))
    return (state, config.cir, config.pir, committed, peak, committed, peak, 0)


def execute(words: array[int], start: int, nbytes: int, now_us: int) -> int:
    """Charge one packet of `nbytes` bytes to the cell whose words begin at `start`; return its colour."""
    state, cir, pir, committed_capacity, peak_capacity, committed, peak, last_us = words[start : start + CELL_WORDS]
    if not state & CONFIGURED:
        return GREEN
    if now_us > last_us:
        committed = min(committed + (now_us - last_us) * cir, committed_capacity)
        peak = min(peak + (now_us - last_us) * pir, peak_capacity)
        last_us = now_us
    cost = SCALE if state & COUNTS_PACKETS else nbytes * SCALE
    colour = RED if peak < cost else YELLOW if committed < cost else GREEN
    words[start + _PEAK] = peak - cost if colour != RED else peak
    words[start + _COMMITTED] = committed - cost if colour == GREEN else committed
    words[start + _LAST_US] = last_us
    return colour


CellWriter = Callable[[int, tuple[int, ...]], None]
"""Writes a cell's words at an address in one step, as seen by compiled code that may be charging packets to it."""


class MeterCell:
    """The direct meter of one entry."""

    __slots__ = ("config", "unit", "words")

    def __init__(self, unit: MeterUnit, config: MeterConfig | None = None) -> None:
        self.unit, self.config = unit, config
        self.words = array("Q", fresh_words(config, unit))

    @property
    def address(self) -> int:
        """Address of the words; valid while this object lives."""
        return self.words.buffer_info()[0]

    def write(self, config: MeterConfig | None, writer: CellWriter | None = None) -> None:
        """Set rates and bursts, and fill the buckets; None lets everything pass."""
        self.config = config
        _store(self.words, 0, fresh_words(config, self.unit), writer)

    def execute(self, nbytes: int, now_us: int) -> int:
        """Charge one packet; return its colour."""
        return execute(self.words, 0, nbytes, now_us)


class MeterArray:
    """An indirect meter: cells that are configured independently. `cells` are their words, CELL_WORDS each."""

    def __init__(self, spec: MeterSpec) -> None:
        self.spec = spec
        self.cells = array("Q", bytes(8 * CELL_WORDS * spec.size))
        self.writer: CellWriter | None = None
        self._configs: dict[int, MeterConfig] = {}

    def read(self, index: int) -> MeterConfig | None:
        """Return a cell's configuration, None if it lets everything pass; raise EntryError if it is out of range."""
        self._check(index)
        return self._configs.get(index)

    def write(self, index: int, config: MeterConfig | None) -> None:
        """Set a cell's rates and bursts and fill its buckets; raise EntryError if it is out of range or malformed."""
        self._check(index)
        if config is None:
            self._configs.pop(index, None)
        else:
            check_config(config, self.spec.name)
            self._configs[index] = config
        _store(self.cells, index * CELL_WORDS, fresh_words(config, self.spec.unit), self.writer)

    def execute(self, index: int, nbytes: int, now_us: int) -> int | None:
        """Charge a packet of `nbytes` bytes to a cell and return its colour; out of range, None, as bmv2: no change."""
        if not 0 <= index < self.spec.size:
            return None
        return execute(self.cells, index * CELL_WORDS, nbytes, now_us)

    def adopt(self, other: MeterArray) -> None:
        """Take over the configuration and the buckets of a meter of the same shape."""
        self._configs = dict(other._configs)
        self.cells[:] = other.cells
        for start in range(0, len(self.cells), CELL_WORDS):
            self.cells[start] &= CONFIGURED | COUNTS_PACKETS  # not the lock

    def _check(self, index: int) -> None:
        if not 0 <= index < self.spec.size:
            raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {self.spec.size}", where=self.spec.name)


def _store(words: array[int], start: int, fresh: tuple[int, ...], writer: CellWriter | None) -> None:
    if writer is None:
        words[start : start + CELL_WORDS] = array("Q", fresh)
    else:
        writer(words.buffer_info()[0] + 8 * start, fresh)
