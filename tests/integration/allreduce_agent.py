"""A worker in a namespace: all-reduces by the switch and by gloo, one at a time, as lines of JSON on stdin ask.

- {"engine": {...EngineSettings, "rings": a kind of port or null}} joins a job; {"statistics": true} asks for counters;
- {"gloo": {"name", "store", "rank", "workers"}} makes one more group of gloo's;
- {"values", "seed"} makes values; {"ready": true} copies them to where the sums will be;
- {"reduce": "engine" or a group's name, "at_ns"} begins at that time of the machine's monotonic clock;
- {"check": [every worker's seed]} compares what came out last.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings, Rings
from dataplane.nic.ports.queue import PortKind

WAIT_S = 300.0


def values_of(seed: int, size: int) -> NDArray[np.float32]:
    """Return a worker's contribution."""
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


class Agent:
    """Groups that this process has joined, and its prepared values."""

    def __init__(self) -> None:
        self._reducer: AllReducer | None = None
        self._groups: dict[str, Any] = {}
        self._values = np.empty(0, np.float32)
        self._result = np.empty(0, np.float32)

    def handle(self, order: dict[str, Any]) -> dict[str, Any]:
        """Execute a line; return the answer."""
        if "engine" in order:
            self._join(order["engine"])
        elif "gloo" in order:
            self._join_gloo(**order["gloo"])
        elif "values" in order:
            self._values = values_of(order["seed"], order["values"])
        elif "ready" in order:
            self._result = self._values.copy()
        elif "check" in order:
            return {"error": relative_error(self._result, order["check"])}
        elif "statistics" in order:
            assert self._reducer is not None
            return asdict(self._reducer.statistics)
        else:
            return self._reduce(order["reduce"], order["at_ns"])
        return {}

    def close(self) -> None:
        """Leave the job."""
        if self._reducer is not None:
            self._reducer.close()

    def _join(self, words: dict[str, Any]) -> None:
        self.close()
        rings = None if words["rings"] is None else Rings(PortKind[words["rings"]])
        self._reducer = AllReducer(EngineSettings(**{**words, "local": tuple(words["local"]), "rings": rings}))

    def _join_gloo(self, name: str, store: str, rank: int, workers: int) -> None:
        import torch.distributed as dist  # noqa: PLC0415 - most tests need no torch, which takes seconds to load

        if not self._groups:
            file_store = dist.FileStore(store, workers)
            timeout = timedelta(seconds=WAIT_S)
            dist.init_process_group("gloo", store=file_store, rank=rank, world_size=workers, timeout=timeout)
        self._groups[name] = dist.new_group(backend="gloo")

    def _reduce(self, side: str, at_ns: int) -> dict[str, Any]:
        if side == "engine":
            assert self._reducer is not None
            wait_until(at_ns)
            self._reducer.all_reduce(self._result, target=self._result).result(WAIT_S)
        else:
            import torch  # noqa: PLC0415
            import torch.distributed as dist  # noqa: PLC0415

            tensor = torch.from_numpy(self._result)
            wait_until(at_ns)
            dist.all_reduce(tensor, group=self._groups[side])
        return {"end_ns": time.monotonic_ns()}


def wait_until(at_ns: int) -> None:
    """Return at a time of the monotonic clock, at once if it has passed."""
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def relative_error(result: NDArray[np.float32], seeds: list[int]) -> float:
    """Return the largest error of a sum over the largest sum, computed with 64 bits."""
    exact = np.zeros(result.size)
    for seed in seeds:
        exact += values_of(seed, result.size)
    return float(np.abs(result - exact).max() / np.abs(exact).max())


def main() -> int:
    """Answer lines until there are no more."""
    agent = Agent()
    try:
        for line in sys.stdin:
            print(json.dumps(agent.handle(json.loads(line))), flush=True)
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
