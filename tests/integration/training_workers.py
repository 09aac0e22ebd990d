"""The demo's workers, for tests.

An order may have {"loss": share of frames lost each way at a worker's cable}, and "backend": all of the model's
collectives are then by a group of the backend millrace, without a hook. With "returns" a worker goes on until the
switch is used again after the ring, and so many steps more, but not less than "steps".
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import cast

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from controller.apps.demo.training.model import Training
from controller.apps.demo.training.worker import MOST_STEPS, Order, Worker, heard, main
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import JobOptions, MillraceState
from dataplane.allreduce.torch.group.process_group import MillraceProcessGroup
from dataplane.fabric.kernel import HOST_DEVICE
from tests.integration.losses import losing


class LosingWorker(Worker):
    """A worker at a cable that loses frames."""

    def obey(self, order: Order) -> None:
        with ExitStack() as stack:
            if order.get("loss"):
                stack.enter_context(losing("/proc/self/ns/net", HOST_DEVICE, order["loss"]))
            if order.get("backend"):
                self._train_by_backend(order)
            else:
                super().obey(order)

    def _train(self, order: Order, training: Training, state: MillraceState | None) -> None:
        if state is None or not order.get("returns"):
            super()._train(order, training, state)
            return
        self._first_by_ring, last = None, MOST_STEPS
        while training.done < last:
            self._before_step(int(training.done), order, training.net)
            training.step()
            # The same at all workers: all of the step's all-reduces have results.
            if state.is_by_ring and self._first_by_ring is None:
                self._first_by_ring = int(training.done) - 1
            elif not state.is_by_ring and self._first_by_ring is not None and last == MOST_STEPS:
                last = max(int(training.done) + order["returns"], order["steps"])

    def _train_by_backend(self, order: Order) -> None:
        options = JobOptions(order["service"], order["train"], f"h{self.rank + 1}")
        with heard() as messages:
            group = dist.new_group(backend="millrace", pg_options=options)
            assert isinstance(group, MillraceProcessGroup)
            training = Training(self.rank)
            training.model = DistributedDataParallel(training.net, process_group=group, bucket_cap_mb=0.02)
            self._train(order, training, None)
            calls = sorted({entry["profiling_name"] for entry in group.state.flight_recorder.dump()["entries"]})
            self._answer(order, training, **self.found(group.state), calls=calls, said=messages)
            dist.destroy_process_group(group)

    def found(self, state: MillraceState) -> dict[str, object]:
        reducer = cast(JobEngine, state._reducer)
        return {**super().found(state), "repeated": reducer.statistics.repeated if reducer else 0}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:], LosingWorker)
