"""Every built-in kernel: correct outputs, detection of wrong ones, and outputs that depend on the inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import Array, Mean, local
from controller.probing.kernels.loading import Checked
from controller.probing.library import KernelLibrary, prepare
from controller.probing.values import Implementation, Library, ProbeKernel
from dataplane.topology.values import DeviceKind

SMALL: dict[str, dict[str, int]] = {
    "dgemm": {"m": 37, "n": 29, "k": 41},
    "sgemm": {"m": 37, "n": 29, "k": 41},
    "dgemv": {"m": 37, "n": 29},
    "dot": {"n": 1001},
    "dense-solve": {"n": 53, "columns": 3},
    "lu": {"n": 53},
    "cholesky": {"n": 53},
    "qr": {"m": 53, "n": 31},
    "fft": {"n": 480, "batch": 3},
    "spmv": {"rows": 301, "columns": 299, "nonzeros": 1700},
    "stencil": {"rows": 31, "columns": 29, "planes": 1},
    "conv2d": {
        "batch": 2,
        "in_channels": 4,
        "in_height": 11,
        "in_width": 13,
        "out_channels": 6,
        "out_height": 6,
        "out_width": 13,
        "kernel_height": 3,
        "kernel_width": 5,
        "groups": 2,
    },
    "trigonometric": {"n": 1001},
    "trigonometric-fp32": {"n": 1001},
    "elementwise": {"n": 1001, "operands": 3},
    "elementwise-fp32": {"n": 1001, "operands": 1},
    "reduction": {"n": 1001},
    "reduction-fp32": {"n": 1001},
    "scan": {"n": 1001},
    "copy": {"n": 1001},
    "random-numbers": {"n": 1001},
    "stream-triad": {"n": 50_000},
    "random-access": {"words": 5000, "updates": 7000},
    "sort": {"rows": 3001, "row_bytes": 24},
    "filter-scan": {"rows": 3001, "row_bytes": 24, "kept_rows": 700},
    "hash-join": {
        "left_rows": 300,
        "left_row_bytes": 24,
        "right_rows": 900,
        "right_row_bytes": 16,
        "out_rows": 701,
        "out_row_bytes": 32,
    },
    "small-files": {"files": 5, "file_bytes": 5000},
    "bulk-io": {"nbytes": 3_000_001},
    "network-pull": {"nbytes": 3_000_001, "streams": 3},
    "aggregate": {"rows": 3001, "row_bytes": 24, "groups": 7, "group_bytes": 24},
}
"""Small, odd sizes."""
OF_ALL_ROWS = {"aggregate", "hash-join"}
"""Kernels whose result covers all rows, independent of the seed's order."""
CASES = [
    pytest.param(
        kernel, implementation, id=f"{kernel.identifier}-{implementation.device.value}-{implementation.library.value}"
    )
    for kernel in KernelLibrary().kernels()
    for implementation in kernel.implementations
]
_ON_CPU, _ON_GPU = ([case for case in CASES if f"-{device}-" in str(case.id)] for device in ("cpu", "gpu"))
each_implementation = pytest.mark.parametrize(("kernel", "implementation"), _ON_CPU)
each_on_a_gpu = pytest.mark.parametrize(("kernel", "implementation"), _ON_GPU)

