"""Blocks of cells: aligned, disjoint, and always found if one exists."""

from __future__ import annotations

import random

import pytest

from controller.common.errors import ControllerError
from controller.network.aggregation.cells import cells_for, free_block
from controller.network.aggregation.registry import Registry
from controller.network.tables.aggregation import CELLS, MAX_JOBS, Block


@pytest.mark.parametrize(("window", "cells"), [(1, 2), (2, 4), (3, 8), (128, 256), (129, 512), (4096, 8192)])
def test_a_job_has_twice_its_window_as_a_power_of_two(window: int, cells: int) -> None:
    assert cells_for(window) == cells


@pytest.mark.parametrize("seed", range(3))
def test_blocks_are_aligned_and_apart_and_found_if_there_are_any(seed: int) -> None:
    chance = random.Random(seed)
    taken: list[Block] = []
    for _ in range(200):
        if taken and chance.random() < 0.45:
            taken.remove(chance.choice(taken))
            continue
        cells = 1 << chance.randrange(4, 13)
        used = {cell // cells for block in taken for cell in range(block.first, block.first + block.cells)}
        block = free_block(taken, cells)
        assert (block is not None) is (len(used) < CELLS // cells)
        if block is not None:
            assert block.cells == cells
            assert block.first % cells == 0
            assert block.first // cells not in used
            taken.append(block)


def test_small_blocks_leave_great_ones_whole() -> None:
    taken: list[Block] = []
    for cells in (2, 4096, 2, 4, 64):
        block = free_block(taken, cells)
        assert block is not None
        taken.append(block)
    assert free_block(taken, 2048) == Block(2048, 2048)
    groups = [group for block in taken for group in (block.group, block.group + 1)]
    assert len(set(groups)) == len(groups)
    assert min(groups) > 0


def test_job_number_and_cells_are_reused_once_no_switch_has_them() -> None:
    registry = Registry()
    first = registry.reserve(["s1", "s2"], window=2048)
    second = registry.reserve(["s1"], window=2048)
    assert (first.number, second.number) == (1, 2)
    with pytest.raises(ControllerError, match="s1 has no block of 2 free cells: 8192 of 8192 are in use"):
        registry.reserve(["s2", "s1"], window=1)
    with pytest.raises(ControllerError, match="still running"):
        registry.released(1, "s1")
    registry.end(1)
    with pytest.raises(ControllerError, match="s1 has no block"):
        registry.reserve(["s1"], window=1)
    registry.released(1, "s1")
    assert registry.reserve(["s1"], window=2048).blocks == {"s1": Block(0, 4096)}
    assert [held.number for held in registry.reservations] == [1, 2, 3]
    registry.released(1, "s2")
    assert [held.number for held in registry.reservations] == [2, 3]
    with pytest.raises(ControllerError, match="aggregation job 1: no such job"):
        registry.end(1)


def test_numbers_go_round_and_leave_out_those_in_use() -> None:
    registry = Registry(newest=0xFFFD)
    numbers = [registry.reserve(["s"], 1).number for _ in range(3)]
    assert numbers == [0xFFFE, 0xFFFF, 1]
    registry._newest = 0xFFFD
    assert registry.reserve(["s"], 1).number == 2


def test_a_switch_has_room_for_so_many_jobs() -> None:
    registry = Registry()
    for _ in range(MAX_JOBS):
        registry.reserve(["s"], 1)
    with pytest.raises(ControllerError, match="s has no room for another job: it already has 256"):
        registry.reserve(["s"], 1)
    with pytest.raises(ControllerError, match="a window must have 1 to 4096 items, not 4097"):
        registry.reserve(["s"], 4097)
