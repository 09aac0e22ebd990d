"""Workers of a job, a process and a namespace each: all-reduces until there is no job, a line of JSON for each.

This process imports what they need, then starts one for each line that it is told, and answers with the process's id.
Worker number n gives 2^n, so that a sum shows which values are in it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.membership import Membership
from dataplane.errors import MillraceError
from dataplane.fabric.kernel import namespaces

SIZE = 2000
PAUSE_S = 0.02


def work(address: str, host: str, workers: int, out: Path) -> None:
    with out.open("w", buffering=1) as lines:
        try:
            with Membership.join(address, job="sums", host=host, workers=workers) as membership:
                for count in range(membership.first_count, 1 << 30):
                    values = np.full(SIZE, 2 ** int(host[1:]), np.int32)
                    sums = membership.reducer.all_reduce(values).result()
                    assert (sums == sums[0]).all()
                    print(json.dumps({"count": count, "sum": int(sums[0])}), file=lines)
                    time.sleep(PAUSE_S)
        except MillraceError as error:
            print(json.dumps({"error": str(error)}), file=lines)


def main() -> None:
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
