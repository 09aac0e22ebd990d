"""A sweep over a grid: each inner point becomes a weighted sum of itself and its neighbours (Jacobi's method).

The output is compared with sampled points in higher precision, and as a whole with the value that a sum over all points
of a linear operator must have: the weighted sum of the sums over the shifted grids.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import SAMPLES, Array, Kernel, Maker, Sizes, numbers, relative_error

Offset = tuple[int, int, int]


class Stencil(Kernel):
    """Boundary points stay as they are; a 2D grid is a 3D grid of one plane."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        shape = sizes["planes"], sizes["rows"], sizes["columns"]
        self.offsets = offsets_of(sizes["neighbours"], in_space=shape[0] > 1)
        generator = np.random.default_rng(seed)
        super().__init__(numbers(generator, shape))
        # Sizes of less than three have no inside.
        self._edges: Offset = (int(shape[0] > 1), 1, 1)
        inner = [size - 2 * edge for size, edge in zip(shape, self._edges, strict=True)]
        if min(inner) < 1:
            raise ProbeKernelError(f"stencil: a grid of {' x '.join(map(str, shape))} has no inner point")
        drawn = [generator.integers(0, size, SAMPLES) for size in inner]
        drawn[0][0] = drawn[1][0] = drawn[2][0] = 0
        self._samples = tuple(coordinate + edge for coordinate, edge in zip(drawn, self._edges, strict=True))

    def compute(self, *data: Array) -> Array:
        """Sweep once, an array operation for each point of the stencil."""
        (grid,) = data
        centre, *others = self.offsets
        total = self.shifted(grid, centre).copy()
        for offset in others:
            total += self.shifted(grid, offset)
        total *= 1.0 / len(self.offsets)
        swept: Array = grid.copy()
        swept[self.shifted_slices((0, 0, 0), grid.shape)] = total
        return swept

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled points and of the sum of all inner ones."""
        (grid,) = self.data
        if output.shape != grid.shape:
            return math.inf
        points, whole = self.truth(self._true)
        return max(
            relative_error(output[self._samples], points),
            relative_error(float(output.sum()), whole, float(grid.size)),
        )

    def _true(self) -> tuple[Array, float]:
        """Return sampled points, and the sum of all, boundary included."""
        (grid,) = self.data
        centre = (0, 0, 0)
        near = [
            grid[tuple(coordinate + step for coordinate, step in zip(self._samples, offset, strict=True))].astype(
                np.longdouble
            )
            for offset in self.offsets
        ]
        inner = sum(float(self.shifted(grid, offset).sum()) for offset in self.offsets) / len(self.offsets)
        edges = float(grid.sum()) - float(self.shifted(grid, centre).sum())
        return np.sum(near, axis=0) / np.longdouble(len(near)), inner + edges

    def shifted(self, grid: Array, offset: Offset) -> Array:
        """Return the inner points' neighbours at an offset."""
        view: Array = grid[self.shifted_slices(offset, grid.shape)]
        return view

    def shifted_slices(self, offset: Offset, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """Return the slices of the inner points' neighbours at an offset."""
        return tuple(
            slice(edge + step, size - edge + step) for edge, step, size in zip(self._edges, offset, shape, strict=True)
        )


def offsets_of(neighbours: int, *, in_space: bool) -> tuple[Offset, ...]:
    """Return the points of a stencil, its centre first: a cross (5, 7) or a box (9, 27); 0 is the usual cross."""
    deep = (-1, 0, 1) if in_space else (0,)
    box = sorted(product(deep, (-1, 0, 1), (-1, 0, 1)), key=lambda offset: sum(map(abs, offset)))
    cross = [offset for offset in box if sum(map(abs, offset)) <= 1]
    for points in (cross, box):
        if neighbours in {0, len(points)}:
            return tuple(points)
    raise ProbeKernelError(f"stencil: unknown stencil of {neighbours} points; known: {len(cross)}, {len(box)}")


stencil: Final = Maker(
    Stencil,
    lambda s: 8 * 3 * s["rows"] * s["columns"] * s["planes"],
    may_be_zero=("neighbours",),
    optional=(("planes", 1), ("neighbours", 0)),
)
