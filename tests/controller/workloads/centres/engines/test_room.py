"""Units that fit on a node: all pods' shares of a device count, and those of unit pools."""

from __future__ import annotations

from controller.apiserver.resources import Metadata, Node
from controller.apiserver.resources.hardware import Device, DeviceNeed, DeviceShare, Hardware, Request
from controller.apiserver.resources.node import NodeSpec, PoolShare, Share
from controller.workloads.centres.engines.containers.settings import ContainerUnit
from controller.workloads.centres.engines.containers.units import room
from dataplane.topology.values import DeviceKind


def share(pod: str, thousandths: int) -> Share:
    return Share(pod=pod, uid=pod, epoch=1, devices=(DeviceShare(number=0, thousandths=thousandths),))


def node(*shares: Share, pools: tuple[PoolShare, ...] = ()) -> Node:
    hardware = Hardware(cpu_milli=8000, devices=(Device(number=0, kind=DeviceKind.GPU),))
    return Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=hardware), shares=shares, pools=pools)


TENTH = ContainerUnit(request=Request(devices=(DeviceNeed(kind=DeviceKind.GPU, thousandths=100),)))
POOL = PoolShare(pool="tenths", devices=(DeviceShare(number=0, thousandths=500),))


def test_all_shares_of_a_device_count() -> None:
    assert room(TENTH, node(), others_of=()) == 10
    assert room(TENTH, node(share("a", 300), share("b", 100)), others_of=()) == 6
    assert room(TENTH, node(share("a", 300), share("b", 100)), others_of={"a"}) == 9


def test_units_of_a_pool_are_not_free() -> None:
    assert room(TENTH, node(share("a", 300), pools=(POOL,)), others_of={"a"}) == 5
    assert room(TENTH, node(pools=(POOL,))) == 10
