"""Ten seconds of a thousand switches in virtual time, the whole control loop in one process.

The demo's scenario with a fluid background: 1,280 switches (fat-tree:k=32) with 10 Gbit/s links, some 1,000 flows, of
whose packets 2,000 a second are sent, each with telemetry; after 3 s a surge fills a link, and the path server moves
flows.

- virtual_1000_switches_s: from reading the topology to the end, set-up included; null with --quick.
- virtual_setup_s: of these, until the first packet, planning of the surge included.
- virtual_cpu_s, virtual_peak_mib: of the process.
- virtual_switches, virtual_moves, virtual_reports: switches of the fabric, flows that moved, reports that arrived.

Usage: python tests/benchmarks/virtual_time.py [--quick] [--topology SPEC]
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sys
import time
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from msgspec.structs import replace
from rich.console import Console

from controller.apps.demo.live import LiveView
from controller.apps.demo.prepare import prepare, sampled
from controller.apps.demo.scenario import ScenarioSettings
from controller.apps.demo.settings import DemoSettings
from controller.apps.demo.virtual import VirtualRun
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder

TOPOLOGY, QUICK_TOPOLOGY = "fat-tree:k=32", "fat-tree:k=6"
SCENARIO = ScenarioSettings(warm_up_s=1.0, before_s=2.0, during_s=4.0, after_s=3.0)
QUICK_SCENARIO = ScenarioSettings(warm_up_s=0.5, before_s=1.0, during_s=1.0, after_s=0.5)


def measure(topology: str, scenario: ScenarioSettings) -> dict[str, float | int]:
    """Return the figures of one run."""
    begun_s = time.monotonic()
    prepared = prepare(topology, None, scenario, fluid=True)
    settings = sampled(replace(DemoSettings(), scenario=scenario), prepared.scenario, fluid=True)
    with closing(open_path_database(":memory:")) as database:
        recorder = Recorder(database, max_records=1_000_000)
        view = LiveView(prepared.scenario.topology, Console(file=io.StringIO()))
        run = VirtualRun(prepared.scenario, settings, view, recorder, 1, fluid=True)
        run.start()
        ready_s = time.monotonic()
        print(f"ready after {ready_s - begun_s:.0f} s", file=sys.stderr, flush=True)
        run.fabric.run_until(prepared.scenario.end_ns)
        outcome = run.outcome()
    return {
        "virtual_1000_switches_s": round(time.monotonic() - begun_s),
        "virtual_setup_s": round(ready_s - begun_s),
        "virtual_cpu_s": round(time.process_time()),
        "virtual_peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "virtual_switches": len(prepared.scenario.topology.switches),
        "virtual_moves": len(outcome.moves),
        "virtual_reports": outcome.reports,
    }


def main() -> None:
    """Run once, and print the figures as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", help=f"default {TOPOLOGY}")
    parser.add_argument("--quick", action="store_true", help=f"three seconds of {QUICK_TOPOLOGY}")
    options = parser.parse_args()
    topology = options.topology or (QUICK_TOPOLOGY if options.quick else TOPOLOGY)
    figures: dict[str, float | int | None] = {**measure(topology, QUICK_SCENARIO if options.quick else SCENARIO)}
    if options.quick:
        figures["virtual_1000_switches_s"] = None
        assert figures["virtual_moves"], "no flow moved"
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
