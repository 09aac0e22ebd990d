"""A real etcd that can be stopped and restarted with its data."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.waiting import wait_until


class Etcd:
    """An etcd with a data folder; a reusable context manager that yields its address."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("etcd")
        if program is None:
            pytest.skip("needs etcd: apt install etcd-server")
        clients, peers = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
        self._clients = clients
        self._log = folder / "log"
        self._command = [
            *(program, "--name", "n1", "--data-dir", str(folder / "data")),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"n1={peers}"),
        ]

    def __enter__(self) -> str:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_until(self._is_healthy, "etcd does not answer")
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(f"etcd does not start: {self._log.read_text()[-2000:]}") from error
        return self._clients.removeprefix("http://")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _is_healthy(self) -> bool:
        assert self._process.poll() is None, "etcd has ended"
        try:
            with urllib.request.urlopen(f"{self._clients}/health", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
