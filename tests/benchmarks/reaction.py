"""Speed of the control loop: from congestion of a link to the first packet on a new path, and INT's accuracy.

Runs the demo's scenario on Abilene with the committed demand matrix, in virtual time and, as root, in the kernel.
`hop_delay_error_ns` is the largest difference, over every hop of every measured packet of the virtual run, between the
hop latency that INT reported and the simulator's true one: both stamps of a hop are floors to bmv2's microsecond, so a
difference below 1000 ns is as exact as the fields allow.

Then surges on several fabrics and seeds, each paired with a run of the same packets without moves
(`reacting/surges.py`). Of the runs with spare capacity, `moved_share` is the share in which a packet was on a new path,
and the link's load fitted, within a second of network time; `worst_delay_ratio` is the highest ratio of the victims'
delay after the moves to that without any. `false_moves` are moves in noise (`reacting/noise.py`), `false_moves_of`
those of each kind.

Finally links die, in virtual time and in the kernel (`reacting/dead_links.py`): `dead_link_ms` is the longest time for
which traffic with an alternative path was interrupted, over all faults and topologies.

Usage: python tests/benchmarks/reaction.py [--no-kernel] [--seeds 10] [--topologies abilene,ring] [--noise-minutes 10]
       [--only-dead-links]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from collectors.values import HopRecord
from controller.apps.demo.kernel import KernelRun
from controller.apps.demo.live import LiveView
from controller.apps.demo.outcome import Outcome, delay_by_phase_ns
from controller.apps.demo.prepare import Prepared, prepare, sampled
from controller.apps.demo.settings import DemoSettings
from controller.apps.demo.virtual import VirtualRun
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder
from dataplane.fabric.hosts import FLOW_UDP_PORT
from dataplane.topology.file import topologies_folder
from tests.benchmarks.reacting.capacity import ENOUGH, least_utilisation
from tests.benchmarks.reacting.dead_links import longest_ms, outage_table
from tests.benchmarks.reacting.dead_links import run as run_dead_links
from tests.benchmarks.reacting.noise import KINDS, moves_of
from tests.benchmarks.reacting.report import figures, milliseconds, reaction_table
from tests.benchmarks.reacting.surges import TOPOLOGIES, Reaction, prepared, react

NS_PER_US = 1_000


def quiet_view(prepared: Prepared) -> LiveView:
    """Return a view without output."""
    return LiveView(prepared.scenario.topology, Console(file=io.StringIO()))


def run_virtual(prepared: Prepared, settings: DemoSettings) -> tuple[Outcome, int, int]:
    """Return the outcome, the largest error of hop latency in ns, and the number of hops compared."""
    records: list[HopRecord] = []
    with closing(open_path_database(":memory:")) as database:
        recorder = Recorder(database, max_records=1_000_000)
        run = VirtualRun(prepared.scenario, settings, quiet_view(prepared), recorder, 1)
        run.collector.subscribe(records.extend)
        outcome = run.run()
    assert run.fabric.hops is not None
    assert not run.fabric.hops.is_full, "some hops have no true time"
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


def delays_ms(outcome: Outcome) -> list[float | None]:
    """Return the moved flows' mean delay before, during and after, as their receivers measured it."""
    moved = [flow for flow in outcome.affected() if not flow.surge]
    return [milliseconds(delay) for delay in delay_by_phase_ns(moved)]


def surges(console: Console, topologies: Sequence[str], seeds: int) -> list[Reaction]:
    """Run every surge and print its results; return the runs with spare capacity."""
    reactions: list[Reaction] = []
    least: dict[str, float] = {}
    for topology in topologies:
        plan = prepared(topology)
        least[topology] = least_utilisation(plan.scenario)
        for seed in range(1, seeds + 1):
            reactions.append(react(topology, plan, seed))
            print(f"{topology}, seed {seed}: done", file=sys.stderr)
    console.print(reaction_table(reactions, least))
    for topology, utilisation in least.items():
        if utilisation > ENOUGH:
            console.print(f"{topology}: no spare capacity, {utilisation:.0%} of a link at best", highlight=False)
    return [reaction for reaction in reactions if least[reaction.topology] <= ENOUGH]


