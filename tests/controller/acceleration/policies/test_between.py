"""Units of a centre are connected as the cost map says: a loaded network keeps operators on the CPU."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.network.timing import timed, tree_over
from controller.acceleration.policies.between import MOST_HOSTS, UnitNetworks
from controller.acceleration.policies.tasks import OperatorDevices
from controller.cluster.cost_map import CostMap, Load
from controller.scheduling.framework.plugins import TASKS, make_policy
from controller.scheduling.tasks.profiles import ACCELERATED, TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from controller.scheduling.tasks.values import CentreState, PendingTask
from dataplane.topology.families import from_text
from dataplane.topology.file import loads
from dataplane.topology.values import DeviceKind, LinkKey, Topology
from tests.controller.acceleration.policies.test_tasks import GEMM, WITH_GPU, Asked, asked, counts

HARDWARE = "millrace: 1\npreset: 2\naccelerators: [{kind: gpu, parallelism: 1000}]\n"
RACKS = loads(
    """\
millrace: 1
name: racks
defaults: {access: {rate: 100 Mbit/s, delay: 10 us}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s2}, {name: h4, switch: s1}]
links: [{a: s1, b: s2, rate: 100 Mbit/s, delay: 1 ms}]
"""
)
QUIET = CostMap.of(RACKS, Snapshot(0, {}, {}, {}))
LOADED = QUIET.with_loads([Load("h1", "h3", 95_000_000), Load("h3", "h1", 95_000_000)])
DOWN = LinkStatus(LinkCondition.DOWN, 0)
APART = CostMap.of(RACKS, Snapshot(0, {}, {}, {}, statuses={LinkKey("s1", "s2"): DOWN, LinkKey("s2", "s1"): DOWN}))


def policy_in(folder: Path, **more: object) -> OperatorDevices:
    path = folder / "hardware.yaml"
    path.write_text(HARDWARE)
    made = make_policy(TASKS, "operator-devices", {"hardware": str(path), **more}, ("points", "reason"))
    assert isinstance(made, OperatorDevices)
    return made


def question(costs: CostMap | None, *hosts: str, units: int = 2) -> Asked:
    base = asked(PendingTask("t", "train", operators=counts(GEMM)), WITH_GPU, units=units)
    centre = CentreState(WITH_GPU.centre, hosts=hosts, is_probed=True)
    view = dataclasses.replace(base.timed.view, costs=costs, centres={centre.name: centre})
    return base._replace(timed=dataclasses.replace(base.timed, view=view))


def test_quiet_network_gives_the_gpu_a_loaded_one_the_cpu(tmp_path: Path) -> None:
    policy = policy_in(tmp_path)
    for costs, device, rate in ((QUIET, DeviceKind.GPU, "0.1 Gbit/s"), (LOADED, DeviceKind.CPU, "0.005 Gbit/s")):
        of = question(costs, "h1", "h3")
        (choice,) = policy.operator_devices(*of, 0)
        assert choice.device is device
        assert f"{rate} between its units by the cost map" in policy.reason(*of, 0)
    on_one_rack = policy.reason(*question(LOADED, "h2", "h4"), 0)
    assert "product on the gpu" in on_one_rack


@pytest.mark.parametrize(
    ("costs", "hosts", "units"),
    [(None, ("h1", "h3"), 2), (LOADED, ("h1",), 2), (LOADED, ("h1", "elsewhere"), 2), (LOADED, ("h1", "h3"), 1)],
)
def test_configured_rate_counts_without_a_cost_map_of_the_hosts(
    tmp_path: Path, costs: CostMap | None, hosts: tuple[str, ...], units: int
) -> None:
    of = question(costs, *hosts, units=units)
    assert "product on the gpu" in policy_in(tmp_path).reason(*of, 0)
    slow = policy_in(tmp_path, rate="1 kbit/s")
    assert ("product on the cpu" in slow.reason(*of, 0)) == (units > 1)


def test_unconnected_units_get_no_points_and_a_reason(tmp_path: Path) -> None:
    policy, of = policy_in(tmp_path), question(APART, "h1", "h3")
    assert policy.points(*of, np.arange(1)).tolist() == [0]
    assert "no path between them" in policy.reason(*of, 0)
    assert policy.operator_devices(*of, 0) == ()


def test_rounds_are_those_of_a_tree_over_near_hosts() -> None:
    topology: Topology = from_text("fat-tree:k=4")
    costs = CostMap.of(topology, Snapshot(0, {}, {}, {}))
    hosts = [host.name for host in topology.hosts]
    networks = UnitNetworks(Hardware(fan_in=3), 1e9)
    network = networks.of(costs, tuple(reversed(hosts)), 8).network
    expected = timed(costs, tree_over(costs, hosts[:8], 3))
    assert network is not None
    assert network.rounds is not None
    assert [part.s_per_gb for part in network.rounds] == pytest.approx(
        [part.s_per_gb for part in expected.rounds], rel=0.024
    )
    assert network.rate_gbit_per_s == pytest.approx(expected.rate_gbit_per_s, rel=0.024)
    assert networks.of(costs, tuple(reversed(hosts)), 8).network is network
    of_more = networks.of(costs, hosts, 64).network
    assert of_more is not None
    assert of_more.rounds is None
    assert math.isfinite(of_more.rate_gbit_per_s)
    assert len(hosts) >= MOST_HOSTS


def test_a_profile_that_is_there_by_default_has_the_policy() -> None:
    assert ACCELERATED in TaskSettings().profiles
    profile = TaskProfile.of(ACCELERATED)
    (policy,) = (score.policy for score in profile.scores if score.name == "operator-devices")
    assert isinstance(policy, OperatorDevices)
    of = question(None)
    (choice,) = policy.operator_devices(*of, 0)
    assert choice.device is DeviceKind.GPU
    plain = of._replace(task=PendingTask("t", "plain"))
    assert policy.operator_devices(*plain, 0) == ()
