"""Units of Slurm and Ray nodes, and parcels packed by jobs, without a cluster."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from controller.workloads.centres.engines.containers.engine import files_in
from controller.workloads.centres.engines.ray.client import Node as RayNode
from controller.workloads.centres.engines.ray.engine import divided as ray_divided
from controller.workloads.centres.engines.ray.engine import unit_types as ray_unit_types
from controller.workloads.centres.engines.ray.settings import RaySettings, RayUnit
from controller.workloads.centres.engines.slurm.answers import Node, jobs_in, nodes_in
from controller.workloads.centres.engines.slurm.commands import usage_in
from controller.workloads.centres.engines.slurm.engine import divided, generic_resources, unit_types
from controller.workloads.centres.engines.slurm.settings import SlurmSettings, SlurmUnit
from controller.workloads.centres.errors import EngineError

NODE = Node(name="n1", state="idle", cpus=8, idle_cpus=8, real_memory=8000, alloc_memory=0, partitions=("batch",))


def node(**more: Any) -> Node:
    return msgspec.structs.replace(NODE, **more)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("gpu:2", {"gpu": 2}),
        ("gpu:a100:2(S:0-1),gpu:t4:1(S:1),npu:4", {"gpu": 3, "npu": 4}),
        ("gpu:a100:1(IDX:0,2),npu:0", {"gpu": 1, "npu": 0}),
        ("craynetwork", {"craynetwork": 1}),
        ("bandwidth:2K", {"bandwidth": 2048}),
        ("(null)", {}),
    ],
)
def test_generic_resources_are_counted_by_kind(text: str, expected: dict[str, int]) -> None:
    assert generic_resources(text) == expected


def test_each_sort_of_nodes_in_a_partition_is_a_unit_type() -> None:
    nodes = (node(), node(name="n2", features="fast,avx", gres="gpu:a100:2", gres_used="gpu:a100:1(IDX:0)"))
    units = divided(SlurmSettings(unit_cpus=2), nodes)
    assert units == {
        "batch": SlurmUnit(partition="batch", cpus=2, memory_mib=2000),
        "batch-avx-fast-gpu": SlurmUnit(
            partition="batch", cpus=4, memory_mib=4000, features=("avx", "fast"), gres={"gpu": 1}
        ),
    }
    types = {kind.name: (kind.count, kind.free) for kind in unit_types(units, nodes)}
    # A unit without features takes any node of the partition.
    assert types == {"batch": (8, 8), "batch-avx-fast-gpu": (2, 1)}


@pytest.mark.parametrize(
    "closed",
    [{"state": "down"}, {"state_flags": ("DRAIN",)}, {"state_flags": ("NOT_RESPONDING",)}, {"partitions": ("other",)}],
)
def test_nodes_that_take_no_work_have_no_units(closed: dict[str, Any]) -> None:
    (kind,) = unit_types({"batch": SlurmUnit(partition="batch")}, (node(**closed),))
    assert (kind.count, kind.free) == (0, 0)


def test_own_jobs_are_not_others_work() -> None:
    busy = node(state="mixed", idle_cpus=3, alloc_memory=5000)
    (kind,) = unit_types({"batch": SlurmUnit(partition="batch", memory_mib=1000)}, (busy,), {"batch": 4})
    assert (kind.count, kind.free) == (8, 7)


def test_names_of_others_jobs_may_be_anything() -> None:
    answer = b'{"jobs": [{"job_id": 7, "job_state": "RUNNING", "name": "caf\xe9", "comment": "[]"}]}'
    (job,) = jobs_in(answer)
    assert (job.job_id, job.token) == (7, None)
    with pytest.raises(EngineError, match="squeue --json: invalid answer"):
        jobs_in(b"slurm_load_jobs error")


@pytest.mark.parametrize(("read", "key"), [(nodes_in, "nodes"), (jobs_in, "jobs")])
def test_slurm_errors_are_no_empty_list(read: Callable[[bytes], object], key: str) -> None:
    """As answered by Slurm 22.05, with exit code 0, while slurmctld is down."""
    error = {"error": "Unable to contact slurm controller\n(connect failure)", "errno": 1800}
    answer = {"meta": {}, "errors": [error, {"errno": -1}], key: []}
    with pytest.raises(EngineError, match=r"--json: Unable to contact slurm controller \(connect failure\); error -1$"):
        read(json.dumps(answer).encode())


def test_usage_of_a_jobs_steps_is_added_up() -> None:
    usage = usage_in("00:00:02|2|1200K\n1-00:00:01|1|3M\nnonsense\n")
    assert usage is not None
    assert (usage.cpu_s, usage.memory_peak_bytes) == (86_405.0, 3 << 20)
    assert usage_in("") is None


def test_ray_custom_resources_are_unit_types_with_cpus() -> None:
    nodes = (
        RayNode("a", "ALIVE", {"CPU": 8.0, "my_slot": 4.0, "memory": 1e9, "node:127.0.0.2": 1.0}),
        RayNode("b", "DEAD", {"CPU": 8.0}),
    )
    units = ray_divided(RaySettings(), nodes)
    assert units == {"cpu": RayUnit(), "my-slot": RayUnit(cpus=2.0, resources={"my_slot": 1.0})}
    # The dashboard writes my_slot as mySlot.
    types = ray_unit_types(units, nodes, {"a": {"CPU": 3.0, "mySlot": 1.0}}, {"my-slot": 1})
    assert {kind.name: (kind.count, kind.free) for kind in types} == {"cpu": (8, 5), "my-slot": (4, 3)}


@dataclass(frozen=True, slots=True)
class Wrong:
    """A log not written by boot.py."""

    log: bytes
    said: str


def parcel(content: bytes) -> bytes:
    return b"x\n-----BEGIN MILLRACE JOB-----\n" + base64.encodebytes(content) + b"-----END MILLRACE JOB-----\n"


def test_files_that_a_job_has_packed_stay_in_its_folder() -> None:
    names = ("good", "a/b", "../bad", "/bad", "a/../../bad", ".millrace/order.json", ".millrace/ended.json", "")
    packed = zlib.compress(json.dumps({name: base64.b64encode(b"x").decode() for name in names}).encode())
    files = files_in(parcel(packed), 1000)
    assert files is not None
    assert set(files) == {"good", "a/b", ".millrace/ended.json"}
    assert files_in(b"a log without any", 1000) is None


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(parcel(b"nonsense"), "cannot be unpacked"),
        Wrong(parcel(zlib.compress(b"[1]")), "cannot be unpacked"),
        Wrong(parcel(zlib.compress(b'{"a": 1}')), "cannot be unpacked"),
        Wrong(parcel(zlib.compress(b" " * 10_000_000)), "more than 1000 bytes"),
    ],
)
def test_invalid_parcels_are_one_line_errors(wrong: Wrong) -> None:
    with pytest.raises(EngineError, match=wrong.said):
        files_in(wrong.log, 1000)
