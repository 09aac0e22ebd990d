"""How fast the circle closes: from the moment a link congests to the first packet on a new path, and how true INT is.

Runs the demo's scenario on Abilene with the committed demand matrix, in virtual time and, as root, in the kernel.
`hop_delay_error_ns` is the largest difference, over every hop of every measured packet of the virtual run, between the
hop latency that INT reported and the simulator's true one: both stamps of a hop are floors to bmv2's microsecond, so a
difference below 1000 ns is as exact as the fields allow.

Usage: python tests/benchmarks/reaction.py [--no-kernel]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from collectors.values import HopRecord
from controller.demo.kernel import KernelRun
from controller.demo.live import LiveView
from controller.demo.outcome import Outcome, delay_by_phase_ns
from controller.demo.prepare import Prepared, prepare
from controller.demo.settings import DemoSettings
from controller.demo.virtual import VirtualRun
from controller.paths.database import Database
from controller.paths.recorder import Recorder
from dataplane.fabric.hosts import FLOW_UDP_PORT
from dataplane.fabric.topology_file import topologies_folder

NS_PER_MS = 1e6
NS_PER_US = 1_000


def quiet_view(prepared: Prepared) -> LiveView:
    """Return a view that nobody sees."""
    return LiveView(prepared.scenario.topology, Console(file=io.StringIO()))


def run_virtual(prepared: Prepared, settings: DemoSettings) -> tuple[Outcome, int, int]:
    """Return the outcome, the largest error of hop latency in ns, and the number of hops compared."""
    records: list[HopRecord] = []
    with closing(Database(":memory:")) as database:
        recorder = Recorder(database, max_records=1_000_000)
        run = VirtualRun(prepared.scenario, settings, quiet_view(prepared), recorder, 1)
        run.collector.subscribe(records.extend)
        outcome = run.run()
    assert run.fabric.hops is not None
    truth = {(hop.switch, hop.flow_id, hop.arrived_ns // NS_PER_US): hop.residence_ns for hop in run.fabric.hops.hops}
    switches = prepared.scenario.topology.switch_by_id
    worst, compared = 0, 0
    for record in records:
        if record.ingress_timestamp_ns is None or record.hop_latency_ns is None:
            continue
        flow_id = record.flow.dst_port - FLOW_UDP_PORT
        key = (switches[record.node_id].name, flow_id, record.ingress_timestamp_ns // NS_PER_US)
        worst, compared = max(worst, abs(record.hop_latency_ns - truth[key])), compared + 1
    return outcome, worst, compared


def milliseconds(nanoseconds: float | None) -> float | None:
    """Return ns as ms with three decimals."""
    return None if nanoseconds is None else round(nanoseconds / NS_PER_MS, 3)


def delays_ms(outcome: Outcome) -> list[float | None]:
    """Return the moved flows' mean delay before, during and after, as their receivers measured it."""
    moved = [flow for flow in outcome.affected() if not flow.surge]
    return [milliseconds(delay) for delay in delay_by_phase_ns(moved)]


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-kernel", action="store_true", help="virtual time only, root or not")
    options = parser.parse_args(argv)
    settings = DemoSettings()
    demands = topologies_folder() / "abilene-demands.csv"
    prepared = prepare("abilene", demands, settings.scenario)
    virtual, error_ns, compared = run_virtual(prepared, settings)
    table = Table("", "reaction ms", "delay before ms", "congested ms", "after ms", "moves", "reports", "lost")
    rows = {"virtual": virtual}
    if os.geteuid() == 0 and not options.no_kernel:
        with tempfile.TemporaryDirectory() as folder:
            slower = prepare("abilene", demands, settings.scenario, kernel=True)
            rows["kernel"] = KernelRun(slower.scenario, settings, quiet_view(slower), Path(folder), 1).run()
    for name, outcome in rows.items():
        figures = [milliseconds(outcome.reaction_ns), *delays_ms(outcome)]
        counts = [len(outcome.moves), outcome.reports, outcome.lost_reports]
        table.add_row(name, *(str(figure) for figure in (*figures, *counts)))
    console = Console(width=120)
    console.print(table)
    console.print(f"hop latency against the truth: at most {error_ns} ns off over {compared} hops", highlight=False)
    before, congested, after = delays_ms(virtual)
    kernel = rows.get("kernel")
    figures_json = {
        "reaction_virtual_ms": milliseconds(virtual.reaction_ns),
        "reaction_kernel_ms": None if kernel is None else milliseconds(kernel.reaction_ns),
        "delay_before_ms": before,
        "delay_congested_ms": congested,
        "delay_after_ms": after,
        "hop_delay_error_ns": error_ns,
    }
    print(json.dumps(figures_json))


if __name__ == "__main__":
    main(sys.argv[1:])