def false_moves(console: Console, minutes: float) -> dict[str, int]:
    """Run the noise, print what moved and why, and return the moves of each kind; none for no minutes."""
    counts: dict[str, int] = {}
    for kind in KINDS if minutes else ():
        moves = moves_of(kind, 60.0 * minutes, seed=1)
        console.print(f"{minutes:g} min of {kind.name} on {kind.topology}: {len(moves)} moves", highlight=False)
        for move in moves:
            console.print(f"  at {move.time_ns / 1e9:.1f} s: {move.reason}", highlight=False)
        counts[kind.name] = len(moves)
    return counts


def main(argv: list[str]) -> None:
    """Print tables and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-kernel", action="store_true", help="virtual time only, root or not")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each surge, from 1")
    parser.add_argument("--topologies", default=",".join(TOPOLOGIES), help="where surges are tried")
    parser.add_argument("--noise-minutes", type=float, default=10.0, help="network time of each kind of noise")
    parser.add_argument("--only-dead-links", action="store_true", help="nothing but links that die")
    options = parser.parse_args(argv)
    console = Console(width=160)
    kernel = os.geteuid() == 0 and not options.no_kernel
    if options.only_dead_links:
        print(json.dumps(dead_links(console, kernel=kernel)))
        return
    circle = abilene(console, kernel=kernel)
    reactions = surges(console, [name for name in options.topologies.split(",") if name], options.seeds)
    moved = false_moves(console, options.noise_minutes)
    noise: dict[str, object] = {"false_moves": sum(moved.values()) if moved else None, "false_moves_of": moved}
    print(json.dumps({**circle, **figures(reactions), **noise, **dead_links(console, kernel=kernel)}))


def dead_links(console: Console, *, kernel: bool) -> dict[str, float | int | None]:
    """Let links die and print what that did; return the figures."""
    outages = run_dead_links(kernel=kernel)
    console.print(outage_table(outages))
    virtual, real = (longest_ms(outages, kernel=kind) for kind in (False, True))
    return {
        "dead_link_ms": max(filter(None, (virtual, real)), default=None),
        "dead_link_virtual_ms": virtual,
        "dead_link_kernel_ms": real,
        "dead_link_others_lost": sum(outage.others_lost for outage in outages),
    }


def abilene(console: Console, *, kernel: bool) -> dict[str, float | int | None]:
    """Run the demo's scenario on Abilene and print its results; return its figures."""
    settings = DemoSettings()
    demands = topologies_folder() / "abilene-demands.csv"
    plan = prepare("abilene", demands, settings.scenario)
    virtual, error_ns, compared = run_virtual(plan, sampled(settings, plan.scenario))
    rows = {"virtual": virtual}
    if kernel:
        with tempfile.TemporaryDirectory() as folder:
            slower = prepare("abilene", demands, settings.scenario, kernel=True)
            sparse = sampled(settings, slower.scenario)
            rows["kernel"] = KernelRun(slower.scenario, sparse, quiet_view(slower), Path(folder), 1).run()
    table = Table("", "reaction ms", "delay before ms", "congested ms", "after ms", "moves", "reports", "lost")
    for name, outcome in rows.items():
        cells = [milliseconds(outcome.reaction_ns), *delays_ms(outcome)]
        counts = [len(outcome.moves), outcome.reports, outcome.lost_reports]
        table.add_row(name, *(str(cell) for cell in (*cells, *counts)))
    console.print(table)
    console.print(f"hop latency against the truth: at most {error_ns} ns off over {compared} hops", highlight=False)
    before, congested, after = delays_ms(virtual)
    return {
        "reaction_virtual_ms": milliseconds(virtual.reaction_ns),
        "reaction_kernel_ms": milliseconds(rows["kernel"].reaction_ns) if kernel else None,
        "delay_before_ms": before,
        "delay_congested_ms": congested,
        "delay_after_ms": after,
        "hop_delay_error_ns": error_ns,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
