"""`millrace demo`: prepare, run in virtual time or in the kernel, show, and leave picture and figures behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from controller.demo.live import LiveView
from controller.demo.moves import describe
from controller.demo.outcome import Outcome, delay_by_phase_ns, flow_table
from controller.demo.picture import Panel, draw
from controller.demo.prepare import Prepared, prepare
from controller.demo.settings import DemoSettings
from controller.paths.database import Database
from controller.paths.recorder import Recorder
from dataplane.config import load
from dataplane.errors import MillraceError
from dataplane.fabric.units import format_rate

_NS_PER_MS = 1e6
_PLAIN_WIDTH = 140


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the command line says."""

    topology: str
    time: str
    demands: Path | None
    settings: Path | None
    out: Path
    seed: int


def run(options: DemoOptions) -> Outcome:
    """Run the demo and show it; raise a MillraceError of one line where it cannot."""
    if options.time not in ("virtual", "kernel"):
        raise MillraceError(f"--time {options.time}: is neither virtual nor kernel")
    settings = load(options.settings, DemoSettings) if options.settings else DemoSettings()
    prepared = prepare(options.topology, options.demands, settings.scenario, kernel=options.time == "kernel")
    console = _console()
    console.print(_introduction(prepared, options), highlight=False, soft_wrap=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with LiveView(prepared.scenario.topology, console) as view:
        outcome = _run(options, settings, prepared, view)
    _show(console, outcome, options.out)
    return outcome


def _console() -> Console:
    """Return the console; where there is no terminal, wide enough for the table."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PLAIN_WIDTH))


def run_virtual(options: DemoOptions, settings: DemoSettings, prepared: Prepared, view: LiveView) -> Outcome:
    """Run in virtual time; the record table stays in the output folder."""
    from controller.demo.virtual import VirtualRun  # noqa: PLC0415 - the kernel's run does not need the simulator

    file = options.out / "records.sqlite"
    file.unlink(missing_ok=True)
    database = Database(str(file))
    try:
        recorder = Recorder(database, max_records=1_000_000)
        return VirtualRun(prepared.scenario, settings, view, recorder, options.seed).run()
    finally:
        database.close()


def _run(options: DemoOptions, settings: DemoSettings, prepared: Prepared, view: LiveView) -> Outcome:
    if options.time == "virtual":
        return run_virtual(options, settings, prepared, view)
    from controller.demo.kernel import KernelRun  # noqa: PLC0415 - needs Linux and root, virtual time needs neither

    return KernelRun(prepared.scenario, settings, view, options.out, options.seed).run()


def _introduction(prepared: Prepared, options: DemoOptions) -> str:
    scenario = prepared.scenario
    link = scenario.topology.directed_links[scenario.congested]
    surge = next(planned for planned in scenario.flows if planned.surge)
    return (
        f"{scenario.topology.name} in {options.time} time, rates divided by {prepared.rate_divisor}; "
        f"{len(scenario.flows) - 1} flows from {prepared.demands_from}.\n"
        f"At {scenario.congest_ns / 1e9:.0f} s {surge.flow.src_host} sends {surge.flow.dst_host} another "
        f"{format_rate(round(surge.rate_bps))} over {scenario.congested} ({format_rate(link.rate_bps)})."
    )


def _show(console: Console, outcome: Outcome, out: Path) -> None:
    if console.is_terminal:
        # The live view has gone with its decisions; without a terminal they were printed as they came.
        for move in outcome.moves:
            console.print(describe(move), highlight=False, soft_wrap=True)
    console.print(flow_table(outcome))
    if outcome.reaction_ns is None:
        console.print("Nothing moved.")
    else:
        console.print(f"First packet on a new path {outcome.reaction_ns / _NS_PER_MS:.0f} ms after the surge began.")
    console.print(f"{outcome.reports} telemetry reports, {outcome.lost_reports} lost.", highlight=False)
    png, svg = draw(outcome.scenario.topology, _panels(outcome), out / "network")
    figures = out / "figures.json"
    figures.write_text(json.dumps(figures_of(outcome), indent=2) + "\n", encoding="utf-8")
    console.print(f"Pictures: {png} and {svg}; figures: {figures}", highlight=False, soft_wrap=True)


def figures_of(outcome: Outcome) -> dict[str, float | int | None]:
    """Return the run's main figures by name."""
    moved = [flow for flow in outcome.affected() if not flow.surge]
    before, during, after = (None if ns is None else ns / _NS_PER_MS for ns in delay_by_phase_ns(moved))
    return {
        "delay_before_ms": before,
        "delay_congested_ms": during,
        "delay_after_ms": after,
        "reaction_ms": None if outcome.reaction_ns is None else outcome.reaction_ns / _NS_PER_MS,
        "moves": len(outcome.moves),
        "reports": outcome.reports,
        "lost_reports": outcome.lost_reports,
    }


def _panels(outcome: Outcome) -> list[Panel]:
    path = outcome.moves[0] if outcome.moves else None
    paths = {"before": path.old, "during": path.old, "after": path.new} if path else {}
    titles = {"before": "before", "during": "congested", "after": "after"}
    return [
        Panel(titles[name], snapshot, outcome.scenario.congested, paths.get(name, ()))
        for name, snapshot in outcome.snapshots
    ]
