"""A topology of namespaces, veth pairs and switch processes, always removed again."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from dataplane.errors import FabricError
from dataplane.fabric.kernel import links, manifest, namespaces
from dataplane.fabric.kernel.losses import Losses
from dataplane.fabric.kernel.manifest import RUN_ROOT, Manifest, ProcessId
from dataplane.fabric.kernel.namespaces import Stream
from dataplane.local.deadline import LocalDeadline, wait_for_exit
from dataplane.local.endings import read_lines, why_ended
from dataplane.malformed import MALFORMED
from dataplane.running import unwinding
from dataplane.switch import bmv2
from dataplane.switch.arguments import AttachedPort, SwitchSettings, command_line
from dataplane.switch.counters import SwitchFigures
from dataplane.switch.traffic import DEFLECT_SESSION, PortSettings
from dataplane.topology.addressing import gateway_mac, mac_at
from dataplane.topology.values import DirectedLink, Endpoint, LinkKey, Topology

T = TypeVar("T")

HOST_DEVICE = "eth0"
_POLL_S = 0.02
_UNIX_PATH_BYTES = 107

logger = logging.getLogger("millrace.fabric")


class Target(StrEnum):
    """Switch to run: the built-in one, or simple_switch_grpc, whose cables have neither rate nor delay."""

    MILLRACE = "millrace"
    BMV2 = "bmv2"


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Settings for building a topology in the kernel.

    name: prefix of its folder and namespaces; None: any free one. run_root: parent folder of each fabric's folder with
    sockets, logs and manifest. switch_mtu: MTU of switch ports in bytes; telemetry makes frames longer than hosts may
    send. stop_timeout_s: grace period after which a process is killed.
    """

    target: Target = Target.MILLRACE
    name: str | None = None
    run_root: Path = RUN_ROOT
    host_mtu: int = 1500
    switch_mtu: int = 4000
    stop_timeout_s: float = 3.0
    log_level: str = "info"
    seed: int = 0


def switch_device(port: int) -> str:
    """Return the name of a switch port's device in its namespace."""
    return f"p{port}"


