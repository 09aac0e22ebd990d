"""Time until workers that went to gloo's ring use the switch again; part of tests/benchmarks/allreduce.py."""

from __future__ import annotations

import time
from typing import Final

from controller.apps.demo.training.fabric import TrainingFabric

WORKERS: Final = 4
RATE_BPS: Final = 200_000_000
_AWAY_S: Final = 2.0
_TOLD_AT: Final = 20
_WORKER: Final = "tests.integration.training_workers"


def return_time_s(return_s: float = 10.0) -> float:
    """Return the seconds from the switch's return to the end of the first step that uses it again.

    Four workers train, the switch is killed and started again, and they try to return `return_s` after they left it.
    Raises FabricError.
    """
    with TrainingFabric(WORKERS, RATE_BPS, module=_WORKER, steps=_TOLD_AT) as fabric:
        fabric.begin("returning", tells=True, tells_at=_TOLD_AT, returns=1, return_s=return_s)
        fabric.hear()
        fabric.restart_switch(after_s=_AWAY_S)
        there_s = time.monotonic()
        answers = fabric.results(WORKERS)
    # The last step but one is the first in which no worker is on the ring any more.
    return max(float(answer["ended_s"][-2]) for answer in answers.values()) - there_s
