"""A ring of four switches under a collector, two path servers and two controllers, each daemon a process.

The switches serve P4Runtime from this process, so that a test sees which writes they accept, from whom and when.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from finsy.proto import p4r

from controller.common.errors import ControllerError, PathError
from controller.common.standby.values import StandbyStatus
from controller.network.features import Features
from controller.network.intents import FlowSpec, RouteSet
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.reconcile import diff
from controller.network.status.service import ControllerClient, ControllerClientSettings
from controller.network.status.values import ControllerStatus
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeServer
from dataplane.switch.p4runtime.arbitration import decode_id
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.file import load_topology
from dataplane.topology.values import SwitchNode
from tests.benchmarks.chaining.processes import Daemon
from tests.free_ports import free_ports
from tests.waiting import wait_until

RING = """
millrace: 1
name: ring
collector: {host: c1}
switches: [{name: s1}, {name: s2}, {name: s3}, {name: s4}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h4, switch: s4}, {name: c1, switch: s3}]
links: [{a: s1, b: s2}, {a: s2, b: s4}, {a: s1, b: s3}, {a: s3, b: s4}]
"""
WAYS = ("s1", "s2", "s4"), ("s1", "s3", "s4")
FLOWS = tuple(FlowSpec("h1", "h4", 17, 1000 + number, 2000) for number in range(16))

_HANG_S = 300.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that a switch accepted: when (s, monotonic), and under which election id."""

    at_s: float
    election_id: int
    updates: int


class RecordingCore(P4RuntimeCore):
    """A switch's P4Runtime that notes the writes it has accepted."""

    def __init__(self, switch: Switch) -> None:
        super().__init__(switch)
        self.accepted: list[Written] = []

    def write(self, request: p4r.WriteRequest) -> p4r.WriteResponse:
        """Apply a batch, and note it if it was accepted."""
        with self._lock:  # notes are in the order of the writes
            answer = super().write(request)
            self.accepted.append(Written(time.monotonic(), decode_id(request.election_id), len(request.updates)))
            return answer


