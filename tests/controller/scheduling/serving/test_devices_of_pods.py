"""A pod's programs get the device of each of its operators: real service, scheduler and node manager."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.hardware import DeviceNeed, DeviceShare, Request
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.operator_graphs import operators_of
from controller.apiserver.resources.pod import Container, Location, Phase, PodSpec
from controller.cluster.operators import OperatorGraph
from controller.scheduling.pods.profiles import ACCELERATED, PodProfileSettings
from controller.scheduling.process import serve
from controller.scheduling.settings import SchedulerSettings
from dataplane.topology.values import DeviceKind
from tests.controller.acceleration.policies.test_tasks import GEMM, MEASURED_S
from tests.controller.workloads.nodes.memory_runtime import MemoryRuntime
from tests.controller.workloads.nodes.node_world import World, play

TOPOLOGY = """\
millrace: 1
name: one
switches: [{name: s1}]
hosts:
- name: h1
  switch: s1
  cores: 4
  memory: [{kind: dram, capacity: 8 GiB}]
  devices: [{kind: gpu, memory: 8 GiB}, {kind: npu}]
"""
PROFILES = (PodProfileSettings(), ACCELERATED)
FORGED = {"MILLRACE_OPERATOR_DEVICES": "forged"}


def wanted(profile: str) -> PodSpec:
    return PodSpec(
        containers=(Container(name="c", image="image", environment=FORGED),),
        request=Request(cpu_milli=1000, devices=(DeviceNeed(kind=DeviceKind.GPU, thousandths=500),)),
        operators=operators_of(OperatorGraph("job", (GEMM,)), MEASURED_S),
        profile=profile,
    )


def test_container_gets_operator_devices_only_from_its_binding(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(TOPOLOGY)
    chosen = (OperatorDevice(operator="product", device=DeviceKind.GPU),)
    runtime = MemoryRuntime()

    async def act(world: World) -> None:
        stop = asyncio.Event()
        scheduling = asyncio.create_task(serve(SchedulerSettings(api=world.served.socket, profiles=PROFILES), stop))
        async with world.managing(runtime, world.settings(topology=str(tmp_path / "one.yaml"))):
            for name, profile in (("told", "accelerated"), ("not", "default")):
                made = Pod(metadata=Metadata(name=name), spec=wanted(profile))
                forged = replace(made, status=replace(made.status, operator_devices=chosen))
                assert (await world.client.of(Pod).create(forged)).status.operator_devices == ()
                pod = await world.in_phase(name, Phase.RUNNING)
                text = runtime.orders[pod.status.containers[0].runtime_id].environment["MILLRACE_OPERATOR_DEVICES"]
                if name == "told":
                    assert [replace(each, seconds=None) for each in pod.status.operator_devices] == [*chosen]
                    assert json.loads(text) == {"product": "gpu"}
                    continue
                # Without a decision the container's own variable stays.
                assert (pod.status.operator_devices, text) == ((), "forged")
                anew = replace(pod.metadata, revision=0)  # whatever its manager has written meanwhile
                told = replace(pod, metadata=anew, status=replace(pod.status, operator_devices=chosen))
                assert (await world.client.of(Pod).replace_status(told)).status.operator_devices == ()
            # Item 9: a location by kind of device brings the device, without `devices`.
            container = Container(name="c", image="image")
            located = PodSpec(containers=(container,), location=Location(device_kind=DeviceKind.NPU))
            await world.client.of(Pod).create(Pod(metadata=Metadata(name="located"), spec=located))
            pod = await world.in_phase("located", Phase.RUNNING)
            assert pod.status.devices == (DeviceShare(number=1),)
            assert runtime.orders[pod.status.containers[0].runtime_id].environment["MILLRACE_DEVICES"] == "1"
        stop.set()
        await scheduling

    play(tmp_path, act)
