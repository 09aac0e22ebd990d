"""Names that users choose for pods and containers: no name is taken for another thing's."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.pod import Container, PodSpec
from controller.workloads.nodes.deciding.orders import Place, order_of
from controller.workloads.nodes.guard.killing import kill_all, processes_in
from controller.workloads.nodes.runtimes.base import ContainerOrder
from tests.waiting import HANG_S

PLACE = Place("h1", "0123")


def order(pod: str, container: str = "main", **more: object) -> ContainerOrder:
    made = Container(name=container, image="i", **more)  # type: ignore[arg-type]
    return order_of(
        PLACE, Pod(metadata=Metadata(name=pod), spec=PodSpec(containers=(made,))), made, attempt=0, image="i"
    )


@pytest.mark.parametrize("name", ["conmon", "libpod-conmon", "pod-conmon"])
def test_a_pod_of_a_monitors_name_ends_with_the_lease(tmp_path: Path, name: str) -> None:
    parent = order(name).cgroup_parent
    assert parent is not None
    group = tmp_path / Path(parent).relative_to(PLACE.cgroup) / "0123abcd"
    group.mkdir(parents=True)
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            (group / "cgroup.procs").write_text(f"{process.pid}\n")
            assert processes_in((str(tmp_path),)) == {process.pid}
            kill_all((str(tmp_path),), time.monotonic())
            assert process.wait(HANG_S) != 0
        finally:
            process.kill()


def test_a_group_of_before_with_a_monitors_name_is_killed_too(tmp_path: Path) -> None:
    """Earlier managers made groups without a prefix, and an update adopts what runs in them."""
    (tmp_path / "conmon" / "0123abcd").mkdir(parents=True)
    (tmp_path / "conmon" / "0123abcd" / "cgroup.procs").write_text("99999999\n")
    (tmp_path / "conmon" / "conmon").mkdir()
    (tmp_path / "conmon" / "conmon" / "cgroup.procs").write_text("88888888\n")
    assert processes_in((str(tmp_path),)) == {99999999}


def test_no_two_containers_have_one_name() -> None:
    assert order("a-b", "c").name != order("a", "b-c").name
    assert order("a.b", "c").name != order("a", "b.c").name