class KernelFabric:
    """A running topology while the `with` block lasts; raises FabricError if it cannot be built.

    Entering removes the leftovers of dead fabrics and then creates namespaces, cables and switches; call `wait_ready`
    before use. Leaving removes all of it, after an exception, SIGTERM or SIGHUP too. After SIGKILL the switches stop by
    themselves and the next fabric removes the rest.
    """

    def __init__(self, topology: Topology, settings: KernelSettings | None = None) -> None:
        self.topology = topology
        self.settings = settings or KernelSettings()
        self.fabric_id = self.settings.name or secrets.token_hex(3)
        self.run_dir = self.settings.run_root / self.fabric_id
        owner = ProcessId.of(os.getpid())
        if owner is None:
            raise FabricError("this process is not in /proc")
        self._manifest = Manifest(self.fabric_id, owner)
        self._is_written = False
        self._switches: dict[str, subprocess.Popen[bytes]] = {}
        self._log_begins: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._losses: dict[LinkKey, Losses] = {}
        self._lifeline: tuple[int, int] | None = None
        self._signals = ExitStack()

    def __enter__(self) -> KernelFabric:
        require_root()
        manifest.remove_leftovers(self.settings.run_root)
        self._write_down()
        self._signals.enter_context(unwinding())
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove every namespace; idempotent."""
        try:
            if self._lifeline is not None:
                for descriptor in self._lifeline:
                    os.close(descriptor)
                self._lifeline = None
            for losses in self._losses.values():
                losses.close()
            self._losses.clear()
            if self._is_written:  # else both names may be another fabric's
                manifest.remove(self._manifest, self.run_dir, stop_timeout_s=self.settings.stop_timeout_s)
                self._is_written = False
            for process in (*self._processes, *self._switches.values()):
                process.wait(self.settings.stop_timeout_s)
            self._switches.clear()
            self._processes.clear()
        finally:
            self._signals.close()

    def namespace(self, node: str) -> str:
        """Return the name of a host's or switch's network namespace."""
        return manifest.namespace_of(self.fabric_id, node)

    def p4runtime_address(self, switch: str) -> str:
        """Return the gRPC address of a switch, reachable from any namespace."""
        return f"unix:{self._file(switch, 'sock')}"

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until every switch forwards and answers; raise FabricError naming those that failed or timed out."""
        deadline = LocalDeadline(timeout_s, "the start of the switches")
        waiting = set(self._switches)
        while waiting:
            self.check()
            waiting = {name for name in waiting if not self._is_ready(name)}
            if waiting and deadline.has_passed():
                raise FabricError(f"switches {', '.join(sorted(waiting))} are not ready after {timeout_s} s")
            if waiting:
                time.sleep(_POLL_S)

    def check(self) -> None:
        """Raise FabricError, with the reason, if a switch has ended unexpectedly."""
        for name, process in self._switches.items():
            if process.poll() is not None:
                raise FabricError(f"switch {name}: {self._why_ended(name, process.returncode)}")

    def ended(self) -> dict[str, str]:
        """Return the switches that ended unexpectedly, each with its exit status or signal, and the reason."""
        return {
            name: self._why_ended(name, process.returncode)
            for name, process in self._switches.items()
            if process.poll() is not None
        }

    def is_ready(self, switch: str) -> bool:
        """Return whether a switch forwards and answers."""
        return self._is_ready(switch)

    def start_switch(self, name: str) -> None:
        """Start a switch's process; raise FabricError if it is already running."""
        running = self._switches.get(name)
        if running is not None and running.poll() is None:
            raise FabricError(f"switch {name} is already running")
        self._file(name, "ready").unlink(missing_ok=True)
        settings = self._switch_settings(name)
        with self._file(name, "log").open("ab") as log:
            self._log_begins[name] = log.tell()  # earlier lines are about an earlier process
            process = namespaces.start(
                self.namespace(name),
                self._command(settings),
                stdout=log,
                stderr=log,
                env=environment(),
                pass_fds=() if settings.lifeline_fd is None else (settings.lifeline_fd,),
            )
        self._switches[name] = process
        self._record(process)

    def stop_switch(self, name: str, *, kill: bool = False) -> None:
        """End the process of a switch, with SIGKILL if `kill`; its namespace and cables stay."""
        process = self._switches.pop(name, None)
        if process is None:
            raise FabricError(f"switch {name} is not running")
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        if not wait_for_exit(process, self.settings.stop_timeout_s, f"the end of switch {name}"):
            process.kill()
            process.wait()

    def set_link(self, a: str, b: str, *, up: bool) -> None:
        """Set the device at the `a` end of a cable up or down, like `ip link set`; FabricError for an unknown cable."""
        end = self._tail(a, b)
        links.set_up(self.namespace(a), self._device(end), up=up)

    def lose(self, a: str, b: str, *, lost: bool) -> None:
        """Start or stop losing all frames from `a` to `b`, unseen by any device; FabricError for an unknown cable."""
        end = self._tail(a, b)
        links.lose(self.namespace(a), self._device(end), lost=lost)

    def lost_by_chance(self, a: str, b: str) -> int:
        """Return how many frames from `a` to `b` the link lost at random; FabricError for an unknown cable."""
        self._tail(a, b)
        losses = self._losses.get(LinkKey(a, b))
        return 0 if losses is None else losses.lost

    def run_in(
        self,
        node: str,
        argv: Sequence[str],
        *,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = None,
        stderr: Stream = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a process in a node's namespace; it ends with the fabric at the latest."""
        self._require_node(node)
        process = namespaces.start(
            self.namespace(node), argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, pass_fds=pass_fds
        )
        self._processes.append(process)
        self._record(process)
        return process

    def call_in(self, node: str, function: Callable[[], T]) -> T:
        """Call `function` inside a node's namespace and return its result: sockets that it opens stay there."""
        self._require_node(node)
        return namespaces.call(self.namespace(node), function)

    def read_stats(self, switch: str) -> dict[str, Any]:
        """Return the counters that a built-in switch wrote last; raise FabricError if there are none."""
        return self._read_stats(switch, dict[str, Any])

    def read_figures(self, switch: str) -> SwitchFigures:
        """Return the counters and port states that a built-in switch wrote last; raise FabricError without any."""
        return self._read_stats(switch, SwitchFigures)

    def _read_stats(self, switch: str, kind: type[T]) -> T:
        path = self._file(switch, "stats.json")
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, *MALFORMED) as error:
            raise FabricError(f"switch {switch} has written no counters: {path}: {error}") from error

    def _build(self) -> None:
        for host in self.topology.hosts:
            namespaces.create(self.namespace(host.name))
            links.prepare_host(self.namespace(host.name), host)
        for switch in self.topology.switches:
            namespaces.create(self.namespace(switch.name))
            links.silence(self.namespace(switch.name))
        for link in self.topology.links:
            links.connect(self._cable_end(link.a), self._cable_end(link.b))
        for name, ports in self.topology.neighbours.items():
            links.bring_up(self.namespace(name), [self._device(Endpoint(name, port)) for port in ports])
        for host in self.topology.hosts:
            mac = gateway_mac(self.topology, host.name)
            links.address_host(self.namespace(host.name), HOST_DEVICE, host, mac)
        for key, directed in self.topology.directed_links.items():
            if directed.loss_ppb:
                device = self._device(directed.tail)
                self._losses[key] = Losses(self.namespace(key.src), device, directed.loss_ppb)
        self._lifeline = os.pipe()
        for switch in self.topology.switches:
            self.start_switch(switch.name)

    def _write_down(self) -> None:
        """Create the folder and record what will be created; raise FabricError, changing nothing, if it exists."""
        longest = max((self._file(switch.name, "sock") for switch in self.topology.switches), key=_path_bytes)
        if _path_bytes(longest) > _UNIX_PATH_BYTES:
            raise FabricError(f"{longest} is longer than the {_UNIX_PATH_BYTES} bytes that a socket's path may have")
        if self.run_dir.exists():
            down = f"`millrace fabric down {self.fabric_id}` ends it"
            raise FabricError(f"a fabric {self.fabric_id} already exists: {down}, --name gives this one another name")
        self._manifest.namespaces = [self.namespace(name) for name in self.topology.neighbours]
        namespaces.require_free(self._manifest.namespaces)
        self._manifest.topology, self._manifest.is_named = self.topology.name, self.settings.name is not None
        self._manifest.switches = [switch.name for switch in self.topology.switches]
        self._manifest.hosts = {host.name: str(host.ipv4) for host in self.topology.hosts}
        self._manifest.begin(self.run_dir)
        self._is_written = True

    def _record(self, process: subprocess.Popen[bytes]) -> None:
        """Record a process; one that has already ended needs no removal."""
        identity = ProcessId.of(process.pid)
        if identity is not None:
            self._manifest.processes = [process for process in self._manifest.processes if process.is_alive()]
            self._manifest.processes.append(identity)
            self._manifest.save(self.run_dir)

    def _switch_settings(self, name: str) -> SwitchSettings:
        ports = [link for link in self.topology.directed_links.values() if link.tail.node == name]
        return SwitchSettings(
            ports=tuple(_attached_port(link) for link in sorted(ports, key=lambda link: link.tail)),
            device_id=self.topology.switch[name].node_id,
            grpc_address=self.p4runtime_address(name),
            log_level=self.settings.log_level,
            ready_file=self._file(name, "ready"),
            stats_file=self._file(name, "stats.json"),
            lifeline_fd=None if self._lifeline is None else self._lifeline[0],
            seed=self.settings.seed,
            deflect_session=DEFLECT_SESSION,
        )

    def _command(self, settings: SwitchSettings) -> list[str]:
        if self.settings.target is Target.BMV2:
            logger.warning("simple_switch_grpc %d: its cables have no rate, delay or jitter", settings.device_id)
            return bmv2.command(bmv2.without_cables(settings))
        return [sys.executable, "-m", "dataplane.switch.process", *command_line(settings)]

    def _is_ready(self, name: str) -> bool:
        if self.settings.target is Target.BMV2:
            return bmv2.is_listening(self.p4runtime_address(name))
        return self._file(name, "ready").exists()

    def _cable_end(self, end: Endpoint) -> links.CableEnd:
        mtu = self.settings.host_mtu if end.node in self.topology.host else self.settings.switch_mtu
        mac = mac_at(self.topology, end.node, end.port)
        return links.CableEnd(self.namespace(end.node), self._device(end), mac, mtu)

    def _device(self, end: Endpoint) -> str:
        return HOST_DEVICE if end.node in self.topology.host else switch_device(end.port)

    def _file(self, node: str, suffix: str) -> Path:
        return self.run_dir / f"{node}.{suffix}"

    def _tail(self, a: str, b: str) -> Endpoint:
        link = self.topology.directed_links.get(LinkKey(a, b))
        if link is None:
            raise FabricError(f"{self.topology.name}: there is no cable between {a!r} and {b!r}")
        return link.tail

    def _require_node(self, node: str) -> None:
        if node not in self.topology.host and node not in self.topology.switch:
            raise FabricError(f"topology {self.topology.name} has no node {node}")

    def _why_ended(self, name: str, status: int) -> str:
        return why_ended(status, read_lines(self._file(name, "log"), self._log_begins.get(name, 0)))


def _attached_port(link: DirectedLink) -> AttachedPort:
    settings = PortSettings(link.tail.port, link.rate_bps, link.queue_frames, link.delay_ns, link.jitter_ns)
    return AttachedPort(settings, switch_device(link.tail.port))


def environment() -> dict[str, str]:
    """Return an environment for our own processes with this package's folder first on the module path."""
    source = str(Path(__file__).parents[3])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths)}


def _path_bytes(path: Path) -> int:
    return len(os.fsencode(path))


def require_root() -> None:
    """Raise FabricError where a kernel fabric cannot be built; outside Linux this package does not load."""
    if os.geteuid() != 0:
        raise FabricError("a kernel fabric needs root (network namespaces); virtual time does not")
