"""Cells of a switch in blocks: powers of two, each aligned to its size (the buddy system, Knowlton 1965).

Only the blocks in use are kept, which can also be read from a switch's entries.
"""

from __future__ import annotations

from collections.abc import Collection

from controller.network.tables.aggregation import CELLS, Block


def cells_for(window: int) -> int:
    """Return the cells that a job needs in each of its switches: twice its window, as a power of two."""
    return 1 << (2 * window - 1).bit_length()


def free_block(taken: Collection[Block], cells: int) -> Block | None:
    """Return a block of `cells` cells within the smallest free one that is large enough, None if there is none."""
    fitting = [block for block in _free(Block(0, CELLS), taken) if block.cells >= cells]
    if not fitting:
        return None
    best = min(fitting, key=lambda block: (block.cells, block.first))
    return Block(best.first, cells)


def _free(block: Block, taken: Collection[Block]) -> list[Block]:
    """Return the greatest free blocks within one."""
    inside = [other for other in taken if block.first < other.end and other.first < block.end]
    if not inside:
        return [block]
    if any(other.first <= block.first and other.end >= block.end for other in inside):
        return []
    half = block.cells // 2
    return _free(Block(block.first, half), inside) + _free(Block(block.first + half, half), inside)
