"""State of the network as the page's stream shows it: topology, links as bytes, events, moves, the sources' ages."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from collectors.state.link_states import link_states_of
from collectors.values import Event, EventNote, FlowMove, LinkCondition, Phase, Severity, Snapshot
from controller.apiserver.view import frames
from controller.apiserver.view.frames import Bytes, Frame
from controller.common.errors import NotFoundError
from controller.network.aggregation.service.messages import JobRow
from controller.network.intents import FlowSpec
from controller.network.paths.drains import Drains
from controller.network.paths.records.values import Drain
from controller.network.status.values import ControllerStatus
from dataplane.clock import NS_PER_S
from dataplane.topology.layout import bounds, placed
from dataplane.topology.values import LinkKey, Topology

SHOWN_NS: Final = 600 * NS_PER_S
"""Moves and closed events are shown for this long."""
_MOST_MOVES: Final = 500
_MOST_EVENTS: Final = 500
MOST_FLOWS: Final = 1000
_SAME_NS: Final = NS_PER_S
"""An open event that is told again has this time about the same: collector's and server's clocks are compared again."""
_FRAME_BYTES: Final = 1500
"""A link's own delay includes sending one such frame, or slow links would always look crowded."""
_UNCERTAIN: Final = 0.25
"""A delay whose error may exceed this share of it is shown as uncertain."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of what the page shows; `age_ns` of its newest state, None before the first."""

    name: str
    age_ns: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class LinkColumns:
    """Figures of all links, in their order; NaN where unknown."""

    utilisation: NDArray[np.float64]
    delay_ns: NDArray[np.float64]
    loss: NDArray[np.float64]
    is_silent: NDArray[np.bool_]
    is_down: NDArray[np.bool_]

    @classmethod
    def of(cls, links: int) -> LinkColumns:
        """Return columns of links without telemetry."""
        utilisation, delay_ns, loss = (np.full(links, np.nan) for _ in range(3))
        return cls(utilisation, delay_ns, loss, np.ones(links, dtype=bool), np.zeros(links, dtype=bool))


