"""A worker of a job, as a process of its own: all-reduces until somebody asks all to stop, a line of JSON for each.

Worker number n gives 2^n, so that a sum says whose values are in it.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import numpy as np

from dataplane.allreduce.membership import Membership

SIZE = 2000
PAUSE_S = 0.02


def main() -> None:
    address, host, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    with Membership.join(address, job="sums", host=host, workers=workers, deadline_s=60) as membership:
        count = membership.first_count
        while True:
            values = np.full(SIZE, 2 ** int(host[1:]), np.int32)
            values[-1] = stop.is_set()
            sums = membership.reducer.all_reduce(values).result()
            assert (sums[:-1] == sums[0]).all()
            print(json.dumps({"count": count, "sum": int(sums[0]), "members": membership.members}), flush=True)
            if sums[-1]:
                return
            count += 1
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
