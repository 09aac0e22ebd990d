"""Convolution of images with kernels in fp32, as in network layers; this is the implementation by numpy.

Stride and padding are the least that make outputs of the given sizes. The output is compared with sampled points in
higher precision, and as a whole with the value that a sum over all points of a linear operator must have.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import SAMPLES, Array, Kernel, Maker, Sizes, numbers, relative_error


class Conv2d(Kernel):
    """Images of batch x channels x height x width; kernels of out x in / groups x height x width."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.groups = sizes["groups"]
        if sizes["in_channels"] % self.groups or sizes["out_channels"] % self.groups:
            raise ProbeKernelError(f"conv2d: channels cannot be divided into {self.groups} groups")
        ways = [stride_and_padding(sizes, side) for side in ("height", "width")]
        self.strides, self.paddings = (tuple(way[axis] for way in ways) for axis in (0, 1))
        self._shape = tuple(sizes[name] for name in ("batch", "out_channels", "out_height", "out_width"))
        generator = np.random.default_rng(seed)
        images = tuple(sizes[name] for name in ("batch", "in_channels", "in_height", "in_width"))
        kernels = (
            sizes["out_channels"],
            sizes["in_channels"] // self.groups,
            sizes["kernel_height"],
            sizes["kernel_width"],
        )
        super().__init__(numbers(generator, images, np.float32), numbers(generator, kernels, np.float32))
        self._samples = tuple(generator.integers(0, size, SAMPLES) for size in self._shape)

    def compute(self, *data: Array) -> Array:
        """Convolve: images are laid out by patches, and multiplied with all kernels of a group at once."""
        images, kernels = data
        windows = self._windows(images)
        depth, out = kernels.shape[1], kernels.shape[0] // self.groups
        parts = []
        for group in range(self.groups):
            patches = windows[:, group * depth : (group + 1) * depth]
            parts.append(np.tensordot(patches, kernels[group * out : (group + 1) * out], ((1, 4, 5), (1, 2, 3))))
        output: Array = np.ascontiguousarray(np.concatenate(parts, axis=3).transpose(0, 3, 1, 2))
        return output

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled points and of the sum of all."""
        if output.shape != self._shape:
            return math.inf
        points, size, whole = self.truth(self._true)
        total = float(output.sum(dtype=np.float64))
        return max(
            relative_error(output[self._samples], points, size),
            relative_error(total, whole, size * math.sqrt(output.size)),
        )

    def _true(self) -> tuple[Array, float, float]:
        """Return sampled points, the size of their terms' sums, and the sum of all points."""
        images, kernels = self.data
        windows = self._windows(images)
        batch, channel, row, column = self._samples
        depth, out = kernels.shape[1], kernels.shape[0] // self.groups
        true, size = [], 0.0
        for index in range(SAMPLES):
            first = channel[index] // out * depth
            patch = windows[batch[index], first : first + depth, row[index], column[index]].astype(np.float64)
            terms = patch * kernels[channel[index]]
            true.append(terms.sum())
            size = max(size, float(np.abs(terms).sum()))
        return np.array(true), size, self._whole(windows, kernels)

    def _whole(self, windows: Array, kernels: Array) -> float:
        """Return the sum of all points: of each weight times the sum of what it meets."""
        depth, out = kernels.shape[1], kernels.shape[0] // self.groups
        true = 0.0
        for group in range(self.groups):
            weights = kernels[group * out : (group + 1) * out].sum(axis=0, dtype=np.float64)
            for row, column in np.ndindex(weights.shape[1:]):
                part = windows[:, group * depth : (group + 1) * depth, :, :, row, column]
                true += float(part.sum(axis=(0, 2, 3), dtype=np.float64) @ weights[:, row, column])
        return true

    def _windows(self, images: Array) -> Array:
        """Return a view of all patches: batch, channel, output row and column, kernel row and column."""
        (down, right), (stride_down, stride_right) = self.paddings, self.strides
        padded = np.pad(images, ((0, 0), (0, 0), (down, down), (right, right))) if down or right else images
        windows: Array = np.lib.stride_tricks.sliding_window_view(padded, self.data[1].shape[2:], axis=(2, 3))
        return windows[:, :, ::stride_down, ::stride_right]


def stride_and_padding(sizes: Sizes, side: str) -> tuple[int, int]:
    """Return the least stride, and for it the least padding, that make an output of a size along a side."""
    size, kernel, out = sizes[f"in_{side}"], sizes[f"kernel_{side}"], sizes[f"out_{side}"]
    for stride in range(1, size + 1):
        for padding in range(kernel):
            if size + 2 * padding >= kernel and (size + 2 * padding - kernel) // stride + 1 == out:
                return stride, padding
    raise ProbeKernelError(f"conv2d: no stride gives {side} {out} from {size} with kernels of {kernel}")


def _bytes(s: Sizes) -> int:
    images = s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]
    outputs = s["batch"] * s["out_height"] * s["out_width"]
    patches = outputs * s["in_channels"] * s["kernel_height"] * s["kernel_width"]
    return 4 * (2 * images + patches + 2 * outputs * s["out_channels"])


def torch_bytes(s: Sizes) -> int:
    """Return the bytes that the implementation by torch takes: it lays out no patches as a whole."""
    images = s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]
    weights = s["out_channels"] * s["in_channels"] // s["groups"] * s["kernel_height"] * s["kernel_width"]
    return 4 * (2 * images + 2 * weights + 2 * s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"])


conv2d: Final = Maker(Conv2d, _bytes, optional=(("groups", 1),))
