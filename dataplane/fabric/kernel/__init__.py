"""A topology in the kernel: a network namespace for each host and switch, veth cables, a process for each switch."""

import sys

if sys.platform != "linux":
    # Here, since what follows would end with the name of a module or of a constant that only Linux has.
    raise ImportError("kernel fabrics need Linux (namespaces, netlink); virtual time runs anywhere")

from dataplane.fabric.kernel.fabric import HOST_DEVICE, KernelFabric, KernelSettings, Target, switch_device
from dataplane.fabric.kernel.manifest import remove_leftovers

__all__ = ["HOST_DEVICE", "KernelFabric", "KernelSettings", "Target", "remove_leftovers", "switch_device"]
