"""Hardware of nodes and shares held of it: cores, memory, devices in thousandths; fitting of requests."""

from __future__ import annotations

from controller.cluster.hardware.cluster import Cluster
from controller.cluster.hardware.fitting import Missing, Refusal, choose, fits
from controller.cluster.hardware.fragments import fragments
from controller.cluster.hardware.nodes import node_of, node_of_machine, nodes_of
from controller.cluster.hardware.requests import ACCELERATORS, WHOLE, DeviceRequest, Request
from controller.cluster.hardware.values import Device, DeviceShare, Node, Shares

__all__ = [
    "ACCELERATORS",
    "WHOLE",
    "Cluster",
    "Device",
    "DeviceRequest",
    "DeviceShare",
    "Missing",
    "Node",
    "Refusal",
    "Request",
    "Shares",
    "choose",
    "fits",
    "fragments",
    "node_of",
    "node_of_machine",
    "nodes_of",
]
