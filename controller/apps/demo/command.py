"""`millrace demo`: prepare, run in virtual time or in the kernel, show, and save picture and figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from controller.apps.demo.comparison import Comparison, Unsteered, compare, comparison_figures, gain_line
from controller.apps.demo.folder import make_folder
from controller.apps.demo.live import LiveView
from controller.apps.demo.load import as_planned, deviates, host_loads, load_figures, load_line, load_table
from controller.apps.demo.moves import describe, describe_weights, first_moves, rate_text, room_line
from controller.apps.demo.outcome import Outcome, delay_by_phase_ns, flow_table
from controller.apps.demo.picture import Panel, draw
from controller.apps.demo.prepare import Prepared, prepare, sampled
from controller.apps.demo.settings import DemoSettings
from controller.common.console import plain_or_terminal
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.config import load
from dataplane.errors import MillraceError


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Command-line options."""

    topology: str
    time: str
    demands: Path | None
    settings: Path | None
    out: Path
    seed: int
    web: bool = False
    background: str = "packets"

    @property
    def fluid(self) -> bool:
        """True if flows are rates on links, of whose packets only samples are sent."""
        return self.background == "fluid"


def run(options: DemoOptions) -> Outcome:
    """Run the demo and show it; raise a one-line MillraceError if it cannot run."""
    if options.time not in ("virtual", "kernel"):
        raise MillraceError(f"--time {options.time}: is neither virtual nor kernel")
    if options.background not in ("packets", "fluid"):
        raise MillraceError(f"--background {options.background}: is neither packets nor fluid")
    if options.fluid and options.time == "kernel":
        raise MillraceError("--background fluid: virtual time has it; a kernel fabric sends packets")
    if options.time == "kernel":
        from dataplane.fabric.kernel.fabric import require_root  # noqa: PLC0415 - loads netlink

        require_root()
    if options.web and options.time == "kernel":
        raise MillraceError(
            "--web: virtual time has it; `millrace fabric up --daemons` shows a kernel fabric in the page"
        )
    if options.seed < 0:
        raise MillraceError(f"--seed {options.seed}: is negative")
    settings = load(options.settings, DemoSettings) if options.settings else DemoSettings()
    make_folder(options.out)
    prepared = prepare(
        options.topology,
        options.demands,
        settings.scenario,
        kernel=options.time == "kernel",
        fluid=options.fluid,
    )
    settings = sampled(settings, prepared.scenario, fluid=options.fluid)
    console = plain_or_terminal()
    console.print(_introduction(prepared, options), highlight=False, soft_wrap=True)
    if options.web:
        return _run_in_page(options, settings, prepared, console)
    with LiveView(prepared.scenario.topology, console) as view:
        outcome = _run(options, settings, prepared, view)
    _show(console, outcome, options.out, _unsteered(options, settings, outcome, console))
    return outcome


def run_virtual(options: DemoOptions, settings: DemoSettings, prepared: Prepared, view: LiveView) -> Outcome:
    """Run in virtual time; the record table stays in the output folder."""
    from controller.apps.demo.virtual import VirtualRun  # noqa: PLC0415 - the kernel's run does not need the simulator

    with _recorder(options) as recorder:
        return VirtualRun(prepared.scenario, settings, view, recorder, options.seed, fluid=options.fluid).run()


def _run_in_page(options: DemoOptions, settings: DemoSettings, prepared: Prepared, console: Console) -> Outcome:
    """Run in virtual time, at the pace of the clock and shown in the page, which stays until a signal."""
    from controller.apps.demo.virtual import VirtualRun  # noqa: PLC0415 - as above
    from controller.apps.demo.web.running import run_in_page  # noqa: PLC0415 - loads the API server

    def show(outcome: Outcome) -> None:
        held.close()  # the live view: what follows is printed below it
        _show(console, outcome, options.out, _unsteered(options, settings, outcome, console))

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    with _recorder(options) as recorder, ExitStack() as held:
        view = held.enter_context(LiveView(prepared.scenario.topology, console))
        run = VirtualRun(prepared.scenario, settings, view, recorder, options.seed, fluid=options.fluid)
        return run_in_page(run, options.out / "history", say, show)


