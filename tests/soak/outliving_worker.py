"""Workers of a small training, a process and a namespace each; tests/soak/outliving.py starts and kills them.

As tests/integration/job_worker.py: imports first, then a fork for each line. Each worker fits a line to noisy points by
gradient descent and writes a line of JSON for each step. A file `stop` beside its output ends the training at all
workers after the same step.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.membership import Membership
from dataplane.errors import MillraceError
from dataplane.fabric.kernel import namespaces

SIZE, BATCH, RATE, NOISE = 64, 32, 0.02, 0.1
PAUSE_S = 0.02


def truth() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the parameters that the points come from."""
    return np.random.default_rng(0).normal(size=SIZE).astype(np.float32)


def gradient(
    parameters: np.ndarray[Any, Any], chance: np.random.Generator
) -> tuple[np.ndarray[Any, np.dtype[np.float32]], float]:
    """Return the gradient of a batch, and its loss."""
    inputs = chance.normal(size=(BATCH, SIZE)).astype(np.float32)
    outputs = inputs @ truth() + np.float32(NOISE) * chance.normal(size=BATCH).astype(np.float32)
    errors = inputs @ parameters - outputs
    return (2 / BATCH * inputs.T @ errors).astype(np.float32), float(np.mean(errors**2))


def work(address: str, host: str, workers: int, out: Path) -> None:
    """Train until the file `stop` is there, or there is no job."""
    logging.basicConfig(filename=out.with_suffix(".log"), level=logging.INFO, format="%(created)f %(message)s")
    chance, step = np.random.default_rng(os.getpid()), 0
    parameters: NDArray[np.float32] = np.zeros(SIZE, np.float32)
    with out.open("w", buffering=1) as lines:
        try:
            with Membership.join(
                address, job="line", host=host, workers=workers, boundaries=True, deadline_s=120, patience_s=120
            ) as membership:
                while True:
                    if membership.boundary():
                        shared = membership.share(np.append(parameters.astype(np.float64), step))
                        parameters, step = shared[:-1].astype(np.float32), int(shared[-1])
                    own, loss = gradient(parameters, chance)
                    values = np.concatenate([own, [loss, (out.parent / "stop").exists()]]).astype(np.float32)
                    means = membership.reducer.all_reduce(values, mean=True).result()
                    parameters = (parameters - np.float32(RATE) * means[:SIZE]).astype(np.float32)
                    digest = hashlib.sha256(parameters.tobytes()).hexdigest()[:16]
                    found = {"step": step, "loss": float(means[SIZE]), "digest": digest, "at_s": time.time()}
                    print(json.dumps(found), file=lines)
                    step += 1
                    if means[SIZE + 1] > 0:
                        return
                    time.sleep(PAUSE_S)
        except MillraceError as error:
            print(json.dumps({"error": str(error)}), file=lines)


def main() -> None:
    """Start a worker for each line, and answer with its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    Engine(EngineSettings("127.0.0.1", job=1, window=1, capacity=1, epoch=1)).close()  # which loads its machine code
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if not child:
            address, host, workers, out = order["address"], order["host"], order["workers"], Path(order["out"])
            namespaces.call(order["namespace"], lambda: work(address, host, workers, out))  # noqa: B023 - at once
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
