"""Topologies in the kernel: a network namespace per host and switch, veth cables, and a process per switch."""

import sys

if sys.platform != "linux":
    # Check here: the imports below would fail with the name of a module or constant that only Linux has.
    raise ImportError("kernel fabrics need Linux (namespaces, netlink); virtual time runs anywhere")

from dataplane.fabric.kernel.fabric import HOST_DEVICE, KernelFabric, KernelSettings, Target, switch_device
from dataplane.fabric.kernel.manifest import remove_leftovers

__all__ = ["HOST_DEVICE", "KernelFabric", "KernelSettings", "Target", "remove_leftovers", "switch_device"]
