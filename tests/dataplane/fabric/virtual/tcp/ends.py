"""Two pairs of hosts over one bottleneck, and a connection over it with the data received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataplane.fabric.virtual import VirtualFabric
from dataplane.fabric.virtual.tcp import Connection, TcpSettings
from dataplane.topology.file import loads
from dataplane.topology.values import Topology

MakeFabric = Callable[..., VirtualFabric]
MS = 1_000_000
SECOND = 1_000 * MS


def dumbbell(
    rate: str = "10 Mbit/s", delay: str = "10 ms", queue_frames: int = 64, loss: str = "0%", jitter: str = "0 ns"
) -> Topology:
    return loads(f"""
millrace: 1
name: dumbbell
defaults: {{access: {{rate: 1 Gbit/s, delay: 10 us, queue_frames: 4096}}}}
switches: [{{name: s1}}, {{name: s2}}]
hosts:
  - {{name: a, switch: s1}}
  - {{name: b, switch: s2}}
  - {{name: c, switch: s1}}
  - {{name: d, switch: s2}}
links:
  - {{a: s1, b: s2, rate: {rate}, delay: {delay}, queue_frames: {queue_frames}, loss: {loss}, jitter: {jitter}}}
""")


class Ends:
    """A connection from `a` to port 80 of `b`, with the data received."""

    def __init__(self, fabric: VirtualFabric, *, server: TcpSettings | None = None, **client: Any) -> None:
        self.fabric = fabric
        self.accepted: Connection | None = None
        self.got: dict[str, bytes] = {"a": b"", "b": b""}
        self.ended: list[str] = []
        fabric.host("b").tcp.listen(80, self._accept, server or TcpSettings(**client))
        self.client = fabric.host("a").tcp.connect(fabric.host("b").node.ipv4, 80, TcpSettings(**client))
        self._watch("a", self.client)

    @property
    def server(self) -> Connection:
        assert self.accepted is not None
        return self.accepted

    def _accept(self, connection: Connection) -> None:
        self.accepted = connection
        self._watch("b", connection)

    def _watch(self, name: str, connection: Connection) -> None:
        def take(data: bytes) -> None:
            self.got[name] += data

        connection.on_data = take
        connection.on_end = lambda: self.ended.append(f"{name} has all")
        connection.on_closed = lambda: self.ended.append(f"{name} closed")

    def run(self, time_ns: int) -> None:
        self.fabric.run_until(self.fabric.now_ns + time_ns)
