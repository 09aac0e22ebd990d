"""The network's past as the page shows it: frames replayed, and a link's figures over time, from a collector's history.

Queries run one at a time, outside the event loop. A replay reads a piece ahead of what it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from collectors.errors import HistoryError
from collectors.history.query import query
from collectors.history.rows import LEFT_OUT
from collectors.values import ChildKey, ChildState, EventNote, FlowMove, JobKey, JobState, Severity
from controller.apiserver.view import frames
from controller.apiserver.view.frames import Frame
from controller.apiserver.view.state import MOST_FLOWS, SHOWN_NS, LinkColumns, NetworkView, event_text, flow_text
from controller.common.errors import InvalidError, UnavailableError
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey

T = TypeVar("T")

LONGEST_NS: Final = 31 * 86_400 * NS_PER_S
"""Longest span of a replay, and of a link's figures."""
SPEEDS: Final = (0.1, 3600.0)
_PIECE_NS: Final = 10 * NS_PER_S
_FIRST_PIECE_NS: Final = 2 * NS_PER_S
_LONGEST_PIECE_NS: Final = 3600 * NS_PER_S
_POINTS: Final = 300
_BEAT_S: Final = 1.0
_RECENT_NS: Final = 120 * NS_PER_S
"""Longest time before a moment in which an interval with it may have begun: two of the coarsest rows."""
_MOST_MOVES: Final = 500

_STATES: Final = """
    select epoch_us(time) as began, src, dst, utilisation, delay_mean_ns, loss, age_ns
    from links where time >= make_timestamptz({start}) and time < make_timestamptz({end}) order by began
"""
_SPAN: Final = """
    select epoch_us(min(time)), epoch_us(max(time)) from links
"""
_NEXT: Final = """
    select epoch_us(min(time)) from links where time >= make_timestamptz({start}) and time < make_timestamptz({end})
"""
_EVENTS: Final = """
    select rule, kind, subject, figure, value, threshold, phase, epoch_us(time), note_by, note, severity from events
    where time >= make_timestamptz({start}) and time < make_timestamptz({end}) order by time
"""
_MOVES: Final = """
    select epoch_us(time), src_host, dst_host, protocol, src_port, dst_port, old_switches, new_switches, reason, gain_ns
    from moves where time >= make_timestamptz({start}) and time < make_timestamptz({end})
    order by time desc limit {most}
"""
_COUNTS: Final = """
    select began, coalesce(shown, 0), coalesce(shown, 0) + coalesce(left_out, 0) from (
        select epoch_us(time) as began, count(*) as shown from paths
        where time >= make_timestamptz({start}) and time < make_timestamptz({end}) group by began
    ) full join (
        select epoch_us(time) as began, ceil(sum(increase) / max(snapshots))::bigint as left_out from counters
        where name = '{left_out}' and time >= make_timestamptz({start}) and time < make_timestamptz({end})
        group by began
    ) using (began)
"""
_FLOWS: Final = """
    select coalesce(src_host, src), coalesce(dst_host, dst), protocol, src_port, dst_port, switches,
        rate_bps, delay_ns, loss, age_ns
    from paths where time = make_timestamptz({start}) order by rate_bps desc nulls last limit {most}
"""
_SERIES: Final = """
    select epoch_us(time_bucket(to_seconds({step}), time)) as began,
        sum(utilisation * snapshots) / sum(snapshots), max(utilisation_max),
        sum(delay_mean_ns * samples) / nullif(sum(samples), 0), max(delay_max_ns),
        sum(loss * samples) / nullif(sum(samples) filter (loss is not null), 0)
    from links
    where time >= make_timestamptz({start}) and time < make_timestamptz({end}) and src = '{src}' and dst = '{dst}'
    group by began order by began
"""
_JOBS: Final = """
    select job, arg_max(name, time), node, arg_max(is_leaf, time), arg_max(epoch, time), arg_max(items_per_s, time),
        arg_max(cells_used, time), arg_max(cells, time), arg_max(wait_mean_ns, time), arg_max(wait_p50_ns, time),
        arg_max(wait_p99_ns, time), arg_max(wait_max_ns, time), arg_max(samples, time), arg_max(age_ns, time),
        sum(items), sum(reported), sum(repeated)
    from jobs where time >= make_timestamptz({start}) and time < make_timestamptz({end}) group by job, node
"""
_DROPS: Final = """
    select node, ingress_port, egress_port, reason, sum(packets) as packets, epoch_us(max(time)) from drops
    where time >= make_timestamptz({start}) and time < make_timestamptz({end})
    group by all order by packets desc limit 1000
"""
_CHILDREN: Final = """
    select job, node, number, arg_max(child, time), sum(last), arg_max(last_share, time), arg_max(wait_mean_ns, time),
        arg_max(wait_max_ns, time), arg_max(wait_caused_ns, time), arg_max(samples, time)
    from job_children where time >= make_timestamptz({start}) and time < make_timestamptz({end})
    group by job, node, number
"""
_JOB_NS: Final = 60 * NS_PER_S
"""Jobs of a time are those of the rows of this long before it: the longest that a row stands for."""
_SERIES_COLUMNS: Final = ("utilisation", "utilisation_max", "delay_ns", "delay_max_ns", "loss")


