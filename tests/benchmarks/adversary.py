"""Cost of attacks on a fabric: an attacker's datagrams, a controller's death, and the filter at the edge.

- virtual_*: a fabric in virtual time with flows, all-reduces and named content, once calm and once besieged;
  the two runs are compared (tests/adversary/comparing.py). past_edge_effects: the same where the attacker's port passes
  for a cable, in sums, tables, content and decisions; reports are the edge's, and do show (past_edge_records).
- kernel_*: real daemons, switches and workers in namespaces, besieged while readers, a writer and workers go on.
- forged_sent, forged_effects, genuine_lost: the sums over both; each sends 10,000 datagrams of every kind.
- controller_takeover_s: until a controller is primary with the id of one that died without a word (takeover.py).
- plain_packet_cost_ratio: the time of a host's packet through fabric.p4 over that of before the filter, of IPv4 or
  IPv6, whichever is more (traffic/plain_packets.py).

    sudo .venv/bin/python -m tests.benchmarks.adversary     # --quick; --only virtual; --skip plain_packets
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from tests.benchmarks.parts import Part, run

RUNS: Final = ("virtual", "kernel")
COUNTS: Final = ("forged_sent", "forged_effects", "genuine_lost")
PARTS: Final = {
    name: Part("attacking.runs", tuple(f"{name}_{count}" for count in COUNTS), root=root, of=name)
    for name, root in (("virtual", ""), ("kernel", "namespaces"))
} | {
    "past_edge": Part("attacking.runs", ("past_edge_records", "past_edge_effects"), of="past_edge"),
    "takeover": Part("takeover", ("controller_takeover_s",), of="alone"),
    "plain_packets": Part("traffic.plain_packets", ("plain_packet_cost_ratio",)),
}


def together(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return what all runs that were made say together."""
    merged: dict[str, float | None] = {}
    for count in COUNTS:
        values = [value for name in RUNS if (value := figures[f"{name}_{count}"]) is not None]
        merged[count] = sum(values) if values else None
    return merged


if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "a thousand datagrams of each kind: to see that it works", together))
