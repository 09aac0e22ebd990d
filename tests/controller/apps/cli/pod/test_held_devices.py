"""`millrace pod top`: pods and pools of units count as holders of a device."""

from __future__ import annotations

from controller.apiserver.resources import Metadata, Node
from controller.apiserver.resources.hardware import Device, DeviceShare, Hardware
from controller.apiserver.resources.node import NodeSpec, PoolShare, Share
from controller.apps.cli.pod.top import device_cells
from dataplane.topology.values import DeviceKind


def test_units_of_pools_count_on_a_device() -> None:
    hardware = Hardware(cpu_milli=8000, devices=(Device(number=0, kind=DeviceKind.GPU),))
    share = Share(pod="a", uid="1", epoch=1, devices=(DeviceShare(number=0, thousandths=300),))
    pool = PoolShare(pool="tenths", devices=(DeviceShare(number=0, thousandths=500),))
    node = Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=hardware), shares=(share,), pools=(pool,))
    (cells,) = device_cells(node)
    assert cells[6] == 80.0
