"""A newcomer's first hour: the tutorials, TCP through a switch, installation size, packets explained.

- tutorials_same, tutorials_total: exercises of p4lang's tutorials that show the same with ours as with bmv2; null
  without what they need (docs/start/drop-in.md).
- iperf_*: TCP through a switch, over the kernel's bridge and over bmv2 (first/tcp.py); null without iperf3, or bmv2.
- worker_install_mb: what a training worker installs (first/worker.py).
- trace_pps: packets explained a second (first/trace.py).

    sudo .venv/bin/python -m tests.benchmarks.first_hour     # --quick; --only tcp; --skip tutorials
"""

from __future__ import annotations

import sys
from typing import Final

from tests.benchmarks.parts import Part, run

PARTS: Final = {
    "tutorials": Part("first.tutorials", ("tutorials_same", "tutorials_total"), root="Mininet's namespaces"),
    "tcp": Part(
        "first.tcp",
        tuple(f"iperf_{name}{mode}" for mode in ("", "_on", "_off") for name in ("ratio_bmv2", "share_bridge")),
        root="namespaces",
    ),
    "worker": Part("first.worker", ("worker_install_mb",)),
    "trace": Part("first.trace", ("trace_pps",)),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "one exercise, a second of TCP, few packets: to see that it works"))
