"""Drawn workloads: reproducible by seed, and as requested."""

from __future__ import annotations

import statistics

import pytest

from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.families import Batch, Layers, batch, layered_graph
from dataplane.topology.values import DeviceKind


def test_a_batch_has_the_rates_asked_for() -> None:
    tasks = batch(Batch(4000, rate_hz=2.0, mean_s=30.0, gpu_share=0.25), seed=1)
    assert tasks == batch(Batch(4000, rate_hz=2.0, mean_s=30.0, gpu_share=0.25), seed=1)
    assert tasks != batch(Batch(4000, rate_hz=2.0, mean_s=30.0, gpu_share=0.25), seed=2)
    assert tasks[-1].arrival_ns / 1e9 == pytest.approx(2000, rel=0.1)
    durations = [duration for task in tasks for duration in (task.duration_ns or {}).values()]
    assert statistics.mean(durations) / 1e9 == pytest.approx(30, rel=0.1)
    assert sum(bool(task.request.devices) for task in tasks) / 4000 == pytest.approx(0.25, abs=0.03)


def test_a_layered_graph_can_be_walked_layer_by_layer() -> None:
    graph = layered_graph(Layers(layers=5, width=6), seed=3)
    assert graph == layered_graph(Layers(layers=5, width=6), seed=3)
    assert len(graph.order) == 30
    assert all(edge.dst.startswith(str(int(edge.src[0]) + 1)) for edge in graph.edges)
    assert all(graph.before[task.name] for task in graph.tasks if not task.name.startswith("0-"))
    assert any(DeviceKind.GPU in (task.duration_ns or {}) for task in graph.tasks)


def test_families_that_cannot_be_are_refused() -> None:
    with pytest.raises(WorkloadError, match="invalid batch: tasks must be between"):
        Batch(0)
    with pytest.raises(WorkloadError, match="invalid layers: layers must be between"):
        Layers(layers=0)