@contextmanager
def _recorder(options: DemoOptions) -> Iterator[Recorder]:
    """Yield a recorder into a new record table in the output folder."""
    file = options.out / "records.sqlite"
    # SQLite would apply the journal of an earlier run to the new file.
    for suffix in ("", "-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    database = open_path_database(str(file))
    try:
        yield Recorder(database, max_records=1_000_000)
    finally:
        database.close()


def _run(options: DemoOptions, settings: DemoSettings, prepared: Prepared, view: LiveView) -> Outcome:
    if options.time == "virtual":
        return run_virtual(options, settings, prepared, view)
    from controller.apps.demo.kernel import KernelRun  # noqa: PLC0415 - needs Linux and root, virtual time needs neither

    return KernelRun(prepared.scenario, settings, view, options.out, options.seed).run()


def _unsteered(options: DemoOptions, settings: DemoSettings, outcome: Outcome, console: Console) -> Unsteered | None:
    """Run the same seconds without a path server; None in the kernel, and where it would be the same run."""
    if options.time != "virtual" or not outcome.answered:
        return None
    from controller.apps.demo.virtual import run_unsteered  # noqa: PLC0415 - as above

    console.print("The same seconds without a path server ...", highlight=False)
    return run_unsteered(outcome.scenario, settings, options.seed, fluid=options.fluid)


def _introduction(prepared: Prepared, options: DemoOptions) -> str:
    scenario = prepared.scenario
    link = scenario.topology.directed_links[scenario.congested]
    surges = [planned for planned in scenario.flows if planned.surge]
    streams = " and ".join(f"{planned.flow.src_host} sends {planned.flow.dst_host}" for planned in surges)
    each = " each" if len(surges) > 1 else ""
    rates = "at their rates" if prepared.rate_divisor == 1 else f"rates divided by {prepared.rate_divisor}"
    kind = ", as a fluid" if options.fluid else ""
    return (
        f"{scenario.topology.name} in {options.time} time, {rates}{kind}; "
        f"{len(scenario.flows) - len(surges)} flows from {prepared.demands_from}.\n"
        f"At {scenario.congest_ns / NS_PER_S:g} s {streams} another {rate_text(surges[0].rate_bps)}{each} "
        f"over {scenario.congested} ({rate_text(link.rate_bps)})."
    )


def _show(console: Console, outcome: Outcome, out: Path, unsteered: Unsteered | None) -> None:
    if console.is_terminal:
        # The live view has closed, and its decisions with it; without a terminal they were printed as they came.
        for move in outcome.moves:
            console.print(describe(move), highlight=False, soft_wrap=True)
        for change in outcome.rebalances:
            console.print(describe_weights(change), highlight=False, soft_wrap=True)
    console.print(flow_table(outcome, unsteered.receivers if unsteered else None))
    if outcome.reaction_ns is None:
        weights = sum(change.time_ns >= outcome.scenario.congest_ns for change in outcome.rebalances)
        console.print(
            f"The surge moved no flow, but {weights} groups' weights." if weights else "The surge moved nothing."
        )
    else:
        console.print(f"First packet on a new path {outcome.reaction_ns / NS_PER_MS:.0f} ms after the surge began.")
    comparison = compare(outcome, unsteered) if unsteered else None
    for line in (room_line(outcome), _gain(outcome, comparison)):
        if line is not None:
            console.print(line, style="bold", highlight=False, soft_wrap=True)
    console.print(f"{outcome.reports} telemetry reports, {outcome.lost_reports} lost.", highlight=False)
    _show_load(console, outcome)
    png, svg = draw(outcome.scenario.topology, _panels(outcome), out / "network", _shaded(outcome))
    figures = out / "figures.json"
    figures.write_text(json.dumps(figures_of(outcome, comparison), indent=2) + "\n", encoding="utf-8")
    console.print(f"Pictures: {png} and {svg}; figures: {figures}", highlight=False, soft_wrap=True)


def _gain(outcome: Outcome, comparison: Comparison | None) -> str | None:
    """Return what the path server won; None if it did nothing."""
    if not outcome.answered:
        return None
    if comparison is None:
        return "Not compared with the same seconds without a path server: virtual time does that."
    return gain_line(comparison)


def _show_load(console: Console, outcome: Outcome) -> None:
    well = as_planned(outcome)
    if any(deviates(host, exact=outcome.exact) for host in host_loads(outcome)):
        console.print(load_table(outcome))
    console.print(load_line(outcome), style=None if well else "bold red", highlight=False, soft_wrap=True)


def figures_of(outcome: Outcome, comparison: Comparison | None = None) -> dict[str, object]:
    """Return the run's main figures by name."""
    moved = [flow for flow in outcome.affected() if not flow.surge]
    before, during, after = (None if ns is None else ns / NS_PER_MS for ns in delay_by_phase_ns(moved))
    return {
        "delay_before_ms": before,
        "delay_congested_ms": during,
        "delay_after_ms": after,
        "reaction_ms": None if outcome.reaction_ns is None else outcome.reaction_ns / NS_PER_MS,
        "comparison": None if comparison is None else comparison_figures(comparison),
        "no_room": outcome.no_room,
        "moves": len(outcome.moves),
        "rebalances": len(outcome.rebalances),
        "reports": outcome.reports,
        "lost_reports": outcome.lost_reports,
        "load": load_figures(outcome),
    }


def _panels(outcome: Outcome) -> list[Panel]:
    move = next(iter(first_moves(outcome.scenario, outcome.moves).values()), None)
    paths = {"before": move.old, "during": move.old, "after": move.new} if move else {}
    titles = {
        "before": "Before the surge",
        "during": "Congested: at the first decision" if move else "Congested",
        "after": "After: at the end" if outcome.no_room is None else "At the end: still full",
    }
    return [
        Panel(titles[name], snapshot, outcome.scenario.congested, paths.get(name, ()))
        for name, snapshot in outcome.snapshots
    ]


def _shaded(outcome: Outcome) -> str | None:
    move = next(iter(first_moves(outcome.scenario, outcome.moves).values()), None)
    return f"{move.flow.src_host} → {move.flow.dst_host}, which moved first" if move else None
