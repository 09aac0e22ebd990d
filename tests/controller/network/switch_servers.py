"""Switches with P4Runtime over gRPC that tests can start and stop."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

from dataplane.clock import VirtualClock
from dataplane.switch.bmv2 import thrift_words
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch


class Machine(Protocol):
    """A switch that can be started and stopped; it loses its state when stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class BuiltIn:
    """The built-in switch's control side, in a thread."""

    def __init__(self, device_id: int, address: str) -> None:
        self.device_id, self.address = device_id, address
        self._server: P4RuntimeServer | None = None

    def start(self) -> None:
        switch = Switch(self.device_id, [PortSettings(number) for number in range(1, 5)], VirtualClock())
        self._server = P4RuntimeServer(P4RuntimeCore(switch), [self.address])
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


class Bmv2:
    """simple_switch_grpc without ports, as a process."""

    def __init__(self, device_id: int, address: str) -> None:
        self._command = ["--no-p4", "--device-id", str(device_id), "--log-level", "off", "--"]
        self._command += ["--grpc-server-addr", address, "--cpu-port", "255"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["simple_switch_grpc", *thrift_words(), *self._command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def address(folder: Path, name: str) -> str:
    """Return a switch's address."""
    return f"unix:{folder}/{name}.sock"
