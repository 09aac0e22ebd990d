"""Traces as files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from controller.cluster.hardware import WHOLE, Cluster, Request
from controller.cluster.workloads.values import Task
from controller.common.errors import SchedulerError
from controller.scheduling.pods import PodProfile, PodProfileSettings
from controller.scheduling.simulation.export import write_trace
from controller.scheduling.simulation.simulator import simulate
from controller.scheduling.simulation.trace import Trace
from controller.scheduling.simulation.workload import Workload
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import node


def trace() -> Trace:
    tasks = (
        Task("pair", 5, Request(WHOLE), {DeviceKind.CPU: 7}, instances=2),
        Task("huge", 6, Request(99 * WHOLE), {DeviceKind.CPU: 7}),
    )
    return simulate(Cluster.of([node("a"), node("b")]), Workload(tasks), PodProfile.of(PodProfileSettings()))


def test_the_same_in_all_three(tmp_path: Path) -> None:
    for suffix in ("csv", "json", "parquet"):
        write_trace(trace(), tmp_path / f"trace.{suffix}")
    from_json = json.loads((tmp_path / "trace.json").read_text())
    assert parquet.read_table(tmp_path / "trace.parquet").to_pylist() == from_json
    with (tmp_path / "trace.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    assert [row["nodes"] for row in from_csv] == [" ".join(row["nodes"]) for row in from_json]
    pair, huge = from_json
    assert (pair["submitted_ns"], pair["started_ns"], pair["finished_ns"], pair["state"]) == (5, 5, 12, "finished")
    assert sorted(pair["nodes"]) == ["a", "b"]
    assert (huge["started_ns"], huge["state"], from_csv[1]["started_ns"]) == (None, "refused", "")


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match=r"trace\.txt: the name of a trace file must end in \.csv"):
        write_trace(trace(), tmp_path / "trace.txt")
    with pytest.raises(SchedulerError, match="No such file or directory"):
        write_trace(trace(), tmp_path / "no" / "trace.csv")