class Pairs:
    """The daemons, by name: `paths-a`, `paths-b`, `controller-a`, `controller-b`, and the collector."""

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of the daemons in pairs."""
        return "paths-a", "paths-b", "controller-a", "controller-b"

    def __init__(self, folder: Path, standby: Mapping[str, Mapping[str, Any]]) -> None:
        """`standby` has the block of settings of each daemon in a pair."""
        self.folder = folder
        file = folder / "ring.yaml"
        file.write_text(RING, encoding="utf-8")
        self.topology = load_topology(str(file))
        self.cores = {node.name: _core(node) for node in self.topology.switches}
        schema = load_schema(*fabric_program())
        self._readers = {
            node.name: InProcessSession(node.name, node.node_id, self.cores[node.name], schema)
            for node in self.topology.switches
        }
        # One loop for all questions: gRPC's poller does not survive many of them in one process.
        self._loop = asyncio.new_event_loop()
        self.address = ",".join(f"unix:{folder}/{name}.sock" for name in standby if name.startswith("paths"))
        self.daemons = {"collector": self._collector(str(file))}
        for name, block in standby.items():
            make = self._path_server if name.startswith("paths") else self._controller
            self.daemons[name] = make(str(file), name, block)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve the switches and run the daemons; all are active or stand by when the block begins."""
        asking = threading.Thread(target=self._loop.run_forever, name="questions", daemon=True)
        asking.start()
        with ExitStack() as stack:
            stack.callback(self._loop.close)
            stack.callback(asking.join)
            stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
            for name, core in self.cores.items():
                stack.enter_context(P4RuntimeServer(core, [f"unix:{self.folder}/{name}.sock"]))
            for daemon in self.daemons.values():
                stack.enter_context(daemon)
            yield

    def active(self, kind: str) -> str | None:
        """Return the name of the active daemon of a kind, None without one; daemons that do not answer count not."""
        names = [name for name in self.daemons if name.startswith(f"{kind}-")]
        return next((name for name in names if (role := self.role(name)) is not None and role.is_active), None)

    def other(self, name: str) -> str:
        """Return the other daemon of a pair."""
        kind, holder = name.split("-")
        return f"{kind}-{'b' if holder == 'a' else 'a'}"

    def pin(self, number: int, way: int) -> None:
        """Pin a flow to one of the two ways; raise PathError if no path server does so."""
        self.ask(lambda client: client.pin(FLOWS[number], WAYS[way]))

    def routes(self) -> RouteSet:
        """Return the set of routes in force."""
        return self.ask(lambda client: client.current_routes())

    def ask(self, ask: Callable[[RouteClient], Awaitable[T]], timeout_s: float = 0.5) -> T:
        """Return the answer of the active path server; raise PathError after `timeout_s` at each of the pair."""

        async def asking() -> T:
            settings = RouteClientSettings(address=self.address, timeout_ns=round(timeout_s * 1e9))
            async with RouteClient(settings) as client:
                return await ask(client)

        return self._run(asking())

    def is_settled(self) -> bool:
        """Return whether every switch holds exactly what the routes in force ask for, nothing twice, nothing else."""
        try:
            routes = self.routes()
        except PathError:
            return False
        features = Features(self.topology)
        features.want(routes)
        return not any(
            diff(features.coordinator.wanted(name), session.read()) for name, session in self._readers.items()
        )

    def until_settled(self) -> None:
        """Wait until the switches hold what the routes ask for."""
        wait_until(self.is_settled, self._told, poll_s=0.05)

    def stale_writes(self) -> list[Written]:
        """Return the writes that switches accepted from a controller after those of one with a newer token."""
        stale = []
        for core in self.cores.values():
            highest = 0
            for written in list(core.accepted):
                if written.election_id < highest:
                    stale.append(written)
                highest = max(highest, written.election_id)
        return stale

    def tokens(self) -> set[int]:
        """Return the tokens under which switches have accepted writes."""
        accepted = [written for core in self.cores.values() for written in core.accepted]
        return {written.election_id >> 64 for written in accepted}

    def first_write_s(self, since_s: float, not_by: int) -> float | None:
        """Return when a switch first accepted a write after a moment under another token, None if none has."""
        times = [
            written.at_s
            for core in self.cores.values()
            for written in list(core.accepted)
            if written.at_s > since_s and written.election_id >> 64 > not_by
        ]
        return min(times, default=None)

    def status(self, name: str) -> ControllerStatus:
        """Return the status of a controller; raise ControllerError if it does not answer."""

        async def asking() -> ControllerStatus:
            settings = ControllerClientSettings(address=f"unix:{self.folder}/{name}.sock")
            async with ControllerClient(settings) as client:
                return await asyncio.wait_for(client.status(), 0.5)

        return self._run(asking())

    def _run(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(_HANG_S)

    def is_standing_by(self, name: str) -> bool:
        """Return whether a daemon answers, is not active, and sees that the other one is."""
        role = self.role(name)
        return role is not None and not role.is_active and not role.problem and role.active_holder == self.other(name)

    def token(self, name: str) -> int:
        """Return the fencing token of an active daemon."""
        role = self.role(name)
        assert role is not None, f"{name} does not answer"
        assert role.token is not None, f"{name} is not active"
        return role.token

    def role(self, name: str) -> StandbyStatus | None:
        """Return a daemon's own view of its role, None if it does not answer."""
        with suppress(ControllerError, TimeoutError):
            if name.startswith("controller"):
                return self.status(name).standby
            return self._run(self._path_status(name)).standby
        return None

    async def _path_status(self, name: str) -> PathServerStatus:
        settings = RouteClientSettings(address=f"unix:{self.folder}/{name}.sock", timeout_ns=500_000_000)
        async with RouteClient(settings) as client:
            return await client.status()

    def _told(self) -> str:
        return "\n".join(f"{name}: {daemon.log_text()[-1500:]}" for name, daemon in self.daemons.items())

    def _collector(self, topology: str) -> Daemon:
        settings = {
            "topology": topology,
            "receiver": {"address": "127.0.0.1", "udp_port": free_ports(1)[0]},
            "feed": {"address": f"unix:{self.folder}/collector.sock"},
        }
        return Daemon("collector", ("collector", "serve"), settings, self.folder)

    def _path_server(self, topology: str, name: str, standby: Mapping[str, Any]) -> Daemon:
        settings = {
            "topology": topology,
            "feed": f"unix:{self.folder}/collector.sock",
            "listen": f"unix:{self.folder}/{name}.sock",
            "records": {"database": f"{self.folder}/{name}.sqlite", "reports_per_s": 0},
            "standby": {"holder": name, **standby},
        }
        return Daemon(name, ("paths", "serve"), settings, self.folder)

    def _controller(self, topology: str, name: str, standby: Mapping[str, Any]) -> Daemon:
        settings = {
            "topology": topology,
            "switches": f"unix:{self.folder}/{{name}}.sock",
            "path_server": self.address,
            "listen": f"unix:{self.folder}/{name}.sock",
            "standby": {"holder": name, **standby},
            "retry": {"drain": "20ms", "longest_wait": "300ms"},
        }
        return Daemon(name, ("controller", "serve"), settings, self.folder)


def _core(node: SwitchNode) -> RecordingCore:
    return RecordingCore(Switch(node.node_id, [PortSettings(number) for number in range(1, 5)], VirtualClock()))
