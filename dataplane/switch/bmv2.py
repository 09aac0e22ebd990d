"""The other target: bmv2's simple_switch_grpc as a process, started with the settings of our own switch."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from dataplane.errors import SwitchError
from dataplane.local.deadline import LocalDeadline, wait_for_exit
from dataplane.rpc.addresses import target_of
from dataplane.switch.arguments import AttachedPort, SwitchSettings, bmv2_command_line
from dataplane.switch.drop_in.shims import is_shim
from dataplane.switch.traffic import PortSettings

EXECUTABLE = "simple_switch_grpc"
_POLL_S = 0.02
_HELP_S = 20.0
_THRIFT_OPTION = "--thrift-port"


def is_installed() -> bool:
    """Return whether simple_switch_grpc is on the PATH: bmv2's, not our shim of the same name."""
    return _find() is not None


def _find() -> str | None:
    paths = (shutil.which(EXECUTABLE, path=folder) for folder in os.get_exec_path())
    return next((path for path in paths if path is not None and not is_shim(Path(path))), None)


def command(settings: SwitchSettings) -> list[str]:
    """Return the command that starts bmv2; raise SwitchError if it is not installed or cannot satisfy the settings.

    bmv2 limits packets per second, not bits, and supports no delay, hence no jitter: ports with a rate or delay are
    refused (see `without_cables`). It has eight priorities, like ours, and its own Thrift port if it was built
    with Thrift: a second instance would find port 9090 taken, and exit.
    """
    path = _find()
    if path is None:
        raise SwitchError(f"{EXECUTABLE} is not on the PATH: install bmv2, or use the built-in switch")
    for port in settings.ports:
        if port.settings.rate_bps is not None or port.settings.delay_ns:
            raise SwitchError(f"port {port.settings.number}: {EXECUTABLE} has no rate in bit/s and no delay")
    settings = replace(settings, grpc_address=target_of(settings.grpc_address))
    return [path, *thrift_words(path), *bmv2_command_line(settings), "--priority-queues", "8"]


def thrift_words(path: str = EXECUTABLE) -> list[str]:
    """Return the arguments that give a simple_switch_grpc a free Thrift port; none if it was built without Thrift."""
    return [_THRIFT_OPTION, str(_free_port())] if _has_thrift(path) else []


@lru_cache
def _has_thrift(path: str) -> bool:
    """Return whether an executable has the option; raise SwitchError if it cannot be run."""
    try:
        result = subprocess.run(  # noqa: S603 - bmv2, no shell
            [path, "--help"], capture_output=True, text=True, check=False, timeout=_HELP_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SwitchError(f"{path} --help: {error}") from error
    return _THRIFT_OPTION in result.stdout


def _free_port() -> int:
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - where bmv2's Thrift server listens
        port: int = server.getsockname()[1]
        return port


def without_cables(settings: SwitchSettings) -> SwitchSettings:
    """Return the settings without rates, delays and queue lengths, and with a log level that bmv2 accepts."""
    ports = tuple(AttachedPort(PortSettings(port.settings.number), port.device) for port in settings.ports)
    return replace(settings, ports=ports)


class Bmv2Process:
    """simple_switch_grpc while the `with` block lasts; its output goes to the log file of the settings."""

    def __init__(self, settings: SwitchSettings) -> None:
        self.settings = settings
        self._command = command(settings)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Bmv2Process:
        self._process = subprocess.Popen(  # noqa: S603 - the command above, no shell
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def wait_ready(self, timeout_s: float = 20.0) -> None:
        """Return once P4Runtime responds; raise SwitchError if bmv2 exits or is too late."""
        process = self._process
        if process is None:
            raise SwitchError(f"{EXECUTABLE} has not been started")
        wait_listening(target_of(self.settings.grpc_address), timeout_s, lambda: process.poll() is None)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop it, with force after `timeout_s`; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        if not wait_for_exit(process, timeout_s, f"the end of {EXECUTABLE}"):
            process.kill()
            process.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def wait_listening(address: str, timeout_s: float, is_alive: Callable[[], bool]) -> None:
    """Return once a server accepts at 'host:port' or 'unix:path'; raise SwitchError if its process exits first."""
    deadline = LocalDeadline(timeout_s, f"the start of {EXECUTABLE}")
    while not is_listening(address):
        if not is_alive():
            raise SwitchError(f"{EXECUTABLE} exited before it answered on {address}")
        if deadline.has_passed():
            raise SwitchError(f"{EXECUTABLE} does not answer on {address} after {timeout_s} s")
        time.sleep(_POLL_S)


def is_listening(address: str) -> bool:
    """Return whether a server accepts connections at 'host:port' or 'unix:path'."""
    try:
        if address.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True
