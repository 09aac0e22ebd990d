"""Two veth pairs between a namespace of hosts and one of the switch, which every switch under test uses in turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.fabric.kernel.links import CableEnd, bring_up, connect, silence
from dataplane.fabric.kernel.manifest import held_namespaces

MTU = 1_500
IN_PORT, OUT_PORT = 1, 2


@dataclass(frozen=True, slots=True)
class Cables:
    """Namespaces, and the devices in them: `source` is opposite port 1 of the switch, `sink` opposite port 2."""

    hosts: str
    switch: str
    source: str = "source"
    sink: str = "sink"

    @property
    def ports(self) -> dict[int, str]:
        """Return the switch's devices by port."""
        return {IN_PORT: "sw1", OUT_PORT: "sw2"}


@contextmanager
def cables() -> Iterator[Cables]:
    """Make the namespaces and pairs while the `with` block lasts; needs root."""
    ends = Cables(f"bench-hosts-{os.getpid()}", f"bench-switch-{os.getpid()}")
    with held_namespaces(ends.hosts, ends.switch):
        for name in (ends.hosts, ends.switch):
            silence(name)
        for number, (host, port) in enumerate(((ends.source, IN_PORT), (ends.sink, OUT_PORT))):
            near = CableEnd(ends.hosts, host, 0x02_00_00_00_01_00 + number, MTU)
            connect(near, CableEnd(ends.switch, ends.ports[port], 0x02_00_00_00_02_00 + number, MTU))
        bring_up(ends.hosts, (ends.source, ends.sink))
        bring_up(ends.switch, ends.ports.values())
        yield ends