class NetworkView:
    """The newest state of the network as the page shows it; `on_frame` gets each frame that all viewers need.

    Use in one event loop. `now_ns` is the time since 1970. Link `2 * c` is cable c from its end a to b, `2 * c + 1`
    back; cables between switches only.
    """

    def __init__(self, topology: Topology, now_ns: Callable[[], int], sources: Sequence[str]) -> None:
        self.topology = topology
        cables = [link for link in topology.links if link.a.node in topology.switch and link.b.node in topology.switch]
        self._cables = cables
        ends = [(link.a.node, link.b.node) for link in cables]
        self.keys = tuple(LinkKey(*pair) for a, b in ends for pair in ((a, b), (b, a)))
        self.index = {key: number for number, key in enumerate(self.keys)}
        idle_ns = [link.delay_ns + 8 * _FRAME_BYTES * NS_PER_S / link.rate_bps for link in cables]
        self._idle_ns = np.repeat(np.array(idle_ns, dtype=np.float64), 2)
        self._by_name = {str(key): number for key, number in self.index.items()}
        self._sources = tuple(sources)
        self._begin(now_ns)
        self.topology_frame = frames.json_frame(Frame.TOPOLOGY, self._topology_value())

    def _begin(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.state: Bytes = np.full((3, len(self.keys)), frames.UNKNOWN, dtype=np.uint8)
        self.time_ns = now_ns()
        self.version = 0
        """Number of snapshots shown: the clock may jump."""
        self.snapshot: Snapshot | None = None
        self.jobs: tuple[tuple[JobRow, ...], int] = (), 0
        """The job service's jobs, and when it listed them."""
        self.controller: ControllerStatus | None = None
        self._seen_ns: dict[str, int | None] = dict.fromkeys(self._sources)
        self._problems: dict[str, str] = {}
        self._moves: deque[FlowMove] = deque(maxlen=_MOST_MOVES)
        self._events: OrderedDict[tuple[str, str], dict[str, Any]] = OrderedDict()
        self._drained: list[dict[str, Any]] = []
        self._notes: dict[str, Any] = {"uncertain": [], "drained": self._drained}
        self.on_frame: Callable[[Frame, bytes], None] = lambda _kind, _frame: None
        self.viewers: Callable[[], int] = lambda: 0
        """Number of open streams that show it."""

    def note_problem(self, source: str, line: str) -> None:
        """Record why nothing comes from a source."""
        self._problems[source] = line

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Show a snapshot."""
        self.snapshot = snapshot
        self.hear("collector")
        columns, uncertain = self._columns(snapshot)
        self._show(columns, self._now_ns())
        self._note({"uncertain": uncertain, "drained": self._drained})

    def take_drains(self, drains: Sequence[Drain]) -> None:
        """Show which links are drained, and by whom."""
        by_link = Drains(self.topology, {drain.element: drain for drain in drains}).by_link
        self._drained = [
            {
                "link": self.index[key],
                "element": drain.element,
                "by": drain.by,
                "reason": drain.note,
                "since_ns": drain.since_ns,
            }
            for key, drain in sorted(by_link.items(), key=lambda item: self.index[item[0]])
        ]
        self._note({**self._notes, "drained": self._drained})

    def _note(self, notes: dict[str, Any]) -> None:
        if notes != self._notes:
            self._notes = notes
            self.on_frame(Frame.NOTES, self.notes_frame())

    def take_columns(self, links: LinkColumns, time_ns: int) -> None:
        """Show figures of all links at a time."""
        self.hear("collector")
        self._show(links, time_ns)

    def take_jobs(self, rows: tuple[JobRow, ...]) -> None:
        """Take what the job service knows of its jobs."""
        self.hear("job service")
        self.jobs = rows, self._now_ns()

    def take_controller(self, status: ControllerStatus) -> None:
        """Take the controller's status."""
        self.hear("controller")
        self.controller = status

    def take_move(self, move: FlowMove) -> None:
        """Show a move of a flow; after a restart of the path server the same ones may come again."""
        self.hear("path server")
        if move not in self._moves:
            self._moves.append(move)
            self.on_frame(Frame.MOVES, self.moves_frame())

    def newest_move(self, flow: FlowSpec) -> FlowMove | None:
        """Return the newest move of a flow, None if none is known."""
        return next((move for move in reversed(self._moves) if spec_of_move(move) == flow), None)

    def take_events(self, events: Sequence[Event]) -> None:
        """Show events as rules raise and clear them, and as users acknowledge them."""
        for event in events:
            kind = _KINDS.get(type(event.subject).__name__, "")
            text = event_text(event.figure, event.value, event.threshold)
            is_raised = event.phase is Phase.RAISED
            self.take_event(
                event.rule,
                kind,
                str(event.subject),
                text,
                event.time_ns,
                is_raised=is_raised,
                note=event.note,
                severity=event.severity,
            )
        if events:
            self.on_frame(Frame.EVENTS, self.events_frame())

    def take_event(
        self,
        rule: str,
        kind: str,
        subject: str,
        text: str,
        time_ns: int,
        *,
        is_raised: bool,
        note: EventNote | None = None,
        severity: Severity = Severity.WARNING,
    ) -> None:
        """Note that a rule raised or cleared an event about a subject."""
        key = rule, subject
        held, told = self._events.get(key), note_value(note)
        if not is_raised:
            if held is not None and held["closed_ns"] is None:
                self._events[key] = {**held, "closed_ns": time_ns, "note": told or held["note"]}
            return
        if held is not None and held["closed_ns"] is None and abs(held["opened_ns"] - time_ns) < _SAME_NS:
            # Repeated after a break, when clocks are compared again, or because its note has changed.
            self._events[key] = {**held, "note": told}
            return
        self._events.pop(key, None)
        self._events[key] = {
            "id": hashlib.sha256(f"{key}{time_ns}".encode()).hexdigest()[:16],
            "rule": rule,
            "severity": severity.value,
            "subject": f"{kind} {subject}".strip(),
            "link": self._by_name.get(subject) if kind == "link" else None,
            "opened_ns": time_ns,
            "closed_ns": None,
            "text": text,
            "note": told,
        }
        while len(self._events) > _MOST_EVENTS:
            self._events.popitem(last=False)

    def take_note(self, rule: str, subject: str, note: EventNote | None) -> None:
        """Show the note of an open event, or that it was withdrawn."""
        held = self._events.get((rule, subject))
        if held is not None:
            self._events[rule, subject] = {**held, "note": note_value(note)}
            self.on_frame(Frame.EVENTS, self.events_frame())

    def open_event(self, number: str) -> tuple[str, str]:
        """Return rule and subject of an open event by its id; raise NotFoundError."""
        for key, event in self._events.items():
            if event["id"] == number and event["closed_ns"] is None:
                return key
        raise NotFoundError("this event is no longer open")

    def event(self, rule: str, subject: str) -> dict[str, Any] | None:
        """Return an event as the page shows it."""
        return self._events.get((rule, subject))

    def past(self, now_ns: Callable[[], int]) -> NetworkView:
        """Return a view of the same network that shows nothing yet, at another time."""
        other = copy(self)
        other._begin(now_ns)  # noqa: SLF001 - its own
        return other

    def full_frame(self) -> bytes:
        """Return the whole state of the links."""
        return frames.full(self.time_ns, self.state)

    def moves_frame(self) -> bytes:
        """Return the moves of the last ten minutes, newest first."""
        since_ns = self._now_ns() - SHOWN_NS
        moves = [move_value(move) for move in reversed(self._moves) if move.time_ns >= since_ns]
        return frames.json_frame(Frame.MOVES, moves)

    def events_frame(self) -> bytes:
        """Return open events, and those closed in the last ten minutes, newest first."""
        since_ns = self._now_ns() - SHOWN_NS
        shown = [
            event
            for event in reversed(self._events.values())
            if event["closed_ns"] is None or event["closed_ns"] >= since_ns
        ]
        return frames.json_frame(Frame.EVENTS, shown)

    def notes_frame(self) -> bytes:
        """Return the links whose delay is uncertain, and those that are drained."""
        return frames.json_frame(Frame.NOTES, self._notes)

    def heartbeat_frame(self) -> bytes:
        """Return the time, each source's age, and how many of the flows are shown."""
        flows = 0 if self.snapshot is None else len(self.snapshot.paths)
        value = {
            "now_ns": self._now_ns(),
            "sources": self.sources(),
            "flows": {"shown": min(flows, MOST_FLOWS), "of": flows},
        }
        return frames.json_frame(Frame.HEARTBEAT, value)

    def sources(self) -> list[Source]:
        """Return each source with its age."""
        now_ns = self._now_ns()
        return [
            Source(name, None if seen_ns is None else max(0, now_ns - seen_ns), self._problems.get(name))
            for name, seen_ns in self._seen_ns.items()
        ]

    def hear(self, source: str) -> None:
        """Record that a source has answered."""
        self._seen_ns[source] = self._now_ns()
        self._problems.pop(source, None)

    def _show(self, links: LinkColumns, time_ns: int) -> None:
        before, self.time_ns = self.state, time_ns
        self.version += 1
        state = np.stack(
            (
                frames.utilisation_bytes(links.utilisation),
                frames.delay_bytes(links.delay_ns - self._idle_ns),
                frames.loss_bytes(links.loss),
            )
        )
        state[0, links.is_silent] = frames.SILENT
        state[0, links.is_down] = frames.DOWN
        self.state = state
        self.on_frame(Frame.DIFFERENCE, frames.difference(self.time_ns, state, before))

    def _columns(self, snapshot: Snapshot) -> tuple[LinkColumns, list[int]]:
        """Return the links' figures, and which delays are uncertain."""
        states, columns = link_states_of(snapshot.links), LinkColumns.of(len(self.keys))
        rows = np.array([states.places.get(key, -1) for key in self.keys], dtype=np.int64)
        ours = np.flatnonzero(rows >= 0)
        rows = rows[ours]

        def figure(name: str) -> NDArray[np.float64]:
            return states.column(name)[rows]

        def newest(name: str, mean: str) -> NDArray[np.float64]:
            values = figure(name)
            return np.where(np.isnan(values), figure(mean), values)

        is_silent = np.isnan(figure("age_ns"))
        delay_ns, uncertainty_ns = figure("delay_mean_ns"), figure("delay_uncertainty_ns")
        columns.is_silent[ours] = is_silent
        columns.utilisation[ours] = newest("newest_utilisation", "utilisation")
        columns.delay_ns[ours] = newest("newest_delay_ns", "delay_mean_ns")
        columns.loss[ours] = figure("loss")
        # Comparisons with NaN are false: an unknown error is none.
        is_uncertain = ~is_silent & (uncertainty_ns > _UNCERTAIN * np.maximum(1.0, delay_ns))
        for key, status in snapshot.statuses.items():
            if status.condition is LinkCondition.DOWN and key in self.index:
                columns.is_down[self.index[key]] = True
        return columns, ours[is_uncertain].tolist()

    def _topology_value(self) -> dict[str, Any]:
        topology, where = self.topology, placed(self.topology)
        names = [*(node.name for node in topology.switches), *(node.name for node in topology.hosts)]
        number = {name: index for index, name in enumerate(names)}
        between = set(self._cables)
        access = [link for link in topology.links if link not in between]
        value: dict[str, Any] = {
            "name": topology.name,
            "layout": "place" if where.kind == "place" else "layers",
            "switches": [
                {
                    "name": node.name,
                    "x": where.switches[node.name][0],
                    "y": where.switches[node.name][1],
                    "layer": where.layers.get(node.name),
                    "place": None if node.place is None else [node.place.longitude, node.place.latitude],
                }
                for node in topology.switches
            ],
            "hosts": [
                {
                    "name": node.name,
                    "switch": number[topology.attachment[node.name].node] if node.name in topology.attachment else None,
                    "x": where.hosts[node.name][0],
                    "y": where.hosts[node.name][1],
                }
                for node in topology.hosts
            ],
            "cables": [
                {
                    "a": number[link.a.node],
                    "b": number[link.b.node],
                    "rate_bps": link.rate_bps,
                    "delay_ns": link.delay_ns,
                }
                for link in (*self._cables, *access)
            ],
            "bounds": bounds([*where.switches.values(), *where.hosts.values()]),
        }
        value["hash"] = hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]
        return value


