"""Replays and series out of a history that the collector's writer has written."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.history.rows import Observation
from collectors.history.writer import HistoryWriter
from collectors.values import Event, EventNote, Evidence, FlowMove, Phase
from controller.apiserver.view import frames
from controller.apiserver.view.frames import Frame
from controller.apiserver.view.past import Past
from controller.apiserver.view.state import NetworkView, move_value
from controller.common.errors import InvalidError, UnavailableError
from tests.collectors.history.samples import FLOW, LINK, NOON_S, S_NS, link, maker, path, snapshot
from tests.collectors.history.test_writer import settings
from tests.collectors.reports import build_topology

NOON_NS = NOON_S * S_NS
MOVE = FlowMove(
    NOON_NS + 30 * S_NS, "h1", "h2", 17, 5000, 6001, ("s1", "s2", "s3"), ("s1", "s3"), "s1->s2 is crowded", 9000
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A history of a minute with a row a second, nothing for an hour, ten seconds more, and an event."""
    writer, rows = HistoryWriter(settings(tmp_path)), maker(tmp_path, max_paths=1)
    # Times of events are by the clock of snapshots, which are all taken at 5 ns.
    phases = {20: Phase.RAISED, 40: Phase.CLEARED}
    for second in (*range(60), *range(3660, 3670)):
        at_ns = (NOON_S + second) * S_NS
        evidence = (Evidence(5, "utilisation", 0.9),)
        events = [
            Event(5, "busy", LINK, "utilisation", 0.9, 0.8, phase, evidence)
            for changed, phase in phases.items()
            if changed == second
        ]
        state = snapshot([link(utilisation=second % 10 / 10)], [path(), path(replace(FLOW, src_port=1), rate_bps=9)])
        noted = replace(events[0], note=EventNote("ada", "on it", 0)) if second == 20 else None
        notes = () if noted is None else ((at_ns + 2 * S_NS, noted),)
        moves = (MOVE,) if second == 30 else ()
        writer.write(rows.batches(Observation(at_ns, state, {}, tuple(events), notes=notes, moves=moves)), at_ns)
    writer.close()
    return tmp_path


def view() -> NetworkView:
    return NetworkView(build_topology(), lambda: NOON_NS, ["collector"])


async def pieces(stream: AsyncGenerator[bytes, None]) -> AsyncIterator[tuple[int, bytes]]:
    async with aclosing(stream):
        async for data in stream:
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from(">IB", data, at)
                yield kind, data[at + 5 : at + 4 + length]
                at += 4 + length


def replayed(past: Past, begin_s: float, end_s: float) -> tuple[dict[int, int], list[tuple[int, int, Any]]]:
    """Return the use of s1->s2 by second, and all other frames with the second at which they came."""

    async def read() -> tuple[dict[int, int], list[tuple[int, int, Any]]]:
        number = view().index[LINK]
        state, used, others, at_s = np.zeros((3, 0), dtype=np.uint8), dict[int, int](), list[tuple[int, int, Any]](), -1
        begin_ns, end_ns = NOON_NS + round(begin_s * S_NS), NOON_NS + round(end_s * S_NS)
        async for kind, payload in pieces(past.frames("build", begin_ns, end_ns, 3600.0)):
            if kind in {Frame.FULL, Frame.DIFFERENCE}:
                change = np.frombuffer(zlib.decompress(payload[8:]), dtype=np.uint8).reshape(3, -1)
                state = change if kind == Frame.FULL else state + change
                at_s = (struct.unpack_from(">Q", payload)[0] - NOON_NS) // S_NS
                used[at_s] = int(state[0, number])
            else:
                others.append((at_s, kind, json.loads(payload)))
        return used, others

    return asyncio.run(read())


def test_replay_shows_what_was_recorded(folder: Path) -> None:
    past = Past(folder, view())
    used, others = replayed(past, 5, 15)
    assert used == {second: 25 * (second % 10) for second in range(5, 15)}
    (hello,) = [value for _, kind, value in others if kind == Frame.HELLO]
    assert (hello["mode"], hello["now_ns"]) == ("replay", NOON_NS + 5 * S_NS)
    past.close()


def test_first_state_of_a_replay_is_not_waited_for(folder: Path) -> None:
    past, kinds = Past(folder, view()), list[int]()

    async def read() -> None:
        begin_ns = NOON_NS + S_NS // 10  # 0.9 s before the next row, which the slowest replay takes 9 s for
        async for kind, _ in pieces(past.frames("build", begin_ns, NOON_NS + S_NS + 1000, 0.1)):
            kinds.append(kind)

    asyncio.run(read())
    assert Frame.HEARTBEAT not in kinds[: kinds.index(Frame.FULL)]
    past.close()


