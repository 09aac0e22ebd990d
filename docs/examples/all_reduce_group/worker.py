"""A worker of an all-reduce, as a pod of a group runs it: it adds up gradients in the switches, and checks the sums.

Its environment has all that it needs: the workload controller sets the job, the rank and the number of workers, the
node's manager the host.
"""

from __future__ import annotations

import hashlib
import os
import signal

import numpy as np

from dataplane.allreduce.membership import Membership

VALUES = 100_000
STEPS = 3


def gradients_of(rank: int, step: int) -> np.ndarray:
    """Return what a worker contributes, known to all so that each can check the sum."""
    return np.random.default_rng((step, rank)).normal(size=VALUES).astype(np.float32)


def main() -> None:
    """Take part in the job, then wait to be stopped, so that the log can be read."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    told = os.environ
    rank, workers = int(told["MILLRACE_RANK"]), int(told["MILLRACE_WORLD_SIZE"])
    service, job, host = told["MILLRACE_JOB_SERVICE"], told["MILLRACE_JOB"], told["MILLRACE_NODE"]
    with Membership.join(service, job=job, host=host, workers=workers, deadline_s=120) as membership:
        for step in range(STEPS):
            sums = membership.reducer.all_reduce(gradients_of(rank, step)).result(timeout=60)
            expected = np.sum([gradients_of(other, step) for other in range(workers)], axis=0, dtype=np.float64)
            error = float(np.abs(sums - expected).max())
            bits = hashlib.sha256(sums.tobytes()).hexdigest()[:12]
            print(
                f"step {step} rank {rank} on {host}: bits {bits}, largest difference from numpy {error:.0e}", flush=True
            )
    print("done", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
