"""Meters: colours computed by hand, and refusals."""

from __future__ import annotations

import pytest

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import MeterSpec, MeterUnit
from dataplane.switch.tables import GREEN, RED, YELLOW, MeterArray, MeterCell, MeterConfig
from dataplane.switch.tables.meters import MAX_BURST, SCALE

SECOND_US = 1_000_000


def array_of(unit: MeterUnit = MeterUnit.PACKETS) -> MeterArray:
    return MeterArray(MeterSpec("m", 2, unit))


def test_unconfigured_cells_let_everything_pass() -> None:
    meter = array_of()
    assert [meter.execute(0, 9000, 0) for _ in range(3)] == [GREEN] * 3
    assert meter.read(0) is None


def test_out_of_range_has_no_colour_and_changes_nothing() -> None:
    meter = array_of()
    assert meter.execute(2, 64, 0) is None
    assert meter.execute(-1, 64, 0) is None
    with pytest.raises(EntryError) as caught:
        meter.read(2)
    assert caught.value.fault is EntryFault.OUT_OF_RANGE
    with pytest.raises(EntryError, match="index -1 of 2"):
        meter.write(-1, None)


def test_buckets_begin_full_and_the_peak_one_is_charged_first() -> None:
    meter = array_of()
    meter.write(1, MeterConfig(cir=1, cburst=2, pir=2, pburst=3))
    assert [meter.execute(1, 64, 0) for _ in range(5)] == [GREEN, GREEN, YELLOW, RED, RED]
    half = SECOND_US // 2  # a peak token, half a committed one
    assert [meter.execute(1, 64, half) for _ in range(2)] == [YELLOW, RED]
    assert [meter.execute(1, 64, 2 * half) for _ in range(2)] == [GREEN, RED]
    assert [meter.execute(1, 64, 100 * SECOND_US) for _ in range(5)] == [GREEN, GREEN, YELLOW, RED, RED]
    assert meter.execute(0, 64, 0) == GREEN


def test_bytes_are_charged_exactly() -> None:
    meter = array_of(MeterUnit.BYTES)
    meter.write(0, MeterConfig(cir=0, cburst=100, pir=1000, pburst=150))
    assert [meter.execute(0, nbytes, 0) for nbytes in (100, 1, 50, 49)] == [GREEN, YELLOW, RED, YELLOW]
    assert meter.execute(0, 1, 999) == RED  # 0.999 tokens
    assert meter.execute(0, 1, 1000) == YELLOW
    assert meter.execute(0, 0, 1000) == GREEN


def test_a_clock_that_goes_back_adds_nothing() -> None:
    meter = array_of()
    meter.write(0, MeterConfig(1, 1, 1, 1))
    assert [meter.execute(0, 1, now) for now in (5 * SECOND_US, 0, 5 * SECOND_US + 1)] == [GREEN, RED, RED]
    assert meter.execute(0, 1, 6 * SECOND_US) == GREEN


def test_writing_fills_the_buckets_again() -> None:
    meter, config = array_of(), MeterConfig(0, 1, 0, 1)
    meter.write(0, config)
    assert [meter.execute(0, 1, 0) for _ in range(2)] == [GREEN, RED]
    meter.write(0, config)
    assert (meter.execute(0, 1, 0), meter.read(0)) == (GREEN, config)
    meter.write(0, None)
    assert ([meter.execute(0, 1, 0) for _ in range(3)], meter.read(0)) == ([GREEN] * 3, None)


def test_unbounded_burst_is_capped_in_the_cell_but_read_back() -> None:
    cell = MeterCell(MeterUnit.BYTES, MeterConfig(1, 2**63 - 1, 1, 2**63 - 1))
    assert max(cell.words) == MAX_BURST * SCALE
    assert cell.config == MeterConfig(1, 2**63 - 1, 1, 2**63 - 1)
    assert cell.execute(2**40, 0) == GREEN


@pytest.mark.parametrize(
    "config", [MeterConfig(2, 1, 1, 1), MeterConfig(-1, 1, 1, 1), MeterConfig(1, 1, 2**63, 1), MeterConfig(1, -1, 1, 1)]
)
def test_what_is_wrong_is_refused_and_changes_nothing(config: MeterConfig) -> None:
    meter = array_of()
    with pytest.raises(EntryError, match="m: meter") as caught:
        meter.write(0, config)
    assert caught.value.fault is EntryFault.INVALID
    assert meter.read(0) is None
