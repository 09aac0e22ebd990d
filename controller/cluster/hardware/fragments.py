"""Fragments: free parts of a node's devices that work of a kind cannot use.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023. The expected fragments over a mix of typical requests are the sum of `fragments` weighted by their
shares.
"""

from __future__ import annotations

from controller.cluster.hardware.fitting import fits
from controller.cluster.hardware.requests import WHOLE, Request
from controller.cluster.hardware.values import Node, Shares


def fragments(node: Node, held: Shares, request: Request) -> int:
    """Return the free thousandths of a node's devices that a request of this form cannot use.

    That is all of them if it does not fit or requests no device, else those on devices with less free than it requests
    of each, or of a kind or model that it does not accept.
    """
    free = {device.number: WHOLE - held.of(device.number).thousandths for device in node.devices}
    if not request.devices or fits(node, held, request) is not None:
        return sum(free.values())
    return sum(
        free[device.number]
        for device in node.devices
        if not any(wanted.accepts(device) and free[device.number] >= wanted.thousandths for wanted in request.devices)
    )
