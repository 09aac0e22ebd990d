"""Kernels by PyTorch, on processors and on GPUs: PyTorch programs run these, with PyTorch's own libraries.

Data and truth are those of each kernel's numpy twin; its arrays are tensors on the device from the start. An input that
replaces one is moved there within the run, as it is a value of the program. A run on a GPU includes waiting for the GPU
to finish.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels import convolution, dense, factorisations, fourier, grids, memory, pointwise
from controller.probing.kernels.base import Kernel, Maker, Output, Sizes, Value, local

Compute = Callable[..., Any]
Twin = Callable[[Sizes, int], Kernel]


class OnTorch:
    """A kernel whose data and truth are its twin's, and whose output PyTorch computes on a device."""

    def __init__(self, device: str, twin: Twin, compute: Callable[[Kernel], Compute], sizes: Sizes, seed: int) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise ProbeKernelError("torch finds no GPU")
        self._device = torch.device(device)
        self._twin = twin(sizes, seed)
        self._compute = compute(self._twin)
        self._tensors = [self._moved(array) for array in self._twin.data]

    def run(self, inputs: tuple[Value, ...]) -> Output:
        """Compute once, with the inputs applied to the data."""
        self._twin.take(inputs)
        for index in self._twin.changed:
            self._tensors[index] = self._moved(self._twin.data[index])
        with torch.inference_mode():
            output = self._compute(*self._tensors)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return output

    def accuracy(self, output: Output) -> float:
        """Return the error that the twin computes."""
        return self._twin.accuracy(local(output))

    def close(self) -> None:
        """Free the device's memory."""
        self._tensors.clear()
        self._twin.close()

    def _moved(self, array: Any) -> Any:  # noqa: ANN401 - an array, and a tensor of it
        # On a processor the tensor shares the array's memory, so the run pays for no copy.
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


def _conv2d(twin: Kernel) -> Compute:
    assert isinstance(twin, convolution.Conv2d)
    return partial(_convolved, strides=twin.strides, paddings=twin.paddings, groups=twin.groups)


def _convolved(images: Any, kernels: Any, *, strides: Any, paddings: Any, groups: int) -> Any:  # noqa: ANN401 - tensors
    return torch.nn.functional.conv2d(images, kernels, stride=strides, padding=paddings, groups=groups)


def _stencil(twin: Kernel) -> Compute:
    assert isinstance(twin, grids.Stencil)
    return partial(_swept, twin)


def _swept(twin: grids.Stencil, grid: Any) -> Any:  # noqa: ANN401 - tensors
    centre, *others = twin.offsets
    total = grid[twin.shifted_slices(centre, grid.shape)].clone()
    for offset in others:
        total += grid[twin.shifted_slices(offset, grid.shape)]
    swept = grid.clone()
    swept[twin.shifted_slices((0, 0, 0), grid.shape)] = total / len(twin.offsets)
    return swept


class _SparseProduct:
    """A sparse matrix in compressed rows times a vector; rebuilds the matrix if its values change."""

    def __init__(self, twin: Kernel) -> None:
        assert isinstance(twin, dense.Spmv)
        self._starts, self._indices = torch.from_numpy(twin.starts), torch.from_numpy(twin.indices)
        self._shape = (twin.starts.size - 1, twin.data[0].size)
        self._values: Any = None
        self._matrix: Any = None

    def __call__(self, vector: Any, values: Any) -> Any:  # noqa: ANN401 - tensors
        if values is not self._values:
            starts, indices = (tensor.to(values.device) for tensor in (self._starts, self._indices))
            with warnings.catch_warnings():
                # PyTorch warns once per process that sparse CSR is in beta state.
                warnings.simplefilter("ignore", UserWarning)
                self._matrix = torch.sparse_csr_tensor(starts, indices, values, self._shape, check_invariants=False)
            self._values = values
        return self._matrix @ vector


