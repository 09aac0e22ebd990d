"""Samples from results and from a collector's history: times of network kernels, free bandwidth on paths."""

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
from collectors.values import Snapshot
from controller.apiserver.resources import Metadata, ProbeResult
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.probing.errors import ProbeError
from controller.probing.hours import PathSample, probe_samples
from controller.probing.hours.telemetry import path_samples, ways
from controller.probing.values import Implementation, KernelUse, Library, ProbeTask
from dataplane.topology.file import load_topology
from dataplane.topology.values import DeviceKind, LinkKey
from tests.controller.cluster.cost_map.fabrics import fabric, link_state

START = datetime(2026, 1, 2, tzinfo=UTC)
S = 1_000_000_000


def use(name: str, kernel: str, repetitions: int) -> KernelUse:
    code = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
    return KernelUse(name, kernel, 1, (), repetitions, repetitions, code, 1e-6)


PROBE = ProbeTask("p", "network", (use("pull", "network-pull", 2), use("gemm", "dgemm", 3)))


def result(time_s: int, *runs: ProbeRun) -> ProbeResult:
    return ProbeResult(
        metadata=Metadata(name=f"r{time_s}", created_ns=time_s * S),
        spec=ProbeResultSpec(probe="p", centre="c"),
        status=ProbeResultStatus(runs=runs),
    )


def test_network_kernels_are_distinguished_from_compute_kernels() -> None:
    run = ProbeRun(
        units=1, run_times_s=(1.0, 1.2), kernels_s={"pull": (0.2, 0.3), "gemm": (0.1, 0.2)}, started_ns=50 * S
    )
    (sample,) = probe_samples([result(60, run)], {"p": PROBE})
    assert sample.time_s == 50
    assert (sample.run_time_s, sample.network_s, sample.compute_s) == pytest.approx((1.1, 0.5, 0.45))
    (unknown,) = probe_samples([result(60, run)], {})
    assert (unknown.network_s, unknown.compute_s) == (None, None)


def test_samples_use_the_most_measured_count_without_failed_runs() -> None:
    one, two = ProbeRun(units=1, run_times_s=(1.0,)), ProbeRun(units=2, run_times_s=(0.6,))
    hung = ProbeRun(units=2, run_times_s=(), outcome="hang")
    results = [result(30, two), result(10, one, two), result(20, two, hung)]
    assert [sample.time_s for sample in probe_samples(results, {})] == [10, 20, 30]
    assert [sample.run_time_s for sample in probe_samples(results, {}, units=1)] == [1.0]
    assert probe_samples([], {}) == ()


def test_the_way_to_a_centre_is_its_links() -> None:
    topology = load_topology("abilene")
    first, last = topology.hosts[0].name, topology.hosts[-1].name
    (path,) = ways(topology, first, last)
    assert (path[0].src, path[-1].dst) == (first, last)
    with pytest.raises(ProbeError, match="no host nowhere"):
        ways(topology, first, "nowhere")
    with pytest.raises(ProbeError, match="no path from"):
        ways(topology, first, first)


def test_history_gives_free_bandwidth_and_delay_of_paths(tmp_path: Path) -> None:
    topology, rng = fabric("leaf-spine:spines=2,leaves=2,hosts=2"), random.Random(3)
    settings = HistorySettings(folder=str(tmp_path / "history"))
    rows, writer = RowMaker(topology, settings), HistoryWriter(settings)
    leaving = [key for key in topology.directed_links if key.src in topology.switch]
    for second in range(4):
        free_bps = 50_000_000 if second < 2 else 10_000_000
        links = {
            key: replace(
                link_state(topology, key, rng),
                available_bps=free_bps,
                delay_mean_ns=1000,
                samples=5,
                loss=None,
                age_ns=0,
            )
            for key in leaving
        }
        links[LinkKey("leaf1", "spine1")] = replace(links[LinkKey("leaf1", "spine1")], available_bps=free_bps // 2)
        wall_ns = int((START + timedelta(seconds=second)).timestamp()) * S
        writer.write(rows.batches(Observation(wall_ns, Snapshot(second * S, links, {}, {}), {})), wall_ns)
    writer.close()
    paths = ways(topology, "h1", "h3")
    assert len(paths) == 2
    samples = path_samples(tmp_path / "history", paths, START, START + timedelta(seconds=4), step_s=2)
    start_s = START.timestamp()
    assert samples == (PathSample(start_s, 25e6, 3000), PathSample(start_s + 2, 5e6, 3000))
    assert path_samples(tmp_path / "history", paths, START + timedelta(days=1), START + timedelta(days=2)) == ()
    with pytest.raises(HistoryError, match="no such folder"):
        path_samples(tmp_path / "nowhere", paths, START, START)
    with pytest.raises(ProbeError, match="no time zone"):
        path_samples(tmp_path / "history", paths, START.replace(tzinfo=None), START)
