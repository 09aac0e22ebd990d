"""Three members of a real etcd, each of which can be killed and started again with its data."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.waiting import wait_until

MEMBERS = 3


class EtcdCluster:
    """Members by number; a context manager that starts all of them."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("etcd")
        if program is None:
            pytest.skip("needs etcd: apt install etcd-server")
        ports = _free_ports(2 * MEMBERS)
        self._clients = [f"http://127.0.0.1:{port}" for port in ports[:MEMBERS]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[MEMBERS:]]
        together = ",".join(f"n{number}={url}" for number, url in enumerate(peers))
        self._log = folder / "etcd.log"
        self._commands = [
            [
                *(program, "--name", f"n{number}", "--data-dir", str(folder / f"etcd{number}")),
                *("--listen-client-urls", self._clients[number], "--advertise-client-urls", self._clients[number]),
                *("--listen-peer-urls", peers[number], "--initial-advertise-peer-urls", peers[number]),
                *("--initial-cluster", together),
            ]
            for number in range(MEMBERS)
        ]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * MEMBERS

    @property
    def addresses(self) -> list[str]:
        """The members' addresses for clients."""
        return [url.removeprefix("http://") for url in self._clients]

    def start(self, number: int) -> None:
        """Start a member, without waiting for it."""
        with self._log.open("ab") as log:
            self._processes[number] = subprocess.Popen(self._commands[number], stdout=log, stderr=log)

    def kill(self, number: int) -> None:
        """End a member by SIGKILL."""
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.kill()
            process.wait()

    def until_healthy(self) -> None:
        """Wait until every member answers."""
        for url in self._clients:
            wait_until(lambda url=url: _is_healthy(url), lambda: self._log.read_text()[-2000:])  # type: ignore[misc]

    def __enter__(self) -> EtcdCluster:
        for number in range(MEMBERS):
            self.start(number)
        try:
            self.until_healthy()
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(MEMBERS):
            self.kill(number)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
