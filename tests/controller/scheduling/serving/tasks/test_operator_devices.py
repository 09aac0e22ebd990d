"""Devices of a task's operators chosen at placement, over the real API, by a profile with the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.task import OperatorCount
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.profiles import MEASURED, TaskProfileSettings
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.topology.values import DeviceKind
from tests.controller.acceleration.policies.test_tasks import HARDWARE
from tests.controller.scheduling.serving.tasks.conftest import DGEMMS, Play, Site, units


@pytest.mark.parametrize(("seconds", "chosen"), [(300.0, "gpu"), (0.3, "cpu")])
def test_task_goes_to_the_units_its_operators_gain_on(play: Play, tmp_path: Path, seconds: float, chosen: str) -> None:
    """Both centres' probes are equal, so the model decides: slow products gain on the GPU, fast ones do not."""
    path = tmp_path / "hardware.yaml"
    path.write_text(HARDWARE)
    policy = PolicySettings(policy="operator-devices", weight=100, settings={"hardware": str(path)})
    profile = TaskProfileSettings(name="accelerated", scores=(*MEASURED.scores, policy))
    product: OperatorCount = replace(DGEMMS[0], seconds=seconds)

    async def act(site: Site) -> None:
        with_gpu = replace(units("gpu"), unit=Request(devices=(DeviceNeed(kind=DeviceKind.GPU),)))
        centres = site.centre("plain"), site.centre("special", 1.0, with_gpu)
        async with site.running(*centres), site.scheduling(TaskSettings(profiles=(profile,))):
            await site.submit("job", task_type="products", profile="accelerated", operators=(product,))
            status = (await site.ended("job"))["job"].status
            assert status.unit == chosen
            (decision,) = [each for each in await site.decisions_about("job") if each.spec.outcome == "dispatched"]
            assert f"products on the {chosen}: " in str(decision.spec)

    play(act)


def test_the_network_between_a_centres_units_is_the_cost_maps(play: Play, tmp_path: Path) -> None:
    """Without telemetry paths are those of the topology: only 20 Mbit/s between the centre's hosts."""
    topology = tmp_path / "two.yaml"
    topology.write_text(
        "millrace: 1\nname: two\ndefaults: {access: {rate: 20 Mbit/s, delay: 1 us}}\n"
        "switches: [{name: s1}]\nhosts: [{name: h1, switch: s1}, {name: h2, switch: s1}]\n"
    )

    async def act(site: Site) -> None:
        centre = site.centre("both", hosts=("h1", "h2"))
        async with site.running(centre), site.scheduling(topology=str(topology)):
            await site.submit("job", task_type="products", profile="accelerated", units=(2,))
            await site.ended("job")
            (decision,) = [each for each in await site.decisions_about("job") if each.spec.outcome == "dispatched"]
            assert "0.02 Gbit/s between its units by the cost map" in str(decision.spec)

    play(act)
