"""One veth pair between two namespaces, with as many queues a side as asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyroute2 import IPRoute

from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.links import bring_up, silence
from dataplane.fabric.kernel.manifest import held_namespaces
from dataplane.topology.addressing import format_mac

MTU = 1_500
SOURCE_MAC, SINK_MAC = 0x02_00_00_00_01_00, 0x02_00_00_00_02_00


@dataclass(frozen=True, slots=True)
class Cable:
    """Namespaces, and the device in each."""

    generator: str
    receiver: str
    source: str = "source"
    sink: str = "sink"


@contextmanager
def cable(queues: int) -> Iterator[Cable]:
    """Make the namespaces and the pair while the `with` block lasts; needs root."""
    ends = Cable(f"bench-source-{os.getpid()}-{queues}", f"bench-sink-{os.getpid()}-{queues}")
    with held_namespaces(ends.generator, ends.receiver):
        for name in (ends.generator, ends.receiver):
            silence(name)
        _connect(ends, queues)
        bring_up(ends.generator, (ends.source,))
        bring_up(ends.receiver, (ends.sink,))
        yield ends


def _connect(cable: Cable, queues: int) -> None:
    many = {"num_tx_queues": queues, "num_rx_queues": queues, "mtu": MTU}
    with (
        namespaces.open_namespace(cable.generator) as here,
        namespaces.open_namespace(cable.receiver) as there,
        IPRoute() as netlink,
    ):
        near = {"ifname": cable.source, "address": format_mac(SOURCE_MAC), "net_ns_fd": here.fileno(), **many}
        far = {"ifname": cable.sink, "address": format_mac(SINK_MAC), "net_ns_fd": there.fileno(), **many}
        netlink.link("add", kind="veth", **near, peer=far)
