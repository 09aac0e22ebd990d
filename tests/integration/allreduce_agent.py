"""A worker in a namespace: all-reduces by the switch and by gloo, one at a time, as lines of JSON on stdin ask.

{"engine": {...EngineSettings}} joins a job; {"gloo": {"store", "rank", "workers"}} joins a process group;
{"reduce": "engine" | "gloo", "values", "at_ns", "seed"} begins at that time of the machine's monotonic clock.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings

WAIT_S = 60.0


def values_of(seed: int, size: int) -> NDArray[np.float32]:
    """Return what a worker contributes."""
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


class Agent:
    """What this process has joined."""

    def __init__(self) -> None:
        self._reducer: AllReducer | None = None

    def handle(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what a line says; return what to answer."""
        if "engine" in order:
            return self._join(order["engine"])
        if "gloo" in order:
            return self._join_gloo(**order["gloo"])
        return self._reduce(order)

    def close(self) -> None:
        """Leave the job."""
        if self._reducer is not None:
            self._reducer.close()

    def _join(self, words: dict[str, Any]) -> dict[str, Any]:
        self.close()
        self._reducer = AllReducer(EngineSettings(**{**words, "local": tuple(words["local"])}))
        return {"joined": "engine"}

    @staticmethod
    def _join_gloo(store: str, rank: int, workers: int) -> dict[str, Any]:
        import torch.distributed as dist  # noqa: PLC0415 - most tests need no torch, which takes seconds to load

        timeout = timedelta(seconds=WAIT_S)
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, workers), rank=rank, world_size=workers, timeout=timeout
        )
        return {"joined": "gloo"}

    def _reduce(self, order: dict[str, Any]) -> dict[str, Any]:
        mine = values_of(order["seed"], order["values"])
        cpu = time.process_time()
        wait_until(order["at_ns"])
        if order["reduce"] == "engine":
            assert self._reducer is not None
            self._reducer.all_reduce(mine, target=mine).result(WAIT_S)
        else:
            import torch  # noqa: PLC0415
            import torch.distributed as dist  # noqa: PLC0415

            dist.all_reduce(torch.from_numpy(mine))
        end_ns = time.monotonic_ns()
        answer = {"end_ns": end_ns, "cpu_s": time.process_time() - cpu}
        if "expect" in order:
            answer["max_relative_error"] = relative_error(mine, order["expect"])
        return answer


def wait_until(at_ns: int) -> None:
    """Return at a time of the monotonic clock."""
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def relative_error(found: NDArray[np.float32], seeds: list[int]) -> float:
    """Return the largest error of a sum over the largest sum, computed with 64 bits."""
    exact = np.zeros(found.size)
    for seed in seeds:
        exact += values_of(seed, found.size)
    return float(np.abs(found - exact).max() / np.abs(exact).max())


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
