"""Windows of several collectors, merged: the figures of one that took everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Counters
from collectors.decode.samples import LinkSample
from collectors.native.accumulator import NativeStore
from collectors.reference.accumulator import PlainStore
from collectors.settings import StateSettings
from collectors.state.accumulator import Store
from collectors.statistics.link_windows import LinkWindows, figures_of, merged
from collectors.statistics.window import WindowColumns
from collectors.values import DelaySource
from dataplane.topology.values import Topology
from tests.collectors.reports import build_topology

SETTINGS = StateSettings(window_ns=800_000_000, tx_window_ns=100_000_000)
TOPOLOGY = build_topology()
KEYS = list(TOPOLOGY.directed_links)
NOW_NS = 50_000_000_000

MakeStore = Callable[[Topology, StateSettings, Counters], Store]
both_stores = pytest.mark.parametrize("make", [PlainStore, NativeStore])
delays = st.none() | st.integers(0, 400) | st.integers(0, 10_000_000_000)
frames = st.none() | st.integers(0, 5000)


@st.composite
def samples(draw: st.DrawFn) -> LinkSample:
    """Return a sample within a second and a half, so that slots leave the window."""
    key = draw(st.sampled_from(KEYS[:3]))
    return LinkSample(
        link=key,
        node_id=next(iter(TOPOLOGY.switch_by_id)),
        received_ns=NOW_NS + draw(st.integers(0, 1_500)) * 1_000_000,
        node_time_ns=None,
        delay_ns=draw(delays),
        source=draw(st.sampled_from([DelaySource.HOP_LATENCY, DelaySource.PROBES, DelaySource.STAMPS])),
        queue_occupancy_frames=draw(frames),
        tx_bytes_per_window=draw(st.none() | st.integers(0, 1_000_000)),
        buffer_occupancy_frames=draw(frames),
    )


def taken(make: MakeStore, some: list[LinkSample]) -> LinkWindows:
    """Return the windows of a collector that took these samples."""
    store = make(TOPOLOGY, SETTINGS, Counters())
    for sample in some:
        store.take_sample(sample)
    return store.link_windows()


def assert_same(windows: LinkWindows, others: LinkWindows) -> None:
    for part in ("slots", "buckets", "readings"):
        one, other = getattr(windows, part), getattr(others, part)
        for field in fields(one):
            assert getattr(one, field.name).tolist() == getattr(other, field.name).tolist(), (part, field.name)


@both_stores
@given(data=st.data())
def test_shards_merge_to_what_one_collector_has(make: MakeStore, data: st.DataObject) -> None:
    # In order of time, one reading a moment: of two at once the later one counts, and shards do not know which that is.
    stream = sorted(data.draw(st.lists(samples(), max_size=24)), key=lambda sample: sample.received_ns)
    stream = list({(sample.link, sample.received_ns): sample for sample in stream}.values())
    shard = [data.draw(st.integers(0, 2)) for _ in stream]
    parts = [taken(make, [s for s, of in zip(stream, shard, strict=True) if of == number]) for number in range(3)]
    whole, together = taken(make, stream), merged(parts)
    assert_same(together, whole)
    assert_same(merged([merged(parts[1:]), parts[0]]), whole)
    assert together.delay_counts().tolist() == figures_of(whole).samples.tolist()


@both_stores
@given(data=st.data())
def test_figures_of_sums_are_those_of_the_window(make: MakeStore, data: st.DataObject) -> None:
    stream = data.draw(st.lists(samples(), max_size=24))
    store = make(TOPOLOGY, SETTINGS, Counters())
    for sample in stream:
        store.take_sample(sample)
    columns = figures_of(store.link_windows())
    for place, key in enumerate(KEYS):
        figures = store.link(key)
        for field in fields(WindowColumns):
            value = getattr(columns, field.name)[place]
            wanted = None if figures is None else getattr(figures, field.name)
            if field.name == "source":
                continue
            if figures is None and field.name == "samples":
                assert value == 0
            elif wanted is None:
                assert value == -1 or np.isnan(value), field.name
            else:
                assert value == wanted, field.name


def test_windows_of_other_settings_are_refused() -> None:
    parts = [taken(PlainStore, []), PlainStore(TOPOLOGY, StateSettings(), Counters()).link_windows()]
    with pytest.raises(ValueError, match="different topologies or settings"):
        merged(parts)
