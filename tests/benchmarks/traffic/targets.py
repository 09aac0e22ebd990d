"""The switches under test as processes on the same devices: ours, and bmv2's simple_switch_grpc."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dataplane.errors import SwitchError
from dataplane.fabric.kernel import namespaces
from dataplane.switch.bmv2 import EXECUTABLE, is_installed, thrift_words
from tests.p4runtime_client import Client, connect
from tests.waiting import comes_true

DEVICE_ID = 1
_START_LIMIT_S = 30.0
_LOG_FORMAT = b"Looking up key:"
"""A format of bmv2's that is in its binary only where the logging macros are."""
_BMV2_LIBRARY = re.compile(r"=> (\S*/lib(?:bm|simple)\S*)")

COMPILED, INTERPRETER, BMV2 = "millrace", "millrace, interpreter", "bmv2"
COMPILED_XDP = "millrace, AF_XDP"
_OPTIONS = {INTERPRETER: ("--pipeline", "interpreter"), COMPILED_XDP: ("--io", "xdp")}


class Attached(Protocol):
    """Location of a switch, and its devices there by port."""

    @property
    def switch(self) -> str:
        """The namespace."""
        ...

    @property
    def ports(self) -> Mapping[int, str]:
        """The devices."""
        ...


@dataclass(frozen=True, slots=True)
class Running:
    """A switch that answers: its process and its primary."""

    pid: int
    client: Client


def is_available(target: str) -> bool:
    """Return whether a target can be started here."""
    return target != BMV2 or is_installed()


def bmv2_build() -> str:
    """Return bmv2's version and whether its logging macros are compiled in; the compiler's flags are not in the binary.

    Macros cost time at any log level; `./configure` has them unless told `--disable-logging-macros`.
    """
    path = shutil.which(EXECUTABLE)
    if path is None:
        raise SwitchError(f"{EXECUTABLE} is not on the PATH")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    files = [Path(path), *map(Path, _BMV2_LIBRARY.findall(linked))]
    has_macros = any(_LOG_FORMAT in file.read_bytes() for file in files)
    return f"{version}, {'with' if has_macros else 'without'} logging macros, run with --log-level off"


@contextmanager
def running(target: str, cables: Attached | None, options: Sequence[str] = ()) -> Iterator[Running]:
    """Start a switch without a program on the cables, or without ports; it is gone when the `with` block ends."""
    with tempfile.TemporaryDirectory(prefix="bench-switch") as folder:
        address = f"unix:{folder}/p4rt"
        process = _start(_command(target, cables, address, options), cables, quiet=target == BMV2)
        try:
            _wait_listening(process, Path(folder) / "p4rt")
            with connect(address, DEVICE_ID) as client:
                yield Running(process.pid, client)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(command: Sequence[str], cables: Attached | None, *, quiet: bool) -> subprocess.Popen[bytes]:
    """Start a process where its devices are; bmv2 reports every file that it looks for in vain, which says nothing."""
    stderr = subprocess.DEVNULL if quiet else None
    if cables is None:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    return namespaces.start(cables.switch, command, stdout=subprocess.DEVNULL, stderr=stderr)


def _command(target: str, cables: Attached | None, address: str, options: Sequence[str]) -> list[str]:
    devices = {} if cables is None else cables.ports
    ports = [word for port, device in devices.items() for word in ("-i", f"{port}@{device}")]
    general = ["--device-id", str(DEVICE_ID), "--log-level", "off", *ports, "--no-p4"]
    own = ["--grpc-server-addr", address, "--cpu-port", "255"]
    if target == BMV2:
        return [EXECUTABLE, *thrift_words(), *general, "--", *own, "--priority-queues", "8"]
    extra = _OPTIONS.get(target, ())
    return [sys.executable, "-m", "controller.apps.cli", "switch", *general, *extra, *options, "--", *own]


def _wait_listening(process: subprocess.Popen[bytes], path: Path) -> None:
    has_settled = comes_true(lambda: path.exists() or process.poll() is not None, limit_s=_START_LIMIT_S, poll_s=0.02)
    if not path.exists():
        state = f"ended with {process.returncode}" if has_settled else "does not answer"
        raise SwitchError(f"{process.args!r} {state}")
