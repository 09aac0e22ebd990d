"""A task's program gets the device of each of its operators: real service, scheduler, agent, probes and jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.resources import Task
from controller.apiserver.resources.operator_graphs import operators_of
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase
from controller.cluster.operators import Operator, OperatorGraph
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.profiles import MEASURED, TaskProfileSettings
from controller.scheduling.tasks.settings import TaskSettings
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.settings import ControlGroups, TrialSettings, UnitSettings
from controller.workloads.centres.units import Found, FoundDevice
from dataplane.topology.values import DeviceKind, NumberFormat
from tests.controller.acceleration.policies.test_tasks import HARDWARE
from tests.controller.scheduling.serving.tasks.conftest import Site
from tests.controller.workloads.centres.centre_world import CentreWorld, play_centre, script
from tests.sandboxes import local_settings

UNITS = (UnitSettings(name="fast", devices=1, device_kind=DeviceKind.DPU), UnitSettings(name="plain"))
"""Probes on units with a GPU would need a real one; kernels missing for a DPU run on the CPU."""
PRODUCT = Operator.of("product", "gemm", {"m": 512, "n": 512, "k": 512}, NumberFormat.FP64, 3000)
TRIFLE = Operator.of("a trifle: 'é' $(id)", "gemm", {"m": 64, "n": 64, "k": 64}, NumberFormat.FP64)
TAKEN_S = {PRODUCT.name: 300.0, TRIFLE.name: 1e-6}
TELLS = 'printf %s "$MILLRACE_OPERATOR_DEVICES" > "$TOLD/$MILLRACE_TASK"'


def engine_with_dpu(world: CentreWorld) -> LocalEngine:
    """Return an engine that assumes a DPU in the machine."""
    writable = (str(world.folder / "told"),)
    local = local_settings(control_groups=ControlGroups.NEVER, look_s=0.05, writable=writable)
    cores = tuple(sorted(os.sched_getaffinity(0)))[:2]
    hardware = Found(cores, 1000 * len(cores), 1 << 30, (FoundDevice(0, DeviceKind.DPU, "BlueField"),))
    return LocalEngine(local, UNITS, world.folder / "engine", "/millrace-test", lambda _: hardware)


def profile_in(folder: Path) -> TaskProfileSettings:
    path = folder / "hardware.yaml"
    path.write_text(HARDWARE.replace("gpu", "dpu"))
    policy = PolicySettings(policy="operator-devices", weight=4, settings={"hardware": str(path)})
    return TaskProfileSettings(name="with-devices", scores=(*MEASURED.scores, policy))


def test_program_reads_its_operator_devices_from_the_environment(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    told.chmod(0o777)
    operators = operators_of(OperatorGraph("job", (PRODUCT, TRIFLE)), TAKEN_S)

    async def act(world: CentreWorld) -> None:
        site = Site(world.client, world.settings.api or "")
        scheduling = site.scheduling(TaskSettings(profiles=(MEASURED, profile_in(tmp_path))))
        async with world.agent(engine=engine_with_dpu(world)), scheduling:
            await world.centre()
            for name, profile in (("with", "with-devices"), ("without", "measured")):
                spec = script(TELLS, task_type="products", operators=operators, profile=profile)
                own = {"TOLD": str(told), "MILLRACE_OPERATOR_DEVICES": "forged"}
                await site.submit(
                    name,
                    program=replace(spec.program, environment=own),
                    **{part: getattr(spec, part) for part in ("task_type", "operators", "profile")},
                )
                ended = await world.until(name, *TASK_ENDED)
                assert ended.status.phase is TaskPhase.SUCCEEDED, ended.status.reasons
        status = (await world.client.of(Task).get("with")).status
        assert status.unit == "fast"
        devices = {choice.operator: choice.device for choice in status.operator_devices}
        assert devices == {PRODUCT.name: DeviceKind.DPU, TRIFLE.name: DeviceKind.CPU}
        assert json.loads((told / "with").read_text()) == {PRODUCT.name: "dpu", TRIFLE.name: "cpu"}
        assert (told / "without").read_text() == "{}"

    play_centre(tmp_path, act, units=UNITS, trial=TrialSettings(kernels=("dgemm",)))
