"""A real program whose unit a loop drives: threads that run a small torch model, fed over a bus that may be slow.

    python worker.py SOCKET FILE

While FILE does not exist, data are always there and the cores are the bottleneck. Afterwards a loader brings each batch
in 20 ms, and the threads wait for it. Each precision that was used leaves a file of its name beside FILE. At the end of
its input the program prints a JSON object: for each precision the types of the model's weights and outputs, and for
each concurrency the most threads that ran at once.
"""

from __future__ import annotations

import copy
import json
import queue
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from dataplane.balance import BalancedUnit, balanced_unit

THREADS, WIDTH, BATCH = 4, 64, 16


def offered_models() -> dict[str, torch.nn.Module]:
    """Return the same model in each precision that it offers."""
    exact = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 8)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantisation moves to a package of its own
        int8 = torch.ao.quantization.quantize_dynamic(exact, {torch.nn.Linear}, dtype=torch.qint8)
    return {"fp32": exact, "bf16": copy.deepcopy(exact).to(torch.bfloat16), "int8": int8}


def described(model: Any, output: torch.Tensor) -> list[str]:
    """Return the class of the first layer, and the types of its weights and of the output."""
    layer = model[0]
    weights = layer.weight() if callable(layer.weight) else layer.weight
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in (weights, output)]
    return [f"{type(layer).__module__}.{type(layer).__name__}", *names]


class Program:
    """The threads of the program, and what they have seen."""

    def __init__(self, unit: BalancedUnit, slow: Path) -> None:
        self.unit, self.models, self._slow = unit, offered_models(), slow
        self._data: queue.Queue[torch.Tensor] = queue.Queue(THREADS)
        self._running, self._lock, self._ending = 0, threading.Lock(), threading.Event()
        self.types: dict[str, list[str]] = {}
        self.most: dict[int, int] = {}

    def load(self) -> None:
        """Bring batches to the threads."""
        batch = torch.ones(BATCH, WIDTH)
        while not self._ending.is_set():
            if self._slow.exists():
                with self.unit.moving:
                    time.sleep(0.02)
            try:
                self._data.put(batch, timeout=0.05)
            except queue.Full:
                continue

    def compute(self) -> None:
        """Run the model on batches, in the unit's precision."""
        while not self._ending.is_set():
            with self.unit.slot():
                try:
                    batch = self._data.get(timeout=0.05)
                except queue.Empty:
                    continue
                with self.unit.computing, torch.no_grad():
                    self._step(batch)

    def _step(self, batch: torch.Tensor) -> None:
        allowed, precision = self.unit.concurrency, self.unit.precision
        with self._lock:
            self._running += 1
            self.most[allowed] = max(self.most.get(allowed, 0), self._running)
        model = self.models[precision]
        output = model(batch.to(torch.bfloat16) if precision == "bf16" else batch)
        if not self._slow.exists():
            time.sleep(0.02)  # a device that computes on while this machine's cores are free for other tests
        if precision not in self.types:
            self.types[precision] = described(model, output)
            self._slow.with_name(precision).touch()
        with self._lock:
            self._running -= 1

    def run(self) -> None:
        """Work until the end of the input."""
        threads = [threading.Thread(target=self.load), *(threading.Thread(target=self.compute) for _ in range(THREADS))]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._ending.set()
        for thread in threads:
            thread.join()


def main() -> None:
    """Run the program."""
    torch.set_num_threads(1)
    precisions = ("int8", "bf16", "fp32")
    with balanced_unit("u0", precisions=precisions, concurrency=(1, THREADS), at_once=2, path=sys.argv[1]) as unit:
        program = Program(unit, Path(sys.argv[2]))
        program.run()
    print(json.dumps({"types": program.types, "most": program.most, "at": [unit.precision, unit.concurrency]}))


if __name__ == "__main__":
    main()