def test_links_that_the_history_lacks_are_silent(folder: Path) -> None:
    past, states = Past(folder, view()), list[np.ndarray]()

    async def read() -> None:
        async for kind, payload in pieces(past.frames("build", NOON_NS, NOON_NS + S_NS, 1.0)):
            if kind == Frame.FULL:
                states.append(np.frombuffer(zlib.decompress(payload[8:]), dtype=np.uint8).reshape(3, -1))

    asyncio.run(read())
    number = view().index[LINK]
    assert [index for index, code in enumerate(states[0][0]) if code != frames.SILENT] == [number]
    past.close()


def test_gap_is_skipped_and_said(folder: Path) -> None:
    past = Past(folder, view())
    used, others = replayed(past, 57, 3663)
    assert list(used) == [57, 58, 59, 3660, 3661, 3662]
    problems = [(at, value["sources"][0]["problem"]) for at, kind, value in others if kind == Frame.HEARTBEAT]
    assert [problem for at, problem in problems if at == 3660] == ["the history has nothing of this time"]
    assert {problem for at, problem in problems if at != 3660} == {None}
    past.close()


def test_events_come_up_at_their_time(folder: Path) -> None:
    past = Past(folder, view())
    _, others = replayed(past, 10, 50)
    told = [(at, value) for at, kind, value in others if kind == Frame.EVENTS]
    assert [(at, len(value)) for at, value in told] == [(10, 0), (20, 1), (22, 1), (40, 1)]
    notes = [event["note"] and (event["note"]["by"], event["note"]["text"]) for _, value in told for event in value]
    assert notes == [None, ("ada", "on it"), ("ada", "on it")]
    (event,) = told[-1][1]
    assert (event["subject"], event["link"]) == ("link s1->s2", view().index[LINK])
    assert event["opened_ns"] == NOON_NS + 20 * S_NS
    assert event["closed_ns"] == NOON_NS + 40 * S_NS
    past.close()


def test_moves_come_up_at_their_time(folder: Path) -> None:
    past = Past(folder, view())
    _, others = replayed(past, 10, 50)
    told = [(at, value) for at, kind, value in others if kind == Frame.MOVES]
    assert [(at, len(value)) for at, value in told] == [(10, 0), (30, 1)]
    assert told[-1][1] == [move_value(MOVE)]
    past.close()


def test_busiest_flows_of_a_time_and_how_many_there_were(folder: Path) -> None:
    past = Past(folder, view())
    answer = asyncio.run(past.flows(NOON_NS + 31 * S_NS + 5, 10))
    (flow,) = answer["flows"]
    assert (flow["text"], flow["path"], flow["rate_bps"]) == ("h1:5000 -> h2:6001", ["s1", "s2", "s3"], 1000)
    assert (answer["at_ns"], answer["kept"], answer["of"]) == (NOON_NS + 31 * S_NS, 1, 2)
    _, others = replayed(past, 31, 33)
    assert [value["flows"] for _, kind, value in others if kind == Frame.HEARTBEAT] == [{"shown": 1, "of": 2}] * 2
    with pytest.raises(UnavailableError, match="the history has no flows of that time"):
        asyncio.run(past.flows(NOON_NS + 1000 * S_NS, 10))
    past.close()


def test_span_without_rows_ends_at_once(folder: Path) -> None:
    past = Past(folder, view())
    used, _ = replayed(past, 100, 200)
    assert used == {}
    past.close()


def test_series_of_a_link_has_means_and_greatest(folder: Path) -> None:
    past = Past(folder, view())
    series = asyncio.run(past.series(LINK, NOON_NS, NOON_NS + 3000 * S_NS))
    assert series["step_ns"] == 10 * S_NS
    assert series["at_ns"] == [NOON_NS + 10 * S_NS * step for step in range(6)]
    assert series["utilisation"] == pytest.approx([0.45] * 6)
    assert series["utilisation_max"] == [0.9] * 6
    assert series["delay_ns"] == [7000.0] * 6
    assert series["delay_max_ns"] == [21_000] * 6
    assert series["loss"] == [None] * 6
    # A name that would end the string in SQL is a name.
    odd = asyncio.run(past.series(replace(LINK, src="s1' or true --"), NOON_NS, NOON_NS + 60 * S_NS))
    assert odd["at_ns"] == []
    past.close()


def test_bad_spans_and_folders_are_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    async def first(past: Past, begin_ns: int, end_ns: int, speed: float) -> None:
        async with aclosing(past.frames("build", begin_ns, end_ns, speed)) as told:
            await anext(told)

    past = Past(folder, view())
    for begin_ns, end_ns, speed in ((5, 5, 1.0), (9, 5, 1.0), (0, 32 * 86_400 * S_NS, 1.0), (0, 5, 0.0), (0, 5, 1e9)):
        with pytest.raises(InvalidError):
            asyncio.run(first(past, begin_ns, end_ns, speed))
    past.close()
    missing = Past(tmp_path / "none", view())
    with pytest.raises(UnavailableError, match="no such folder"):
        asyncio.run(first(missing, NOON_NS, NOON_NS + S_NS, 1.0))
    missing.close()
