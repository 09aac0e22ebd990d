"""The chain on a thousand switches: a sender, `millrace collector` and `paths serve`, and sinks, as processes.

980 switches are `fat-tree:k=28` with 5,489 hosts and 32,930 directed links; every hop's delay is drawn anew in every
report. An event is a congestion as in tests/benchmarks/chain.py, except that it ends once it is seen, or after four
seconds; a second later, and a random part of a round, comes the next. Daemons have default settings.

- report_to_route_p50_ms, report_to_route_p99_ms: from the first report of a congestion to the route set that takes a
  flow off that link, at a client of the path server.
- cores: CPU time of collector and path server together over the time of the events.
- feed_mbytes_per_s: what the collector's feed sends meanwhile, to all subscribers.
- shard_merge_error: the greatest difference between the merged link rows of collectors that each took a part of the
  reports and those of one collector that took all, over all counts.
- links_unowned_s: null here, as one collector has all links; tests/soak/collectors.py measures it.

Usage: python tests/benchmarks/scale.py [--switches N] [--flows N] [--rate N] [--events N] [--sinks] [--precedence]
           [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console

from tests.benchmarks.chaining import scaling
from tests.benchmarks.chaining.chain import TOPOLOGIES
from tests.benchmarks.chaining.processes import precede_others

EVENTS, QUICK_EVENTS = 100, 10
SWITCHES, QUICK_SWITCHES = 980, 180


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--switches", type=int, choices=list(TOPOLOGIES))
    parser.add_argument("--flows", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=10_000, help="reports a second")
    parser.add_argument("--events", type=int, help=f"default {EVENTS}")
    parser.add_argument("--sinks", action="store_true", help="with controller and P4Runtime sinks")
    parser.add_argument("--precedence", action="store_true", help="before all else on the machine, in real time (root)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SWITCHES} switches, {QUICK_EVENTS} events")
    return parser.parse_args()


def main() -> None:
    """Measure, print what there is to know, and a JSON object as the last line."""
    options = parsed()
    if options.precedence:
        precede_others()
    case = scaling.Case(
        options.switches or (QUICK_SWITCHES if options.quick else SWITCHES),
        options.flows,
        options.rate,
        options.events or (QUICK_EVENTS if options.quick else EVENTS),
        has_sinks=options.sinks,
        precedes=options.precedence,
    )
    begun_s = time.monotonic()
    outcome = scaling.run(case)
    scaling.tell(Console(file=sys.stdout, width=200), case, outcome)
    result = scaling.figures(outcome)
    sys.stdout.write(f"took {time.monotonic() - begun_s:.0f} s\n{json.dumps(result)}\n")


if __name__ == "__main__":
    main()
