"""The demo's workers, whose cables lose frames where an order has {"loss": share of frames lost each way}."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import cast

from controller.apps.demo.training.worker import Order, Worker, main
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import MillraceState
from dataplane.fabric.kernel import HOST_DEVICE
from tests.integration.losses import losing


class LosingWorker(Worker):
    """A worker at a cable that loses frames."""

    def obey(self, order: Order) -> None:
        with ExitStack() as stack:
            if order.get("loss"):
                stack.enter_context(losing("/proc/self/ns/net", HOST_DEVICE, order["loss"]))
            super().obey(order)

    def found(self, state: MillraceState) -> dict[str, object]:
        reducer = cast(JobEngine, state._reducer)
        return {**super().found(state), "repeated": reducer.statistics.repeated if reducer else 0}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:], LosingWorker)