class _Triad:
    """a = b + s c into an array that stays."""

    def __init__(self, twin: Kernel) -> None:
        del twin
        self._a: Any = None

    def __call__(self, b: Any, c: Any) -> Any:  # noqa: ANN401 - tensors
        if self._a is None:
            self._a = torch.empty_like(b)
        return torch.add(b, c, alpha=memory.SCALE, out=self._a)


def _solved(right: Any, matrix: Any) -> Any:  # noqa: ANN401 - tensors
    return torch.linalg.solve(matrix, right)


def _elementwise(*operands: Any) -> Any:  # noqa: ANN401 - tensors
    if len(operands) == 1:
        return -operands[0]
    result = operands[0] * operands[1]
    for other in operands[2:]:
        result = result + other
    return result


def _always(compute: Compute) -> Callable[[Kernel], Compute]:
    return lambda _: compute


def _maker(device: str, twin: Twin, compute: Callable[[Kernel], Compute], of: Maker) -> Maker:
    """Return a maker; on a processor tensors and arrays are the same memory, on a GPU its own memory counts."""
    make = partial(OnTorch, device, twin, compute)
    return Maker(make, of.needs_bytes, of.may_be_zero, of.optional)


_KERNELS: Final[dict[str, tuple[Twin, Callable[[Kernel], Compute], Maker]]] = {
    "dgemm": (partial(dense.Gemm, np.float64), _always(torch.matmul), dense.dgemm),
    "sgemm": (partial(dense.Gemm, np.float32), _always(torch.matmul), dense.sgemm),
    "dgemv": (partial(dense.Gemv, np.float64), _always(torch.mv), dense.dgemv),
    "dot": (partial(dense.Dot, np.float64), _always(torch.dot), dense.ddot),
    "spmv": (dense.Spmv, _SparseProduct, dense.spmv),
    "solve": (
        factorisations.Solve,
        _always(_solved),
        factorisations.solve,
    ),
    "cholesky": (factorisations.Cholesky, _always(torch.linalg.cholesky), factorisations.cholesky),
    "fft": (partial(fourier.Fft, "numpy.fft"), _always(lambda signal: torch.fft.fft(signal, dim=1)), fourier.fft),
    "stencil": (grids.Stencil, _stencil, grids.stencil),
    "conv2d": (convolution.Conv2d, _conv2d, Maker(convolution.Conv2d, convolution.torch_bytes, (), (("groups", 1),))),
    "trigonometric": (partial(pointwise.Trigonometric, np.float64), _always(torch.sin), pointwise.trigonometric),
    "trigonometric_fp32": (
        partial(pointwise.Trigonometric, np.float32),
        _always(torch.sin),
        pointwise.trigonometric_fp32,
    ),
    "elementwise": (partial(pointwise.Elementwise, np.float64), _always(_elementwise), pointwise.elementwise),
    "elementwise_fp32": (
        partial(pointwise.Elementwise, np.float32),
        _always(_elementwise),
        pointwise.elementwise_fp32,
    ),
    "reduction": (partial(pointwise.Reduction, np.float64), _always(torch.sum), pointwise.reduction),
    "reduction_fp32": (partial(pointwise.Reduction, np.float32), _always(torch.sum), pointwise.reduction_fp32),
    "scan": (partial(pointwise.Scan, np.float64), _always(lambda data: torch.cumsum(data, 0)), pointwise.scan),
    "copy": (partial(pointwise.Copy, np.float64), _always(torch.clone), pointwise.copy),
    "stream_triad": (
        memory.StreamTriad,
        _Triad,
        memory.stream_triad,
    ),
}

MAKERS: Final = {
    f"{name}_{device}": _maker(device, *parts) for name, parts in _KERNELS.items() for device in ("cpu", "cuda")
}


def __getattr__(name: str) -> Maker:
    """Return a maker by the name that entry points have: KERNEL_DEVICE."""
    try:
        return MAKERS[name]
    except KeyError:
        raise AttributeError(name) from None
