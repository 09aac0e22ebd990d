"""The same question to a fabric in the kernel: namespaces, the built-in switch, the real daemon, any telemetry.

Some hosts talk by sockets (tests/payloads/talk.py), h1 to h2 on the same leaf and to h5 over three switches. Others
have no addresses, so that their kernels say nothing: frames of every kind go between their devices
(tests/payloads/wire.py), from h3 to h4 and to h7.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec
import yaml
from finsy import P4Schema
from pyroute2 import IPRoute

from controller.network.aggregation.settings import AggregationSettings
from controller.network.daemon_settings import DaemonSettings
from controller.network.gnmi.settings import Hellos
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.config import document_of
from dataplane.fabric.kernel import HOST_DEVICE, KernelFabric, KernelSettings
from dataplane.topology.file import dumps, load_topology
from tests.payloads.chain import ABOUT_REPORTS
from tests.waiting import wait_until

TOPOLOGY = load_topology("leaf-spine:spines=1,leaves=2,hosts=4")
TALKERS, SAME_LEAF, ACROSS = ("h1", "h2", "h5"), ("h3", "h4"), ("h3", "h7")
PROGRAMS = (FABRIC, FABRIC_AGGREGATION)
SLOW_HELLOS = Hellos(interval_ns=2_000_000_000)
"""No link is dead because the machine is busy: there is one spine, so that hosts would have no route."""
_READY_S = 120.0
_ROOT = Path(__file__).parents[2]


class Bed:
    """A fabric whose switches the daemon has filled; `configure` and `program` change its behaviour."""

    def __init__(self, fabric: KernelFabric) -> None:
        self.fabric = fabric
        self._settings = DaemonSettings(
            topology=str(fabric.run_dir / "topology.yaml"),
            switches={node.name: fabric.p4runtime_address(node.name) for node in TOPOLOGY.switches},
            hellos=SLOW_HELLOS,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._log = fabric.run_dir / "controller.log"
        (fabric.run_dir / "topology.yaml").write_text(dumps(TOPOLOGY), encoding="utf-8")
        for host in TALKERS:
            fabric.call_in(host, _open_fast)
        for host in {*SAME_LEAF, *ACROSS}:
            fabric.call_in(host, _silence)

    @property
    def program(self) -> str:
        """The program that the switches run."""
        return PROGRAMS[self._settings.aggregation is not None]

    def start(self, program: str = FABRIC) -> None:
        """Have a new daemon bring a program, and telemetry as it comes."""
        self.stop()
        self._change(aggregation=None if program == FABRIC else AggregationSettings(), watches=(Watch(),))
        command = [sys.executable, "-m", "controller.apps.cli", "controller", "serve", "-s", str(self._file)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(_ROOT)}
            )
        self._await(lambda log: log.count("reconciled, ") >= len(TOPOLOGY.switches))

    def stop(self) -> None:
        """Stop the daemon; the switches keep their entries."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_READY_S)
            self._process = None

    def configure(self, domain: IntDomain = DEFAULT_DOMAIN, watches: tuple[Watch, ...] = (Watch(),)) -> None:
        """Change the running daemon's telemetry, and wait until every switch has confirmed it."""
        assert self._process is not None
        self._change(int_domain=domain, watches=watches)
        before = self._log.stat().st_size
        self._process.send_signal(signal.SIGHUP)
        self._await(lambda log: _is_in_force(log[before:]))

    def drops(self) -> Counter[str]:
        """Return what each drop counter of the program counts over all switches, but those that are about reports."""
        return Counter({name: n for name, n in self.counts("drop_").items() if not name.endswith(ABOUT_REPORTS)})

    def counts(self, prefix: str) -> Counter[str]:
        """Return the packets of the program's counters with such names, over all switches."""
        return asyncio.run(self._read(prefix))

    def refused(self) -> Counter[str]:
        """Return what queues, ports and devices of all switches dropped, by cause, as they last wrote it down."""
        counts: Counter[str] = Counter()
        for node in TOPOLOGY.switches:
            stats = self.fabric.read_stats(node.name)
            counts.update(stats["drops"])
            for part in (*stats["ports"].values(), *stats["devices"].values()):
                counts.update(part["drops"])
        return counts

    async def _read(self, prefix: str) -> Counter[str]:
        counts, schema = Counter[str](), _schema(self.program)
        for node in TOPOLOGY.switches:
            target = Target(node.name, self.fabric.p4runtime_address(node.name), node.node_id)
            session = GrpcSession(target, schema, timeout_s=_READY_S)
            await session.connect_to_read()
            for counter in schema.counters:
                if counter.alias.startswith(prefix):
                    counts[counter.alias] += sum(await session.counts(counter.alias))
            await session.close()
        return counts

    @property
    def _file(self) -> Path:
        return self.fabric.run_dir / "controller.yaml"

    def _change(self, **fields: object) -> None:
        self._settings = msgspec.structs.replace(self._settings, **fields)
        self._file.write_text(yaml.safe_dump(document_of(self._settings)), encoding="utf-8")

    def _await(self, is_done: Callable[[str], bool]) -> None:
        process = self._process
        assert process is not None

        def log() -> str:
            return self._log.read_text(encoding="utf-8")

        def is_done_or_over() -> bool:
            return is_done(log()) or process.poll() is not None

        wait_until(is_done_or_over, lambda: f"the switches are not reconciled: {log()[-1000:]}", limit_s=_READY_S)
        assert process.poll() is None, f"the controller ended: {log()[-1000:]}"


@cache
def _schema(program: str) -> P4Schema:
    return load_schema(*fabric_program(program))


def _is_in_force(log: str) -> bool:
    assert "stays as it is" not in log, log
    _, marker, after = log.rpartition("telemetry: in force")
    return bool(marker) and after.count("reconciled, ") >= len(TOPOLOGY.switches)


@contextmanager
def kernel_bed(settings: KernelSettings | None = None) -> Iterator[Bed]:
    """Yield a running fabric and its daemon, with the program and telemetry as they come; needs root."""
    with ExitStack() as stack:
        fabric = stack.enter_context(KernelFabric(TOPOLOGY, settings))
        fabric.wait_ready(_READY_S)
        bed = Bed(fabric)
        stack.callback(bed.stop)
        assert TOPOLOGY.collector is not None
        # Somebody takes the reports: a host without a socket would answer each with an ICMP message.
        sink = fabric.call_in(TOPOLOGY.collector.host, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        stack.callback(sink.close)
        sink.bind(("0.0.0.0", TOPOLOGY.collector.udp_port))
        bed.start()
        yield bed


def _open_fast() -> None:
    """Let both ends of TCP have data in the first packet."""
    Path("/proc/sys/net/ipv4/tcp_fastopen").write_text("3", encoding="ascii")


def _silence() -> None:
    """Take a host's addresses, so that it answers nothing that comes to its device."""
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname=HOST_DEVICE)
        netlink.flush_addr(index=index)
    with suppress(FileNotFoundError):  # without IPv6 there is nothing to switch off
        Path(f"/proc/sys/net/ipv6/conf/{HOST_DEVICE}/disable_ipv6").write_text("1", encoding="ascii")
