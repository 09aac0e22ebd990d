"""Real tasks: programs as users write them, of thousands of like steps; nothing in them knows of probes.

Each is a function of how many steps it takes, and returns a figure that depends on all of them. What makes their data
ready is part of them. They import what they compute with where they begin, as programs of one purpose do.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from tests.benchmarks.probing.exchange import FEATURES, GRADIENT_BYTES, PEER, Exchange

_ROWS: Final = 384
_SIGNALS, _SAMPLES = 8, 32_768
_GRID: Final = 400
_IMAGES, _CHANNELS, _PIXELS = 16, 16, 28
_ORDERS, _CUSTOMERS = 2_000_000, 50_000
QUERY: Final = """
SELECT count(*) AS orders, sum(o.amount) AS amount
FROM orders AS o JOIN customers AS c ON o.customer = c.id
WHERE c.region = 3 AND o.amount > 250
"""


def dense_solve(steps: int | str) -> float:
    """Integrate a stiff linear system by the implicit Euler method: a dense solve a step, its matrix new each time."""
    random = np.random.default_rng(1)
    jacobian = random.standard_normal((_ROWS, _ROWS)) / np.sqrt(_ROWS)
    identity = np.eye(_ROWS)
    state = np.ones((_ROWS, 1))
    for step in range(int(steps)):
        matrix = identity - (1e-3 * (1 + step % 7)) * jacobian
        state = np.linalg.solve(matrix, state)
        state = state / np.linalg.norm(state)
    return float(state.sum())


def fft_pipeline(steps: int | str) -> float:
    """Filter blocks of signals in the frequency domain: transform, multiply, transform back."""
    random = np.random.default_rng(2)
    signals = random.standard_normal((_SIGNALS, _SAMPLES)) + 0j
    band = np.exp(-np.linspace(0, 4, _SAMPLES))
    power = 0.0
    for _ in range(int(steps)):
        spectra = np.fft.fft(signals)
        filtered = np.multiply(spectra, band)
        blocks = np.fft.ifft(filtered)
        power += float(blocks[0, 0].real)
    return power


def sparse_solve(steps: int | str) -> float:
    """Solve Poisson's equation on a square by conjugate gradients, for one right side after the other."""
    import scipy.sparse  # noqa: PLC0415

    side = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(_GRID, _GRID))
    identity = scipy.sparse.eye_array(_GRID)
    matrix = scipy.sparse.csr_array(scipy.sparse.kron(identity, side) + scipy.sparse.kron(side, identity))
    right = np.ones(_GRID * _GRID)
    solution, residual = np.zeros_like(right), right
    direction, squared = residual, float(np.dot(residual, residual))
    for step in range(int(steps)):
        product = np.asarray(matrix @ direction)
        length = squared / float(np.dot(direction, product))
        solution = solution + length * direction
        residual = residual - length * product
        following = float(np.dot(residual, residual))
        direction = residual + (following / squared) * direction
        squared = following
        if step % 500 == 499:
            residual = right * (1 + step)
            direction, squared = residual, float(np.dot(residual, residual))
    return float(solution.sum())


def convolution_training(steps: int | str) -> float:
    """Train a small convolutional network on images that are made up: forward, backward, a step down the gradient."""
    import torch  # noqa: PLC0415

    torch.manual_seed(4)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(_CHANNELS, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, _CHANNELS, 3, padding=1),
    )
    weights = list(network.parameters())
    images = torch.rand(_IMAGES, _CHANNELS, _PIXELS, _PIXELS)
    loss = torch.zeros(())
    for _ in range(int(steps)):
        loss = torch.nn.functional.mse_loss(network(images), images)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=1e-3)
    return float(loss.detach())


def join_and_filter(steps: int | str) -> float:
    """Ask a database of generated tables the same question again and again."""
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as database:
        make_tables(database)
        amount = 0.0
        for _ in range(int(steps)):
            row = database.execute(QUERY).fetchone()
            amount += float(row[1]) if row else 0.0
    return amount


def make_tables(database: object) -> None:
    """Make customers and their orders, by arithmetic."""
    execute = database.execute  # type: ignore[attr-defined]  # duckdb's connection
    execute(f"CREATE TABLE customers AS SELECT range AS id, range * 7919 % 11 AS region FROM range({_CUSTOMERS})")
    execute(
        "CREATE TABLE orders AS SELECT range AS id, range * 104729 % "
        f"{_CUSTOMERS} AS customer, range * 1299709 % 1000 AS amount FROM range({_ORDERS})"
    )


def all_reduce_steps(steps: int | str) -> float:
    """Descend with a second worker elsewhere in the fabric: a gradient a step, added up over both."""
    random = np.random.default_rng(6)
    inputs = random.standard_normal((FEATURES, FEATURES)).astype(np.float32)
    weights = random.standard_normal((FEATURES, FEATURES)).astype(np.float32)
    with Exchange(os.environ[PEER], GRADIENT_BYTES) as exchange:
        for _ in range(int(steps)):
            gradient = np.matmul(inputs, weights)
            theirs = exchange.swap(gradient)
            weights = weights - np.float32(1e-6) * (gradient + theirs)
    return float(weights.sum())
