"""Choice of the engine for a plan; each is imported only when used."""

from __future__ import annotations

import importlib.util

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.steps.stepping import torch_device
from controller.acceleration.running.values import Backend, Engine, Plan


def backend_of(plan: Plan, memory_bytes: int, threads: int) -> Backend:
    """Return the engine for a plan; raise RunError if it is not installed or has no device.

    `memory_bytes` limits DuckDB's memory; `threads` applies to DuckDB and torch.
    """
    if plan.engine is Engine.DUCKDB:
        from controller.acceleration.running.engines.duckdb_tables import DuckDbBackend  # noqa: PLC0415

        if plan.devices:
            torch_device()  # importing torch takes seconds, which are not the run's
        return DuckDbBackend(plan.split, memory_bytes, threads, plan.devices)
    if plan.operator is None:
        raise RunError(f"{plan.engine} computes operators only; statements need DuckDB")
    if plan.engine is Engine.NUMPY:
        from controller.acceleration.running.engines.numpy_arrays import NumpyBackend  # noqa: PLC0415

        return NumpyBackend(plan.operator)
    if importlib.util.find_spec("torch") is None:
        raise RunError(f"{plan.engine}: torch is not installed")
    from controller.acceleration.running.engines.torch_tensors import TorchBackend  # noqa: PLC0415

    return TorchBackend(plan.operator, "cuda" if plan.engine is Engine.CUDA else "cpu", threads)
