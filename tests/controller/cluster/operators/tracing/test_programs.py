"""Traced real programs: graphs as written by hand, and bit-identical results."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.sparse
import scipy.sparse.linalg

from controller.cluster.operators import work_of
from controller.cluster.operators.tracing import Traced, trace_callable
from controller.cluster.operators.tracing.arrays import TracedArray

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")


def operators_of(traced: Traced) -> list[tuple[str, int]]:
    return [(operator.signature, operator.executions) for operator in traced.graph.operators]


def flows_of(traced: Traced) -> set[tuple[str, str]]:
    return {(flow.src, flow.dst) for flow in traced.graph.flows}


def spectrum(n: int) -> Any:
    """Drop the high frequencies of eight signals, four times."""
    signals = np.random.RandomState(1).standard_normal((8, n))
    for _ in range(4):
        waves = scipy.fft.rfft(signals, axis=1)
        waves[:, n // 4 :] = 0
        signals = scipy.fft.irfft(waves, axis=1)
    return np.abs(np.fft.fft2(signals))


def conjugate_gradients(n: int, steps: int) -> Any:
    """Solve a Laplace equation on a line."""
    a: Any = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    x, b = np.zeros(n), np.ones(n)
    r = b - a @ x
    p, rr = r.copy(), r @ r
    for _ in range(steps):
        q = a @ p
        alpha = rr / (p @ q)
        x += alpha * p
        r -= alpha * q
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x


def library_solver(n: int) -> Any:
    a = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).tocsr()
    return scipy.sparse.linalg.cg(a, np.ones(n), maxiter=7)


def images(n: int) -> Any:
    """Filter an image with scipy and decompose it."""
    image = np.linspace(0, 1, n * n).reshape(n, n)
    smooth = scipy.ndimage.laplace(image) + scipy.ndimage.convolve(image, np.ones((3, 3)))
    blurred = scipy.signal.convolve2d(smooth, np.full((5, 5), 0.04), mode="valid")
    return scipy.linalg.svd(blurred)[1], scipy.linalg.cho_factor(blurred.T @ blurred + np.eye(len(blurred)))[0]


def training(steps: int) -> Any:
    """Train two convolutions and a linear layer."""
    import torch  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten())
    head = nn.Linear(8 * 16 * 16, 10)
    parameters = [*net.parameters(), *head.parameters()]
    images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
    for _ in range(steps):
        loss = nn.functional.cross_entropy(head(net(images)), labels)
        loss.backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None
    return [parameter.detach().numpy() for parameter in parameters]


def test_a_fft_pipeline() -> None:
    traced = trace_callable(spectrum, (256,))
    assert traced.problems == ()
    kinds = operators_of(traced)
    # A transform of real numbers counts as one of half as many complex ones; that of a plane covers all points.
    assert ("fft fp64 batch=8 n=128", 4) in kinds
    assert kinds.count(("fft fp64 batch=8 n=128", 4)) == 2
    assert ("fft fp64 batch=1 n=2048", 1) in kinds
    assert {("fft-1", "fft-2"), ("fft-2", "fft-3"), ("random-numbers-1", "fft-1")} <= flows_of(traced)
    assert ("fft-2", "fft-1") in {(flow.src, flow.dst) for flow in traced.carried}
    assert {operator.library for operator in traced.graph.operators if operator.kind == "fft"} == {"scipy", "numpy"}


def test_a_sparse_solver() -> None:
    traced = trace_callable(conjugate_gradients, (500, 20))
    assert traced.problems == ()
    sizes = "columns=500 nonzeros=1498 rows=500"
    assert operators_of(traced) == [
        (f"spmv fp64 {sizes}", 1),
        ("elementwise fp64 n=500 operands=2", 1),
        ("copy fp64 n=500", 1),
        ("dot fp64 n=500", 1),
        (f"spmv fp64 {sizes}", 20),
        ("dot fp64 n=500", 20),
        ("elementwise fp64 n=500 operands=1", 20),
        ("elementwise fp64 n=500 operands=2", 20),
        ("elementwise fp64 n=500 operands=1", 20),
        ("elementwise fp64 n=500 operands=2", 20),
        ("dot fp64 n=500", 20),
        ("elementwise fp64 n=500 operands=1", 20),
        ("elementwise fp64 n=500 operands=2", 20),
    ]
    assert {("spmv-2", "dot-2"), ("spmv-2", "elementwise-4"), ("elementwise-5", "dot-3")} <= flows_of(traced)
    assert ("elementwise-7", "spmv-2") in {(flow.src, flow.dst) for flow in traced.carried}


def test_solvers_of_libraries_are_followed_inside() -> None:
    traced = trace_callable(library_solver, (500,))
    assert ("spmv fp64 columns=500 nonzeros=1498 rows=500", 7) in operators_of(traced)
    assert all(line.startswith("test_programs.py:") for line in traced.places.values())


def test_filters_of_images_are_stencils_and_convolutions() -> None:
    kinds = [signature for signature, _ in operators_of(trace_callable(images, (40,)))]
    assert "stencil fp64 columns=40 rows=40" in kinds
    assert "stencil fp64 columns=40 neighbours=9 rows=40" in kinds
    assert "svd fp64 m=36 n=36" in kinds
    assert "gemm fp64 k=36 m=36 n=36" in kinds
    assert "cholesky fp64 n=36" in kinds
    assert sum(kind.startswith("conv2d fp64 batch=1 in_channels=1") for kind in kinds) == 1


@needs_torch
def test_a_training_step_forwards_and_backwards() -> None:
    traced = trace_callable(training, (3,))
    assert traced.problems == ()
    kinds = operators_of(traced)
    planes = "in_height=16 in_width=16 kernel_height=3 kernel_width=3 out_channels=8 out_height=16 out_width=16"
    first, second = (f"conv2d fp32 batch=4 in_channels={channels} {planes}" for channels in (3, 8))
    # In the first layer only weights have a gradient, in the second also the input.
    assert sorted(kind for kind in kinds if kind[0].startswith("conv2d")) == [
        (first, 3),
        (first, 3),
        (second, 3),
        (second, 6),
    ]
    assert ("gemm fp32 k=2048 m=4 n=10", 3) in kinds
    assert ("gemm fp32 k=4 m=10 n=2048", 3) in kinds
    assert {("conv2d-1", "elementwise-1"), ("elementwise-1", "conv2d-2"), ("conv2d-2", "gemm-1")} <= flows_of(traced)
    backwards = [name for name, line in traced.places.items() if line.startswith("backward of test_programs.py")]
    assert len([name for name in backwards if name.startswith("conv2d")]) == 2
    assert {operator.library for operator in traced.graph.operators} == {"torch"}


PROGRAMS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (spectrum, (256,)),
    (conjugate_gradients, (500, 20)),
    (library_solver, (500,)),
    (images, (40,)),
]


def same(actual: Any, other: Any) -> bool:
    if isinstance(actual, list | tuple):
        return len(actual) == len(other) and all(map(same, actual, other))
    assert type(actual) is type(other)
    return np.array_equal(actual, other)


@pytest.mark.parametrize(("program", "arguments"), PROGRAMS, ids=lambda value: getattr(value, "__name__", ""))
def test_results_are_the_same_to_the_last_bit(program: Callable[..., Any], arguments: tuple[int, ...]) -> None:
    traced = trace_callable(program, arguments)
    assert same(traced.result, program(*arguments))
    for operator in traced.graph.operators:
        work_of(operator)
    assert traced.seconds.keys() == traced.places.keys() == traced.graph.operator.keys()


@needs_torch
def test_trained_weights_are_the_same_to_the_last_bit() -> None:
    assert same(trace_callable(training, (2,)).result, training(2))


def many_ways() -> Any:
    """Use arrays in common ways: views, indexing, outputs, methods, powers, reductions, conversions."""
    a = np.arange(60.0).reshape(5, 12) / 7
    b = a.T[::2, 1:]
    b **= 2
    c = np.empty((5, 12))
    np.multiply(a, 3, out=c)
    np.add.at(c, (np.array([0, 0, 1]), np.array([1, 1, 2])), 5.0)
    c[c > 10] -= 0.5
    c[1:3] = a[2:4]
    d = np.where(c > 3, c, -c)
    parts = np.split(d, 2, axis=1)
    e = np.concatenate(parts[::-1], axis=1)
    e.sort(axis=0)
    f = (e**0.5 if e.min() >= 0 else np.abs(e) ** 0.5) ** 1.5
    g = np.einsum("ij,kj->ik", f, d) + np.tensordot(f, d, axes=([1], [1]))
    h = f.astype(np.float32).sum(axis=0) // 2 % 5
    q, r = np.linalg.qr(g)
    mask = (g > g.mean()) & ~(g < 0) | (g == 0)
    i = -f @ d.T - +g
    numbers = (a.std(), c.cumsum()[-1], int(d.argmax()), f.max(), float(np.linalg.norm(g)), len(a), a[1, 2], d.tolist())
    return (
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        q,
        r,
        mask,
        i,
        divmod(a, 3),
        np.unique(h),
        numbers,
        2.0 ** a[0],
        7 - b,
        str(h),
        f"{h}",
    )


def test_traced_array_programs_give_the_same_values_and_types() -> None:
    results, wanted = trace_callable(many_ways).result, many_ways()
    assert isinstance(results, tuple)
    for result, other in zip(results, wanted, strict=True):
        assert type(result) is type(other)
        assert np.array_equal(result, other) if isinstance(result, np.ndarray) else repr(result) == repr(other)


def test_arguments_are_changed_in_place() -> None:
    values = np.arange(10.0)

    def double(array: Any) -> Any:
        array *= 2
        array[3:5] = 0
        return array

    traced = trace_callable(double, (values,))
    assert traced.result is not None
    assert values.tolist() == [0, 2, 4, 0, 0, 10, 12, 14, 16, 18]
    assert type(values) is np.ndarray


def test_nothing_of_the_tracer_stays_behind() -> None:
    before = (np.array, np.zeros, np.random.default_rng, scipy.linalg.solve, scipy.sparse.csr_array.__matmul__)
    kept: list[Any] = []
    trace_callable(lambda: kept.append(np.ones(3)))
    assert (np.array, np.zeros, np.random.default_rng, scipy.linalg.solve, scipy.sparse.csr_array.__matmul__) == before
    assert type(np.ones(3)) is np.ndarray
    # Arrays that the program kept still work, and their results are plain arrays.
    assert type(kept[0]) is TracedArray
    assert type(kept[0] + 1) is np.ndarray


def test_operands_may_be_named() -> None:
    def program() -> Any:
        a, b = np.ones((6, 6)) + np.eye(6), np.ones(6)
        return (
            np.linalg.solve(a=a, b=b),
            np.take(a, indices=np.array([1, 3])),
            np.convolve(a=b, v=b),
            np.sort(a=a, axis=0),
        )

    traced = trace_callable(program)
    assert traced.problems == ()
    kinds = [operator.kind for operator in traced.graph.operators]
    assert kinds == ["elementwise", "solve", "random-access", "convolution", "sort"]
    assert same(traced.result, program())


def test_calls_the_tracer_cannot_read_are_reported_and_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strange(*_: Any) -> None:
        raise IndexError

    monkeypatch.setattr("controller.cluster.operators.tracing.describing.functions.of_operator", lambda _: strange)
    traced = trace_callable(lambda: np.ones(9) * 2)
    assert same(traced.result, np.ones(9) * 2)
    assert traced.problems[0] == "mul was called in an unknown way (IndexError): it is left out"
