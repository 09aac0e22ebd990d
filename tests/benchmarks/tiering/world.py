"""Hosts of a pool as processes in namespaces around a Millrace switch."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import yaml

from controller.memory.pool.settings import MemoryPoolSettings, PoolHost
from controller.memory.pool.values import Writes
from dataplane.errors import FabricError
from dataplane.fabric.kernel import KernelFabric
from dataplane.local.deadline import LocalDeadline
from dataplane.rpc.access import Principal, Role
from dataplane.topology.file import loads
from tests.certificates import Authority

MIB: Final = 1 << 20
BLOCK_BYTES: Final = 65_536
PORT: Final = 7900
TOPOLOGY: Final = """
millrace: 1
name: tiers
defaults: {access: {rate: 10 Gbit/s, delay: 10 us}}
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s1}]
links: []
"""
HOSTS: Final = ("h1", "h2", "h3")
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class World:
    """A running fabric with hosts, and settings of a pool over them that runs in the namespace of h1."""

    fabric: KernelFabric
    settings: MemoryPoolSettings
    folder: Path


@contextmanager
def world(*, fast_bytes: int = 8 * MIB, home_bytes: int = 1024 * MIB) -> Iterator[World]:
    """Yield three hosts, each with a core, fast memory and a file; needs root."""
    topology = loads(TOPOLOGY)
    with tempfile.TemporaryDirectory(prefix="tiers-", dir="/srv") as name, KernelFabric(topology) as fabric:
        folder = Path(name)
        fabric.wait_ready(_START_S)
        authority = Authority(folder)
        addresses = {host: str(topology.host[host].ipv4) for host in HOSTS}
        _control(fabric, folder)
        for host in HOSTS:
            certificate, key = authority.sign(
                host, principal=Principal(host, Role.NODE, host), addresses=(addresses[host],)
            )
            document = {
                "name": host,
                "address": f"{addresses[host]}:{PORT}",
                "tls": {"ca": str(authority.file), "certificate": str(certificate), "private_key": str(key)},
                "block_bytes": BLOCK_BYTES,
                "cores": 1,
                "tiers": [
                    {"name": "dram", "kind": "dram", "capacity_bytes": fast_bytes},
                    {
                        "name": "file",
                        "kind": "file",
                        "capacity_bytes": home_bytes,
                        "path": str(folder / f"{host}.blocks"),
                    },
                ],
            }
            _daemon(fabric, host, folder / f"{host}.yaml", document, "memory", "serve")
        _wait_connected(fabric, addresses)
        hosts = tuple(PoolHost(name=host, address=f"{addresses[host]}:{PORT}") for host in HOSTS)
        tls = authority.settings("pool", Role.SERVICE)
        # Written blocks go home when they are evicted, as in the simulated pool.
        yield World(fabric, MemoryPoolSettings(hosts=hosts, tls=tls, writes=Writes.BACK, waiting=100_000), folder)


def _wait_connected(fabric: KernelFabric, addresses: Mapping[str, str]) -> None:
    """Return once every host reaches every other; raise FabricError if the controller has not filled the tables."""
    limit = LocalDeadline(_START_S, "the routes of the fabric")
    for source in HOSTS:
        for destination in HOSTS:
            while not fabric.call_in(source, lambda to=destination: _connects(addresses[to])):  # type: ignore[misc]
                if limit.has_passed():
                    raise FabricError(f"{source} does not reach {destination}")


def _connects(address: str) -> bool:
    try:
        socket.create_connection((address, PORT), timeout=1).close()
    except OSError:
        return False
    return True


def _control(fabric: KernelFabric, folder: Path) -> None:
    """Have a controller fill the switch's tables."""
    topology = folder / "topology.yaml"
    topology.write_text(TOPOLOGY)
    document = {"topology": str(topology), "switches": {"s1": fabric.p4runtime_address("s1")}}
    _daemon(fabric, "h1", folder / "controller.yaml", document, "controller", "serve")


def _daemon(fabric: KernelFabric, host: str, path: Path, document: object, *words: str) -> None:
    """Start a daemon in a host's namespace and return once it is ready; raise FabricError if it is not."""
    path.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "controller.apps.cli", *words, "--settings", str(path)]
    process = fabric.run_in(host, command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    line = b""
    while b"ready:" not in line:
        line = process.stderr.readline()
        if not line:
            raise FabricError(f"{' '.join(words)} in {host} ended: {process.wait()}")
        if b"ready:" not in line:
            sys.stderr.write(line.decode("utf-8", "replace"))
    threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()


def _drain(stream: IO[bytes]) -> None:
    """Pass a daemon's log on: nobody else reads it, and a full pipe would stop it."""
    for line in stream:
        sys.stderr.write(line.decode("utf-8", "replace"))
