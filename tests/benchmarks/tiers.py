"""A real pool of hybrid memory over a kernel fabric: decisions compared live, remote reads, moves.

Hosts are processes in namespaces around a Millrace switch, with fast memory, files, and TLS between them; the pool runs
at the first host. Bursts of cloudPhysicsIO are replayed in stretched time, a fortieth as fast, as hardly anything comes
between them and Python on two shared processors does not keep up with more. Caches are empty at the start of each part.

- live_tokens_over_lru, live_tokens_over_fast_only, live_tokens_over_data_local: mean response of the rule over that of
  the network on the same requests, the median over rounds in changing order; above 1 the network is better. `lru`
  takes hosts in turn and leaves the rest to eviction, which is least recently used for all.
- remote_read_us: median time to read a block of 64 KiB from another host's file.
- mover_mb_per_s: blocks that move from another host's file into fast memory, four at a time.

    sudo .venv/bin/python -m tests.benchmarks.tiers    # ten minutes; --quick: one
"""

from __future__ import annotations

import sys
from typing import Final

from tests.benchmarks.parts import Part, run

_ROOT: Final = "network namespaces"
PARTS: Final = {
    "moves": Part("tiering.moves", ("remote_read_us", "mover_mb_per_s"), root=_ROOT),
    "live": Part(
        "tiering.live",
        ("live_tokens_over_lru", "live_tokens_over_fast_only", "live_tokens_over_data_local"),
        root=_ROOT,
    ),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "a minute: to see that it works"))
