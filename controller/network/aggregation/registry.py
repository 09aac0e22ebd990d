"""Registry of jobs' numbers and cells, and of the cells to clear before a switch may get the job.

A switch judges whether a packet of a job is old or answered by its records under the job's number. Cells are
cleared when they are assigned, because their previous contents are unknown; they stay taken until the switch is known
to hold nothing of the job that had them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.common.errors import ControllerError
from controller.network.aggregation.cells import cells_for, free_block
from controller.network.tables.aggregation import CELLS, MAX_JOBS, Block

NUMBERS = 0xFFFF
"""Highest job number; the first is 1."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A job's number and its cells by switch; those in `dirty` may contain data of other jobs."""

    number: int
    blocks: Mapping[str, Block]
    dirty: frozenset[str]
    ended: bool = False


class Registry:
    """Reservations of all jobs, regardless of their purpose."""

    def __init__(self, newest: int = 0) -> None:
        """Begin with the number after `newest`."""
        self._held: dict[int, Reservation] = {}
        self._newest = newest
        self._strange: set[int] = set()
        self.given = 0
        """Number of job numbers given out, including those withdrawn."""

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """Return all, including those of ended jobs that are not known to be gone everywhere."""
        return tuple(self._held.values())

    def taken(self, switch: str) -> list[Block]:
        """Return the blocks of a switch that are taken."""
        return [held.blocks[switch] for held in self._held.values() if switch in held.blocks]

    def reserve(self, switches: Sequence[str], window: int) -> Reservation:
        """Return a number and cells in each switch; raise ControllerError naming the switch that has no room."""
        if not 1 <= window <= CELLS // 2:
            raise ControllerError(f"aggregation: a window must have 1 to {CELLS // 2} items, not {window}")
        cells = cells_for(window)
        blocks = {switch: self._block(switch, cells) for switch in switches}
        reservation = Reservation(self._number(), blocks, frozenset(blocks))
        self._held[reservation.number] = reservation
        self._newest = reservation.number
        self.given += 1
        return reservation

    @property
    def newest(self) -> int:
        """The number that was given out last."""
        return self._newest

    def given_out(self, newest: int) -> None:
        """Give out the numbers after `newest` from now on."""
        self._newest = newest

    def adopt(self, number: int, switches: Sequence[str], blocks: Mapping[str, Block], window: int) -> None:
        """Take over a number and cells that are in use; raise ControllerError if they cannot all be."""
        name, cells = f"aggregation job {number}", cells_for(window)
        if number in self._held:
            raise ControllerError(f"{name}: its number is taken")
        if set(blocks) != set(switches):
            raise ControllerError(f"{name}: its cells are not in the switches of its tree")
        for switch, block in blocks.items():
            if block.cells != cells or block.first % cells or not 0 <= block.first <= CELLS - cells:
                raise ControllerError(f"{name}: cells {block.first} to {block.end - 1} of {switch} are not a block")
            if any(block.first < other.end and other.first < block.end for other in self.taken(switch)):
                raise ControllerError(f"{name}: cells {block.first} to {block.end - 1} of {switch} are taken")
        self._held[number] = Reservation(number, dict(blocks), frozenset())

    def avoid(self, numbers: Iterable[int]) -> None:
        """Reserve numbers that jobs of others have or had: their workers may still send."""
        self._strange.update(numbers)

    def end(self, number: int) -> None:
        """Withdraw a job's number and cells; they are free once they are `released`. Raise ControllerError."""
        self._held[number] = replace(self._known(number), ended=True)

    def withdraw(self, number: int) -> None:
        """Take back a reservation under which nothing has been written."""
        del self._held[self._known(number).number]

    def cleared(self, number: int, switch: str) -> None:
        """Note that a job's cells in a switch are empty."""
        held = self._known(number)
        self._held[number] = replace(held, dirty=held.dirty - {switch})

    def soiled(self, number: int, switch: str) -> None:
        """Note that a job's cells in a switch are to be cleared once more."""
        held = self._known(number)
        self._held[number] = replace(held, dirty=held.dirty | {switch})

    def released(self, number: int, switch: str) -> None:
        """Note that a switch holds nothing of a job that has ended."""
        held = self._known(number)
        if not held.ended:
            raise ControllerError(f"aggregation job {number}: still running")
        blocks = {name: block for name, block in held.blocks.items() if name != switch}
        if blocks:
            self._held[number] = replace(held, blocks=blocks)
        else:
            del self._held[number]

    def _known(self, number: int) -> Reservation:
        if number not in self._held:
            raise ControllerError(f"aggregation job {number}: no such job")
        return self._held[number]

    def _number(self) -> int:
        """Return the number that has not been used for the longest time."""
        for step in range(NUMBERS):
            number = (self._newest + step) % NUMBERS + 1
            if number not in self._held and number not in self._strange:
                return number
        raise ControllerError(f"aggregation: all {NUMBERS} job numbers are in use")

    def _block(self, switch: str, cells: int) -> Block:
        taken = self.taken(switch)
        if len(taken) >= MAX_JOBS:
            raise ControllerError(f"aggregation: {switch} has no room for another job: it already has {MAX_JOBS}")
        block = free_block(taken, cells)
        if block is None:
            used = sum(other.cells for other in taken)
            raise ControllerError(
                f"aggregation: {switch} has no block of {cells} free cells: {used} of {CELLS} are in use"
            )
        return block
