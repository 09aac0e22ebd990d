"""A topology as a network of Mininet: its hosts, its links, and a process for each switch."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.node import Switch

from dataplane.errors import FabricError, MillraceError
from dataplane.fabric.kernel import links
from dataplane.fabric.kernel.losses import Losses
from dataplane.switch import bmv2
from dataplane.switch.arguments import AttachedPort, SwitchSettings, command_line
from dataplane.switch.switch import PortSettings
from dataplane.topology.addressing import format_mac, gateway_mac, mac_at
from dataplane.topology.values import Endpoint, Topology

FIRST_P4RUNTIME_PORT = 50_000
START_TIMEOUT_S = 30.0
SWITCH_MTU = 4_000
SOURCE = Path(__file__).resolve().parents[1]


class P4Switch(Switch):  # type: ignore[misc]  # Mininet is untyped
    """A Mininet node that is a switch process, started with arguments that both targets accept."""

    def __init__(self, name: str, settings: SwitchSettings, log: Path, command: list[str], **parameters: str) -> None:
        super().__init__(name, dpid=f"{settings.device_id:x}", **parameters)
        self.settings, self.log, self.command = settings, log, command
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, controllers: list[Any]) -> None:  # noqa: ARG002 - Mininet's signature; ours come by P4Runtime
        """Start the process."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - the command that `command_of` made
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=SOURCE, start_new_session=True
            )

    def is_running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803 - Mininet's signature
        """End the process, then let Mininet remove the interfaces."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        super().stop(deleteIntfs)


def build(net: Mininet, topology: Topology, target: str, run_dir: Path) -> None:
    """Put the topology into an empty Mininet and build it; raise FabricError if that fails."""
    try:
        _add_all(net, topology, target, run_dir)
        net.build()
    except Exception as error:
        if isinstance(error, MillraceError):
            raise
        # Mininet raises only Exception, with the output of `ip link`.
        raise FabricError(f"Mininet: {' '.join(str(error).split())}") from error


def _add_all(net: Mininet, topology: Topology, target: str, run_dir: Path) -> None:
    nodes: dict[str, Any] = {}
    for host in topology.hosts:
        nodes[host.name] = net.addHost(host.name, ip=None, mac=format_mac(host.mac))
        links.prepare_host(namespace_of(net, host.name), host)
    for node in topology.switches:
        settings = settings_of(topology, node.name)
        command = command_of(settings, target)
        nodes[node.name] = net.addSwitch(
            node.name, cls=P4Switch, settings=settings, log=run_dir / f"{node.name}.log", command=command
        )
    for link in topology.links:
        a, b = (device_name(topology, end) for end in (link.a, link.b))
        net.addLink(
            nodes[link.a.node], nodes[link.b.node], port1=link.a.port, port2=link.b.port, intfName1=a, intfName2=b
        )


def configure(net: Mininet, topology: Topology) -> None:
    """Give hosts their addresses and routes, links their losses, and keep the kernel silent on switch ports."""
    for node in topology.switches:
        namespace = namespace_of(net, node.name)
        for port in topology.neighbours[node.name]:
            end = Endpoint(node.name, port)
            device = device_name(topology, end)
            Path(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6").write_text("1", encoding="ascii")
            links.set_device(namespace, device, mac_at(topology, node.name, port), SWITCH_MTU)
            links.bring_up(namespace, [device])
    for host in topology.hosts:
        namespace = namespace_of(net, host.name)
        device = device_name(topology, Endpoint(host.name, 0))
        links.bring_up(namespace, [device])
        links.address_host(namespace, device, host, gateway_mac(topology, host.name))
    for link in topology.directed_links.values():
        if link.loss_ppb:
            Losses(namespace_of(net, link.tail.node), device_name(topology, link.tail), link.loss_ppb).close()


def settings_of(topology: Topology, name: str) -> SwitchSettings:
    """Return a switch's settings."""
    node_id = topology.switch[name].node_id
    ports = sorted(
        (link for link in topology.directed_links.values() if link.tail.node == name), key=lambda link: link.tail
    )
    return SwitchSettings(
        ports=tuple(
            AttachedPort(
                PortSettings(link.tail.port, link.rate_bps, link.queue_frames, link.delay_ns, link.jitter_ns),
                device_name(topology, link.tail),
            )
            for link in ports
        ),
        device_id=node_id,
        grpc_address=f"127.0.0.1:{FIRST_P4RUNTIME_PORT + node_id}",
        log_level="warn",
    )


def command_of(settings: SwitchSettings, target: str) -> list[str]:
    """Return the command that starts a switch of the target."""
    if target == "bmv2":
        return bmv2.command(bmv2.without_cables(settings))
    return [sys.executable, "-m", "dataplane.switch.process", *command_line(settings)]


def device_name(topology: Topology, end: Endpoint) -> str:
    """Return an interface name that is short enough and, in the root namespace, unique."""
    node = topology.switch.get(end.node)
    return "eth0" if node is None else f"s{node.node_id}-eth{end.port}"


def namespace_of(net: Mininet, name: str) -> str:
    """Return the path of a node's network namespace."""
    return f"/proc/{net.get(name).pid}/ns/net"


def wait_ready(net: Mininet) -> None:
    """Return once every switch answers; raise FabricError naming the log of one that does not."""
    deadline = time.monotonic() + START_TIMEOUT_S
    for switch in net.switches:
        alive: Callable[[], bool] = switch.is_running
        while not bmv2.is_listening(switch.settings.grpc_address):
            if not alive() or time.monotonic() > deadline:
                raise FabricError(f"switch {switch.name} does not answer: see {switch.log}")
            time.sleep(0.05)


def run(topology: Topology, target: str) -> None:
    """Start everything, print the switches' addresses, run Mininet's prompt, stop everything."""
    with tempfile.TemporaryDirectory(prefix="millrace-mininet-") as run_dir:
        net = Mininet(topo=None, controller=None, build=False, waitConnected=False)
        try:
            build(net, topology, target, Path(run_dir))
            configure(net, topology)
            net.start()
            wait_ready(net)
            for switch in net.switches:
                print(f"{switch.name}: device {switch.settings.device_id}, P4Runtime {switch.settings.grpc_address}")
            if target == "bmv2" and any(link.jitter_ns for link in topology.links):
                print("bmv2 has no delays, and so no jitter")
            if target == "bmv2" and topology.synchronised_clocks:
                print("each bmv2's clock starts at zero: collectors need synchronised_clocks: false")
            print("ready", flush=True)
            CLI(net)
        finally:
            net.stop()