@dataclass(frozen=True, slots=True)
class FlowCounts:
    """Number of flows that the history has of an interval, and that there were."""

    shown: int
    of: int


class Past:
    """A collector's history."""

    def __init__(self, folder: Path, view: NetworkView) -> None:
        self._folder, self._view = folder, view
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")

    def close(self) -> None:
        """Let go of the history."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def span(self) -> tuple[int, int] | None:
        """Return the times of the first and the last state, ns since 1970; None if there is none."""
        ((first_us, last_us),) = await self._ask(_SPAN, 0, 0)
        return None if first_us is None else (1000 * first_us, 1000 * last_us)

    async def series(self, key: LinkKey, from_ns: int, to_ns: int) -> dict[str, Any]:
        """Return a link's figures at up to 300 times; raise InvalidError, UnavailableError."""
        _check_span(from_ns, to_ns)
        step_s = max(1.0, (to_ns - from_ns) / NS_PER_S / _POINTS)
        names = {"src": _quoted(key.src), "dst": _quoted(key.dst), "step": step_s}
        rows = await self._ask(_SERIES, from_ns, to_ns, **names)
        columns = list(zip(*rows, strict=True)) or [()] * (1 + len(_SERIES_COLUMNS))
        named = dict(zip(_SERIES_COLUMNS, map(list, columns[1:]), strict=True))
        return {"at_ns": [1000 * at for at in columns[0]], "step_ns": round(step_s * NS_PER_S), **named}

    async def flows(self, at_ns: int, limit: int) -> dict[str, Any]:
        """Return the flows of the newest interval that had begun at a time, busiest first; raise UnavailableError.

        The history keeps the busiest flows of each interval; `of` counts all.
        """
        counted = await self._ask(_COUNTS, max(0, at_ns - _RECENT_NS), at_ns + 1, left_out=LEFT_OUT)
        if not counted:
            raise UnavailableError("the history has no flows of that time")
        began_us, shown, of = max(counted)
        rows = await self._ask(_FLOWS, 1000 * began_us, 1000 * began_us, most=min(limit, MOST_FLOWS))
        flows = [
            {
                "src": src,
                "dst": dst,
                "protocol": protocol,
                "src_port": src_port,
                "dst_port": dst_port,
                "text": flow_text(src, dst, src_port, dst_port),
                "path": path,
                "rate_bps": rate_bps,
                "delay_ns": delay_ns,
                "loss": loss,
                "age_ns": age_ns,
            }
            for src, dst, protocol, src_port, dst_port, path, rate_bps, delay_ns, loss, age_ns in rows
        ]
        return {"at_ns": 1000 * began_us, "flows": flows, "kept": shown, "of": of}

    async def frames(self, build: str, from_ns: int, to_ns: int, speed: float) -> AsyncGenerator[bytes, None]:
        """Yield the frames of a span of the past at its speed, to its end; raise InvalidError, UnavailableError.

        A span without rows passes at once, and a heartbeat says so.
        """
        _check_span(from_ns, to_ns)
        if not SPEEDS[0] <= speed <= SPEEDS[1]:
            raise InvalidError(f"speed: {speed:g} is not between {SPEEDS[0]:g} and {SPEEDS[1]:g}")
        replay = _Replay(self._view, from_ns)
        replay.moves = await self._moves(from_ns, to_ns)
        replay.events = await self._ask(_EVENTS, from_ns - SHOWN_NS, to_ns)
        hello = {"version": 1, "build": build, "mode": "replay", "now_ns": from_ns}
        yield frames.json_frame(Frame.HELLO, hello) + self._view.topology_frame
        loop = asyncio.get_running_loop()
        began_s: float | None = None
        async for at_ns, links, flows in self._states(from_ns, to_ns, replay):
            replay.flows = flows
            if began_s is None:  # whoever seeks a time sees at once what comes first after it
                began_s = loop.time() - (at_ns - from_ns) / NS_PER_S / speed
            due_s = began_s + (at_ns - from_ns) / NS_PER_S / speed
            while (wait_s := due_s - loop.time()) > 0:
                await asyncio.sleep(min(wait_s, _BEAT_S))
                if wait_s > _BEAT_S:
                    yield replay.beat()
            if at_ns > replay.shown_ns + SHOWN_NS:
                began_s = loop.time() - (at_ns - from_ns) / NS_PER_S / speed  # a gap is skipped, not waited for
            yield replay.show(at_ns, links)

    async def _states(
        self, from_ns: int, to_ns: int, replay: _Replay
    ) -> AsyncGenerator[tuple[int, LinkColumns, FlowCounts], None]:
        """Yield the links' states, with numbers of flows, in order of time."""
        start_ns, piece_ns = from_ns, _FIRST_PIECE_NS
        while start_ns < to_ns:
            end_ns = min(to_ns, start_ns + piece_ns)
            rows = await self._run(partial(self._piece, start_ns, end_ns))
            for state in rows:
                yield state
            start_ns = end_ns
            if rows:
                # A piece of merged rows has few of them: read more of it at once.
                sparse = len(rows) < _PIECE_NS // NS_PER_S
                piece_ns = min(_LONGEST_PIECE_NS, 2 * piece_ns) if sparse else _PIECE_NS
                continue
            ((next_us,),) = await self._ask(_NEXT, start_ns, to_ns)
            if next_us is None:
                return
            if 1000 * next_us > start_ns + piece_ns:
                replay.problem = "the history has nothing of this time"
            start_ns = 1000 * next_us

    def _piece(self, start_ns: int, end_ns: int) -> list[tuple[int, LinkColumns, FlowCounts]]:
        found: list[tuple[int, LinkColumns, FlowCounts]] = []
        rows = self._rows(_COUNTS, start_ns, end_ns, left_out=LEFT_OUT)
        flows = {at: FlowCounts(shown, of) for at, shown, of in rows}
        index, count = self._view.index, len(self._view.keys)
        links, at_us = LinkColumns.of(count), -1
        for at, src, dst, utilisation, delay_ns, loss, age_ns in self._rows(_STATES, start_ns, end_ns):
            if at != at_us:
                links, at_us = LinkColumns.of(count), at
                found.append((1000 * at, links, flows.get(at, FlowCounts(0, 0))))
            number = index.get(LinkKey(src, dst))
            if number is None or age_ns is None:
                continue
            links.is_silent[number] = False
            links.utilisation[number] = np.nan if utilisation is None else utilisation
            links.delay_ns[number] = np.nan if delay_ns is None else delay_ns
            links.loss[number] = np.nan if loss is None else loss
        return found

    async def drops(self, from_ns: int, to_ns: int) -> list[dict[str, Any]]:
        """Return drops that switches reported, by switch, ports and reason; raise InvalidError, UnavailableError."""
        _check_span(from_ns, to_ns)
        rows = await self._ask(_DROPS, from_ns, to_ns)
        names = ("switch", "ingress_port", "egress_port", "reason", "packets", "last_ns")
        return [dict(zip(names, (*row[:4], int(row[4]), 1000 * row[5]), strict=True)) for row in rows]

    async def jobs(self, at_ns: int) -> dict[JobKey, JobState]:
        """Return jobs in switches at a time; counts are those of the minute before it."""
        start_ns = max(0, at_ns - _JOB_NS)
        children: dict[JobKey, list[ChildState]] = {}
        for job, node, number, name, last, *waits in await self._ask(_CHILDREN, start_ns, at_ns + 1000):
            child = ChildState(ChildKey(job, node, number, name), int(last), *waits)
            children.setdefault(JobKey(job, node), []).append(child)
        states: dict[JobKey, JobState] = {}
        for row in await self._ask(_JOBS, start_ns, at_ns + 1000):
            key = JobKey(row[0], row[2])
            waits_of = sorted(children.get(key, ()), key=lambda child: (-child.wait_caused_ns, child.key.number))
            states[key] = _job_state(key, row, tuple(waits_of))
        return states

    async def _moves(self, from_ns: int, to_ns: int) -> tuple[FlowMove, ...]:
        rows = await self._ask(_MOVES, from_ns - SHOWN_NS, to_ns, most=_MOST_MOVES)
        return tuple(
            FlowMove(1000 * at, src, dst, protocol, src_port, dst_port, tuple(old), tuple(new), reason, gain_ns)
            for at, src, dst, protocol, src_port, dst_port, old, new, reason, gain_ns in reversed(rows)
        )

    async def _ask(self, statement: str, start_ns: int, end_ns: int, **values: object) -> list[tuple[Any, ...]]:
        return await self._run(lambda: list(self._rows(statement, start_ns, end_ns, **values)))

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._worker, call)
        except HistoryError as error:
            raise UnavailableError(f"history: {error}") from None

    def _rows(self, statement: str, start_ns: int, end_ns: int, **values: object) -> Iterator[tuple[Any, ...]]:
        # Rows are of microseconds: those of a span's last one belong to it.
        text = statement.format(start=-(-start_ns // 1000), end=-(-end_ns // 1000), **values)
        for batch in query(self._folder, text).batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class _Replay:
    """The view of a replay, with the moves and events that come up as its time goes on."""

    def __init__(self, view: NetworkView, from_ns: int) -> None:
        self.shown_ns = from_ns
        self._view = view.past(lambda: self.shown_ns)
        self.moves: tuple[FlowMove, ...] = ()
        self.flows = FlowCounts(0, 0)
        self.events: list[tuple[Any, ...]] = []
        self.problem: str | None = None
        self._moved = self._raised = 0
        self._is_first = True

    def beat(self) -> bytes:
        """Return a heartbeat at the replay's time."""
        value: Mapping[str, Any] = {
            "now_ns": self.shown_ns,
            "sources": [{"name": "history", "age_ns": 0 if self.problem is None else None, "problem": self.problem}],
            "flows": {"shown": self.flows.shown, "of": self.flows.of},
        }
        return frames.json_frame(Frame.HEARTBEAT, value)

    def show(self, at_ns: int, links: LinkColumns) -> bytes:
        """Return the frames of a state, with what has come up since the last one."""
        self.shown_ns = at_ns
        view, parts = self._view, list[bytes]()
        view.on_frame = lambda kind, frame: parts.append(frame) if kind is Frame.DIFFERENCE else None
        view.take_columns(links, at_ns)
        if self._is_first:
            parts = [view.full_frame(), view.notes_frame()]
        moved, raised = self._moved, self._raised
        while self._moved < len(self.moves) and self.moves[self._moved].time_ns <= at_ns:
            view.take_move(self.moves[self._moved])
            self._moved += 1
        while self._raised < len(self.events) and 1000 * self.events[self._raised][7] <= at_ns:
            self._take_event(*self.events[self._raised])
            self._raised += 1
        if self._moved != moved or self._is_first:
            parts.append(view.moves_frame())
        if self._raised != raised or self._is_first:
            parts.append(view.events_frame())
        self._is_first = False
        beat = self.beat()
        self.problem = None
        return b"".join((*parts, beat))

    def _take_event(  # noqa: PLR0917 - a row
        self,
        rule: str,
        kind: str,
        subject: str,
        figure: str,
        value: float,
        threshold: float,
        phase: str,
        time_us: int,
        by: str | None,
        words: str | None,
        severity: str | None,
    ) -> None:
        note = None if by is None else EventNote(by, words or "", 1000 * time_us)
        if phase in {"acknowledged", "withdrawn"}:
            self._view.take_note(rule, subject, note)
            return
        text = event_text(figure, value, threshold)
        urgency = Severity(severity or Severity.WARNING)
        is_raised = phase == "raised"
        self._view.take_event(
            rule, kind, subject, text, 1000 * time_us, is_raised=is_raised, note=note, severity=urgency
        )


def _job_state(key: JobKey, row: tuple[Any, ...], children: tuple[ChildState, ...]) -> JobState:
    _, name, _, is_leaf, epoch, items_per_s, cells_used, cells, mean, p50, p99, longest, samples, age_ns, *sums = row
    items, reported, repeated = map(int, sums)
    return JobState(
        key=key,
        name=name,
        epoch=epoch,
        cells=cells,
        is_leaf=is_leaf,
        items=items,
        items_per_s=items_per_s,
        reported=reported,
        repeated=repeated,
        repeated_per_item=repeated / max(1, reported),
        cells_used=cells_used,
        wait_mean_ns=mean,
        wait_p50_ns=p50,
        wait_p99_ns=p99,
        wait_max_ns=longest,
        samples=samples,
        age_ns=age_ns,
        children=children,
    )


def _check_span(from_ns: int, to_ns: int) -> None:
    if not 0 < to_ns - from_ns <= LONGEST_NS:
        raise InvalidError("from, to: a span begins before it ends, at most 31 days later")


def _quoted(name: str) -> str:
    return name.replace("'", "''")
