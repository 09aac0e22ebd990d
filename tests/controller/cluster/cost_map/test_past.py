"""Cost maps of moments and windows of a history, compared with the snapshots it was written from."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.errors import HistoryError
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.values import LinkState, Snapshot
from controller.cluster.cost_map import CostMap, CostModel
from controller.cluster.cost_map.past import snapshot_at, snapshot_over
from dataplane.topology.values import LinkKey
from tests.controller.cluster.cost_map.fabrics import fabric, link_state

S = 1_000_000_000
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPOLOGY = fabric("leaf-spine:spines=2,leaves=2,hosts=2")
LINK = LinkKey("leaf1", "spine1")


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, list[Snapshot]]:
    """Return a history of four seconds, and its snapshots."""
    rng, folder = random.Random(3), tmp_path / "history"
    settings = HistorySettings(folder=str(folder))
    rows, writer = RowMaker(TOPOLOGY, settings), HistoryWriter(settings)
    leaving = [key for key in TOPOLOGY.directed_links if key.src in TOPOLOGY.switch]
    snapshots = []
    for second in range(4):
        links = {key: measured(key, rng) for key in leaving}
        snapshots.append(Snapshot(second * S, links, {}, {}))
        wall_ns = int((START + timedelta(seconds=second)).timestamp()) * S
        writer.write(rows.batches(Observation(wall_ns, snapshots[-1], {})), wall_ns)
    writer.close()
    return folder, snapshots


def measured(key: LinkKey, rng: random.Random) -> LinkState:
    return replace(link_state(TOPOLOGY, key, rng), loss=rng.choice((None, rng.random())), age_ns=0)


def test_a_moment_gives_the_map_that_was(written: tuple[Path, list[Snapshot]]) -> None:
    folder, snapshots = written
    model = CostModel(TOPOLOGY)
    for second in (0, 2, 3):
        costs = CostMap.of(model, snapshot_at(folder, START + timedelta(seconds=second, milliseconds=300)))
        expected = CostMap.of(model, snapshots[second])
        for name in ("delay_ns", "available_bps", "loss_ppb", "measured"):
            assert (getattr(costs.pairs, name) == getattr(expected.pairs, name)).all(), name
        assert costs.cost("h1", "h3").age_ns == 300_000_000


def test_a_window_gives_means_by_samples(written: tuple[Path, list[Snapshot]]) -> None:
    folder, snapshots = written
    link = snapshot_over(folder, START + timedelta(seconds=1), START + timedelta(seconds=3)).links[LINK]
    both = [snapshot.links[LINK] for snapshot in snapshots[1:3]]
    samples = sum(state.samples for state in both)
    assert link.delay_mean_ns == round(sum(state.delay_mean_ns * state.samples for state in both) / samples)
    assert link.available_bps == round(sum(state.available_bps for state in both) / 2)
    assert link.samples == samples


def test_times_without_history_are_refused(written: tuple[Path, list[Snapshot]]) -> None:
    folder, _ = written
    with pytest.raises(HistoryError, match="no link figures at 2026-03-01T13"):
        snapshot_at(folder, START + timedelta(hours=1))
    with pytest.raises(HistoryError, match="no link figures from"):
        snapshot_over(folder, START - timedelta(hours=2), START - timedelta(hours=1))
    with pytest.raises(HistoryError, match="is empty"):
        snapshot_over(folder, START, START)
    with pytest.raises(HistoryError, match="has no time zone"):
        snapshot_at(folder, START.replace(tzinfo=None))
