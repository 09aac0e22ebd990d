"""Results of a demo run, measured by the hosts: before, during and after the congestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from collectors.values import Snapshot
from controller.apps.demo.scenario import Scenario
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.values import Rebalance
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.fabric.hosts import FlowMeasurement, Receiver
from dataplane.fabric.load import SentLoad

_BPS_PER_KBPS = 1e3


@dataclass(frozen=True, slots=True)
class Move:
    """A flow that the path server moved, and the reason."""

    time_ns: int
    flow: FlowSpec
    old: tuple[str, ...]
    new: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A separately measured span of the run."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """One planned flow in each phase, as its receiver measured it."""

    number: int
    flow: FlowSpec
    surge: bool
    phases: tuple[FlowMeasurement, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results of a run; times are run time in ns."""

    scenario: Scenario
    receivers: Mapping[str, Receiver]
    moves: tuple[Move, ...]
    snapshots: tuple[tuple[str, Snapshot], ...]
    reports: int
    lost_reports: int
    first_on_new_path_ns: int | None
    sent: Mapping[int, SentLoad]
    """Load sent per flow, by flow number."""
    exact: bool
    """True if host clocks are exact, as in virtual time."""
    rebalances: tuple[Rebalance, ...] = ()
    sample_every: int = 1
    """One in this many packets of each flow was sent; the others were a fluid."""
    no_room: str | None = None
    """The path server's reason for leaving the surge where it is, if links were still full at the end."""

    @property
    def answered(self) -> bool:
        """True if the path server moved a flow or changed weights."""
        return bool(self.moves or self.rebalances)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Before the surge; until the first packet took a new path, if any did; the end, when queues have drained."""
        scenario = self.scenario
        answered_ns = self.first_on_new_path_ns or scenario.after_ns
        return (
            Phase("before", scenario.warm_up_ns, scenario.congest_ns),
            Phase("during", scenario.congest_ns, max(scenario.congest_ns + 1, min(answered_ns, scenario.after_ns))),
            Phase("after", scenario.after_ns, scenario.end_ns),
        )

    @property
    def reaction_ns(self) -> int | None:
        """From the start of the surge to the first packet on a new path; None if the surge moved nothing."""
        if self.first_on_new_path_ns is None:
            return None
        return self.first_on_new_path_ns - self.scenario.congest_ns

    def figures(self) -> tuple[FlowFigures, ...]:
        """Return every flow's measurements, in the scenario's order."""
        return self.measured([(self.receivers, phase) for phase in self.phases])

    def measured(self, spans: Sequence[tuple[Mapping[str, Receiver], Phase]]) -> tuple[FlowFigures, ...]:
        """Return every flow's measurements in several spans, each by its own receivers."""
        return tuple(
            FlowFigures(
                planned.number,
                planned.flow,
                planned.surge,
                tuple(
                    receivers[planned.flow.dst_host].measure(planned.number, span.start_ns, span.end_ns)
                    for receivers, span in spans
                ),
            )
            for planned in self.scenario.flows
        )

    def affected(self, figures: Sequence[FlowFigures] | None = None) -> tuple[FlowFigures, ...]:
        """Return the surge and the flows that moved, in order of their moves; by default measured in its phases."""
        order = {move.flow: index for index, move in reversed(list(enumerate(self.moves)))}
        chosen = [f for f in (self.figures() if figures is None else figures) if f.surge or f.flow in order]
        return tuple(sorted(chosen, key=lambda f: (not f.surge, order.get(f.flow, 0), f.number)))


def mean_delay_ns(measurements: Iterable[FlowMeasurement]) -> float | None:
    """Return the mean one-way delay over all packets of several flows; None if no packet came."""
    heard = [(m.delay_mean_ns, m.packets) for m in measurements if m.delay_mean_ns is not None]
    packets = sum(count for _, count in heard)
    return sum(mean * count for mean, count in heard) / packets if packets else None


def loss_share(measurements: Iterable[FlowMeasurement]) -> float:
    """Return the share of packets lost over several flows, 0 to 1."""
    counts = [(m.lost, m.packets - m.duplicates + m.lost) for m in measurements]
    due = sum(count for _, count in counts)
    return sum(lost for lost, _ in counts) / due if due else 0.0


def delay_by_phase_ns(figures: Sequence[FlowFigures]) -> tuple[float | None, float | None, float | None]:
    """Return the mean delay before, during and after, over the background flows among `figures`."""
    before, during, after = (mean_delay_ns(f.phases[i] for f in figures if not f.surge) for i in range(3))
    return before, during, after


def flow_table(outcome: Outcome, unsteered: Mapping[str, Receiver] | None = None) -> Table:
    """Return the final table: delay, throughput and loss of each affected flow in each phase.

    With the receivers of the same seconds without a path server, the columns compare these with the run instead.
    """
    spans = [(outcome.receivers, phase) for phase in outcome.phases]
    if unsteered is not None:
        surge = outcome.scenario.congest_ns, outcome.scenario.end_ns
        spans = [
            spans[0],
            (unsteered, Phase("surge, without", *surge)),
            (outcome.receivers, Phase("surge, with", *surge)),
        ]
    title = "Flows, as their receivers measured them"
    if unsteered is not None:
        title += ", without a path server and with it"
    table = Table(title=title, title_justify="left")
    table.add_column("flow")
    for _, phase in spans:
        seconds = (phase.end_ns - phase.start_ns) / NS_PER_S
        table.add_column(f"{phase.name}\n{seconds:.1f} s\ndelay ms (p99)", justify="right")
        table.add_column("kbit/s", justify="right")
        table.add_column("loss", justify="right")
    figures = outcome.measured(spans)
    affected = outcome.affected(figures)
    for flow in affected:
        table.add_row(_label(flow), *(cell for m in flow.phases for cell in _cells(m, outcome.sample_every)))
    table.add_section()
    if moved := [f for f in affected if not f.surge]:
        table.add_row("moved flows, mean", *_mean_cells(moved, len(spans), outcome.sample_every))
    background = [f for f in figures if not f.surge]
    table.add_row("all background flows, mean", *_mean_cells(background, len(spans), outcome.sample_every))
    return table


def _label(figures: FlowFigures) -> str:
    name = f"{figures.flow.src_host} → {figures.flow.dst_host}"
    return f"{name} (surge)" if figures.surge else name


def _cells(measured: FlowMeasurement, sample_every: int) -> tuple[str, str, str]:
    if measured.delay_mean_ns is None or measured.delay_p99_ns is None:
        return "-", "-", "-"
    delay = f"{measured.delay_mean_ns / NS_PER_MS:.1f} ({measured.delay_p99_ns / NS_PER_MS:.1f})"
    return delay, f"{measured.throughput_bps * sample_every / _BPS_PER_KBPS:.1f}", f"{measured.loss:.1%}"


def _mean_cells(figures: Sequence[FlowFigures], phases: int, sample_every: int) -> list[str]:
    cells: list[str] = []
    for index in range(phases):
        measured = [f.phases[index] for f in figures]
        delay_ns = mean_delay_ns(measured)
        total_bps = sum(m.throughput_bps for m in measured) * sample_every
        cells += [
            "-" if delay_ns is None else f"{delay_ns / NS_PER_MS:.1f}",
            f"{total_bps / _BPS_PER_KBPS:.1f}",
            f"{loss_share(measured):.1%}",
        ]
    return cells
