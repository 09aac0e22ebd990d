"""Replays of published traces; skipped where they are missing."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from controller.cluster.hardware import WHOLE, Cluster, Node
from controller.cluster.workloads.files import openb_nodes, openb_pods, spotri_graph, swf_jobs
from controller.scheduling.pods import PodProfile, PodProfileSettings
from controller.scheduling.simulation.simulator import simulate
from controller.scheduling.simulation.summary import summary_of
from controller.scheduling.simulation.workload import GraphArrival, Workload
from tests.controller.scheduling.pods.clusters import node

DATA = Path(__file__).parents[5] / "shared" / "data"
DEFAULT = PodProfile.of(PodProfileSettings())


def given(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is missing")
    return DATA / name


def test_openb() -> None:
    cluster = Cluster.of(openb_nodes(given("openb_node_list_all_node.csv")))
    pods = tuple(islice(openb_pods(given("openb_pod_list_default.csv")), 1500))
    trace = simulate(cluster, Workload(pods), DEFAULT)
    summary = summary_of(trace)
    assert summary.states["finished"] + summary.left_out.total() == 1500
    assert summary.left_out.total() == sum(pod.duration_ns is None for pod in pods)
    # Run times are as recorded; only the starts differ.
    ran_ns = {pod.name: next(iter(pod.duration_ns.values())) for pod in pods if pod.duration_ns is not None}
    for record in trace.records():
        assert record.finished_ns is not None
        assert record.started_ns is not None
        assert record.finished_ns - record.started_ns == ran_ns[record.name]


def test_batch_jobs_never_hold_more_than_there_is() -> None:
    jobs = tuple(islice(swf_jobs(given("lublin_256.swf")), 200))
    trace = simulate(Cluster.of(Node(f"n{n}", 16 * WHOLE) for n in range(16)), Workload(jobs), DEFAULT)
    assert summary_of(trace).states["finished"] == 200
    assert summary_of(trace).utilisation["cpu"] < 1


def test_a_graph_with_times_on_two_kinds_of_devices() -> None:
    graph = spotri_graph(given("hetero_spotri_spotri-320-10.txt"))
    cluster = Cluster.of(node(f"n{n}", cores=8, gpus=["T4"]) for n in range(4))
    trace = simulate(cluster, Workload(graphs=(GraphArrival(graph),)), DEFAULT)
    assert summary_of(trace).states["finished"] == len(graph.tasks)
    assert {"cpu", "gpu"} == set(trace.kinds)
