"""Which engine computes a plan; each is imported only where it does."""

from __future__ import annotations

import importlib.util

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.values import Backend, Engine, Plan


def backend_of(plan: Plan, memory_bytes: int, threads: int) -> Backend:
    """Return what computes a plan here; RunError where its engine is not installed or has no device.

    `memory_bytes` bounds what DuckDB computes in; it and torch use so many threads.
    """
    if plan.engine is Engine.DUCKDB:
        from controller.acceleration.running.engines.duckdb_tables import DuckDbBackend  # noqa: PLC0415

        return DuckDbBackend(plan.split, memory_bytes, threads)
    if plan.operator is None:
        raise RunError(f"{plan.engine} computes operators; statements are DuckDB's")
    if plan.engine is Engine.NUMPY:
        from controller.acceleration.running.engines.numpy_arrays import NumpyBackend  # noqa: PLC0415

        return NumpyBackend(plan.operator)
    if importlib.util.find_spec("torch") is None:
        raise RunError(f"{plan.engine}: torch is not installed here")
    from controller.acceleration.running.engines.torch_tensors import TorchBackend  # noqa: PLC0415

    return TorchBackend(plan.operator, "cuda" if plan.engine is Engine.CUDA else "cpu", threads)
