"""States of links as columns: the same as link by link, and of the time at which they were asked for."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from collectors.counters import Counters
from collectors.reference.accumulator import PlainStore
from collectors.reference.builder import PlainStateBuilder
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.state.builder import NetworkStateBuilder, StateBuilder
from collectors.state.link_states import LinkStates
from collectors.statistics.columns import UNKNOWN
from collectors.statistics.window import SOURCES, WindowColumns, WindowFigures
from collectors.values import DropRecord, LinkState
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.reports import build_topology

NOW_NS = 10_000_000_000
TOPOLOGY = build_topology(synchronised=False)
KEYS = list(TOPOLOGY.directed_links)

counts = st.integers(0, 10_000_000_000)
frames = st.none() | st.floats(0, 1e6)


@st.composite
def window_figures(draw: st.DrawFn) -> WindowFigures:
    samples = draw(st.integers(0, 3) | st.integers(0, 2**32))
    delays = [draw(counts) if samples else None for _ in range(5)]
    return WindowFigures(
        delay_mean_ns=delays[0],
        delay_p50_ns=delays[1],
        delay_p99_ns=delays[2],
        delay_ewma_ns=delays[3],
        delay_max_ns=delays[4],
        source=draw(st.sampled_from(SOURCES)),
        samples=samples,
        queue_occupancy_frames=draw(frames),
        tx_bytes_per_window=draw(st.none() | st.integers(0, 2**32 - 1)),
        newest_ns=draw(st.integers(0, 2 * NOW_NS)),
        buffer_occupancy_frames=draw(frames),
        newest_delay_ns=draw(counts) if samples else None,
        newest_queue_frames=draw(frames),
        newest_tx_bytes=draw(st.none() | st.integers(0, 2**32 - 1)),
    )


class FiguresStore(PlainStore):
    """Any figures of links, one by one or as columns."""

    def __init__(self, figures: list[WindowFigures | None]) -> None:
        super().__init__(TOPOLOGY, StateSettings(), Counters())
        self._figures = figures

    def link(self, link: LinkKey) -> WindowFigures | None:
        return self._figures[KEYS.index(link)]

    def changed_links(self) -> NDArray[np.int64]:
        return np.arange(len(KEYS))

    def link_columns(self, places: NDArray[np.int64]) -> WindowColumns:
        return WindowColumns(*(self._column(field.name)[places] for field in fields(WindowColumns)))

    def _column(self, name: str) -> NDArray[Any]:
        if name == "source":
            return np.array([0 if f is None else SOURCES.index(f.source) for f in self._figures])
        values = [None if f is None else getattr(f, name) for f in self._figures]
        if name.endswith("frames"):
            return np.array(values, np.float64)
        return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def builder(figures: list[WindowFigures | None], tx_window_ns: int, *, columns: bool) -> StateBuilder:
    clock = VirtualClock()
    clock.advance_to(NOW_NS)
    store, settings, counters = FiguresStore(figures), StateSettings(tx_window_ns=tx_window_ns), Counters()
    if not columns:
        return PlainStateBuilder(TOPOLOGY, clock, settings, counters, store)
    return NetworkStateBuilder(TOPOLOGY, clock, settings, counters, store, PlainStitcher(TOPOLOGY, settings, counters))


@given(
    st.lists(st.none() | window_figures(), min_size=len(KEYS), max_size=len(KEYS)),
    st.sampled_from([1, 100, 65_536_000, 9_000_000_000]),
    st.lists(st.tuples(st.integers(1, 4), st.none() | st.integers(0, 3), st.booleans()), max_size=3),
)
def test_columns_say_what_links_say_one_by_one(
    figures: list[WindowFigures | None], tx_window_ns: int, drops: list[tuple[int, int | None, bool]]
) -> None:
    links = []
    for columns in (False, True):
        state = builder(figures, tx_window_ns, columns=columns)
        for node_id, port, tracked in drops:
            reason = DropReason.QUEUE_FULL
            state.drop([DropRecord(NOW_NS, node_id, 1, node_id, 1, port, 0, reason, None, None, tracked)])
        links.append(state.snapshot().links)
    plain, lazy = links
    assert isinstance(lazy, LinkStates)
    assert {key: lazy[key] for key in KEYS} == plain
    assert lazy == plain
    assert repr(lazy) == repr(plain)
    for field in fields(LinkState)[1:]:
        if field.name not in {"source", "loss_source", "load_source"}:
            values = [getattr(state, field.name) for state in plain.values()]
            numbers = [math.nan if value is None else float(value) for value in values]
            assert lazy.column(field.name).tolist() == pytest.approx(numbers, rel=0, nan_ok=True)


def test_an_unknown_link_is_not_there() -> None:
    links = builder([None] * len(KEYS), 100, columns=True).snapshot().links
    assert LinkKey("s1", "nowhere") not in links
    with pytest.raises(KeyError):
        links[LinkKey("s1", "nowhere")]
    assert len(links) == len(KEYS)


def test_whoever_changes_a_copy_has_all_links() -> None:
    links = builder([None] * len(KEYS), 100, columns=True).snapshot().links
    dead = replace(links[KEYS[0]], loss=1.0)
    changed = {**links, KEYS[0]: dead}
    assert list(changed) == KEYS
    assert [key for key in KEYS if changed[key] != links[key]] == KEYS[:1]