_KINDS: Final = {"LinkKey": "link", "FlowKey": "flow", "ReporterKey": "reporter"}


def spec_of_move(move: FlowMove) -> FlowSpec:
    """Return the flow that was moved."""
    return FlowSpec(move.src_host, move.dst_host, move.protocol, move.src_port, move.dst_port)


def move_value(move: FlowMove) -> dict[str, Any]:
    """Return a move as the page shows it."""
    src_port, dst_port = move.src_port, move.dst_port
    return {
        "id": f"{move.time_ns}-{move.src_host}-{move.dst_host}-{src_port or 0}-{dst_port or 0}",
        "at_ns": move.time_ns,
        "flow": {
            "src": move.src_host,
            "dst": move.dst_host,
            "protocol": move.protocol,
            "src_port": src_port,
            "dst_port": dst_port,
        },
        "text": flow_text(move.src_host, move.dst_host, src_port, dst_port),
        "old": list(move.old_path),
        "new": list(move.new_path),
        "reason": move.reason,
        "gain_ns": move.gain_ns,
    }


def note_value(note: EventNote | None) -> dict[str, Any] | None:
    """Return an acknowledgement as the page shows it."""
    return None if note is None else {"by": note.by, "text": note.text, "at_ns": note.at_ns}


def event_text(figure: str, value: float, threshold: float) -> str:
    """Return what raised or cleared an event."""
    return f"{figure.replace('_', ' ')} is {value:.4g}, limit {threshold:.4g}"


def flow_text(src: object, dst: object, src_port: int | None, dst_port: int | None) -> str:
    """Return a flow in one line."""
    left = f"{src}:{src_port}" if src_port else f"{src}"
    right = f"{dst}:{dst_port}" if dst_port else f"{dst}"
    return f"{left} -> {right}"