Ready = Callable[..., Checked]


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ready]:
    """Prepare kernels at small sizes in their own folder; it must be empty afterwards."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:

        def make(kernel: ProbeKernel, code: Implementation | None = None, seed: int = 1) -> Checked:
            code = code or kernel.implementations[0]
            if code.library is Library.TORCH:
                torch = pytest.importorskip("torch")
                if code.device is DeviceKind.GPU and not torch.cuda.is_available():
                    pytest.skip("needs a GPU")
            made = prepare(kernel, SMALL[kernel.identifier], seed, device=code.device, library=code.library)
            return stack.enter_context(closing(made))

        yield make
    assert list(tmp_path.iterdir()) == []


@each_implementation
def test_the_output_is_right_and_the_same_seed_gives_the_same(
    kernel: ProbeKernel, implementation: Implementation, ready: Ready
) -> None:
    first, second, other = (ready(kernel, implementation, seed) for seed in (7, 7, 8))
    output = first.run(())
    assert first.accuracy(output) <= kernel.tolerance
    assert np.array_equal(value_of(output), value_of(second.run(())))
    if kernel.identifier not in OF_ALL_ROWS:
        assert not np.array_equal(value_of(output), value_of(other.run(())))


@each_implementation
def test_a_wrong_output_is_seen(kernel: ProbeKernel, implementation: Implementation, ready: Ready) -> None:
    prepared = ready(kernel, implementation)
    output = value_of(prepared.run(()))
    assert prepared.accuracy(output * 1.01) > kernel.tolerance
    one_wrong = output.copy()
    one_wrong.reshape(-1)[-1] += 1
    assert prepared.accuracy(one_wrong) > kernel.tolerance
    if kernel.number_format is not None:
        assert prepared.accuracy(np.full_like(output, np.nan)) == np.inf
    assert prepared.accuracy(np.zeros(3)) > kernel.tolerance


@each_implementation
def test_inputs_change_the_output_and_keep_it_correct(
    kernel: ProbeKernel, implementation: Implementation, ready: Ready
) -> None:
    prepared = ready(kernel, implementation)
    outputs = []
    for inputs in ((), (0.25,), (0.75,), (np.linspace(0.0, 1.0, 11),)):
        output = prepared.run(inputs)
        assert prepared.accuracy(output) <= kernel.tolerance
        outputs.append(value_of(output))
    assert all(not np.array_equal(output, other) for index, output in enumerate(outputs) for other in outputs[:index])


@pytest.mark.gpu
@each_on_a_gpu
def test_output_on_a_gpu_is_right_for_any_input(
    kernel: ProbeKernel, implementation: Implementation, ready: Ready
) -> None:
    prepared = ready(kernel, implementation)
    for inputs in ((), (0.25,)):
        output = prepared.run(inputs)
        assert str(output.device).startswith("cuda")
        assert prepared.accuracy(output) <= kernel.tolerance
        assert prepared.accuracy(output * 1.01) > kernel.tolerance


def test_without_a_gpu_a_kernel_for_one_is_one_line() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(ProbeKernelError, match=r"kernel dgemm\.1: torch finds no GPU"):
        prepare(KernelLibrary().kernel("dgemm"), SMALL["dgemm"], 1, device=DeviceKind.GPU)


def test_without_torch_a_kernel_of_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelLibrary().kernel("conv2d")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "controller.probing.kernels.on_torch", raising=False)
    with pytest.raises(ProbeKernelError) as caught:
        prepare(kernel, SMALL["conv2d"], 1, library=Library.TORCH)
    assert str(caught.value) == (
        "kernel conv2d.1 needs torch, which is not installed: pip install 'millrace-net[train]'"
    )


@pytest.mark.parametrize(
    ("identifier", "shape"), [("dgemm", (37, 41)), ("dgemm", (41, 29)), ("sgemm", (37, 41)), ("fft", (3, 480))]
)
def test_an_input_of_an_operands_shape_is_the_operand(identifier: str, shape: tuple[int, ...]) -> None:
    kernel = KernelLibrary().kernel(identifier)
    prepared = prepare(kernel, SMALL[identifier], 1)
    operand = np.random.default_rng(5).normal(size=shape)
    once, twice = prepared.run((operand,)), None
    assert prepared.accuracy(once) <= kernel.tolerance
    once = value_of(once)
    twice = prepared.run((2 * operand,))
    assert prepared.accuracy(twice) <= kernel.tolerance
    np.testing.assert_allclose(value_of(twice), 2 * once, rtol=1e-5, atol=1e-5)


def test_the_mean_is_of_all_outputs() -> None:
    mean = Mean()
    for output in (np.array([1.0, 2.0]), np.array([3.0, 6.0])):
        mean.add(output)
    assert np.array_equal(mean.value, [2.0, 4.0])
    number = Mean()
    number.add(3)
    number.add(4)
    assert number.value == 3.5


def value_of(output: object) -> Array:
    """Return a copy of an output: a kernel may write the next one over it."""
    return np.array(local(output))


def test_every_built_in_kernel_is_tried() -> None:
    assert {kernel.identifier for kernel in KernelLibrary().kernels()} == SMALL.keys()
    assert {
        implementation.device for kernel in KernelLibrary().kernels() for implementation in kernel.implementations
    } <= {
        DeviceKind.CPU,
        DeviceKind.GPU,
    }
    assert all(kernel.truth for kernel in KernelLibrary().kernels())
    assert Library.NUMPY in {
        implementation.library for kernel in KernelLibrary().kernels() for implementation in kernel.implementations
    }
