"""The live view: links with delay and load, decisions with reasons; plain lines where there is no terminal."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from collectors.values import LinkState, Snapshot
from dataplane.clock import NS_PER_MS
from dataplane.topology.values import LinkKey, Topology

_SHOWN_DECISIONS = 8
_BAR_WIDTH = 12
_FIGURES_WIDTH = 10 + _BAR_WIDTH + 4 + 4
"""Delay, bar, load, and the padding of the four cells."""


@dataclass(frozen=True, slots=True)
class Status:
    """The status line above the tables."""

    time_s: float
    end_s: float
    phase: str
    reports: int
    lost_reports: int


@dataclass
class LiveView:
    """Shows the newest snapshot; as a context manager it owns the screen while it runs."""

    topology: Topology
    console: Console
    congested: LinkKey | None = None
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=_SHOWN_DECISIONS))
    _live: Live | None = None
    _last_plain_s: int = -1

    def __enter__(self) -> LiveView:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def decided(self, line: str) -> None:
        """Add one decision, newest last; without a terminal it is printed at once."""
        self.decisions.append(line)
        if self._live is None:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show(self, status: Status, snapshot: Snapshot) -> None:
        """Draw the state; without a terminal, one line a second of the run's own time."""
        if self._live is not None:
            self._live.update(self._render(status, snapshot), refresh=True)
        elif int(status.time_s) > self._last_plain_s:
            self._last_plain_s = int(status.time_s)
            self.console.print(self._plain(status, snapshot), markup=False, highlight=False, soft_wrap=True)

    def _plain(self, status: Status, snapshot: Snapshot) -> str:
        worst = max(_core_links(self.topology, snapshot), key=self._excess_ns)
        return (
            f"{status.time_s:6.1f} s  {status.phase:<10} reports {status.reports:6d} (lost {status.lost_reports})  "
            f"longest queue {worst.link} +{self._excess_ns(worst) / NS_PER_MS:.1f} ms, load {worst.utilisation:.0%}"
        )

    def _render(self, status: Status, snapshot: Snapshot) -> Group:
        head = Text.assemble(
            ("millrace demo  ", "bold"),
            f"{status.time_s:5.1f} / {status.end_s:.0f} s   ",
            (f"{status.phase:<10}", "bold yellow"),
            f"   reports {status.reports}, lost {status.lost_reports}",
            no_wrap=True,
            overflow="ellipsis",
        )
        # A constant number of lines, so that nothing jumps; one line per decision, so that the newest is never cut off.
        room = self._decision_lines()
        lines = [*list(self.decisions)[-room:]] or ["none yet"]
        decisions = Text("\n".join(lines + [""] * (room - len(lines))), no_wrap=True, overflow="ellipsis")
        return Group(head, self._links(snapshot), Panel(decisions, title="decisions", title_align="left"))

    def _decision_lines(self) -> int:
        return min(_SHOWN_DECISIONS, max(2, self.console.height // 5))

    def _links(self, snapshot: Snapshot) -> Table:
        """Draw the links in as many columns as fit, by name; where not all fit, those with the longest queues."""
        states = _core_links(self.topology, snapshot)
        name_width = max((len(str(state.link)) for state in states), default=0) + 2
        columns = max(1, self.console.width // (name_width + _FIGURES_WIDTH))
        # Above are the head line, below the panel with its border, and the cursor's line.
        most_rows = max(1, self.console.height - self._decision_lines() - 4)
        shown = sorted(states, key=self._excess_ns, reverse=True)[: columns * most_rows]
        shown.sort(key=lambda state: state.link)
        rows = -(-len(shown) // columns)
        table = Table.grid(padding=(0, 1))
        for row in range(rows):
            table.add_row(*(cell for state in shown[row::rows] for cell in self._cells(state, name_width)))
        return table

    def _cells(self, state: LinkState, name_width: int) -> tuple[Text, Text, ProgressBar, Text]:
        excess_ms = self._excess_ns(state) / NS_PER_MS
        style = "bold red" if excess_ms > 20 else "yellow" if excess_ms > 5 else "green"
        mark = "▶ " if state.link == self.congested else "  "
        return (
            Text(f"{mark}{state.link}".ljust(name_width), style="bold" if mark.strip() else ""),
            Text(f"{state.delay_mean_ns / NS_PER_MS:7.1f} ms", style=style),
            ProgressBar(total=1.0, completed=min(state.utilisation, 1.0), width=_BAR_WIDTH),
            Text(f"{state.utilisation:4.0%}" if state.age_ns is not None else "   -"),
        )

    def _excess_ns(self, state: LinkState) -> int:
        return excess_ns(self.topology, state)


def excess_ns(topology: Topology, state: LinkState) -> int:
    """Return a link's mean delay above its propagation delay: queueing and transmission, 0 where unmeasured."""
    return max(0, state.delay_mean_ns - topology.directed_links[state.link].delay_ns)


def _core_links(topology: Topology, snapshot: Snapshot) -> list[LinkState]:
    return [s for s in snapshot.links.values() if s.link.src in topology.switch and s.link.dst in topology.switch]
