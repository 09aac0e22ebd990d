"""The places: three centres of this machine, differently limited, a fabric between them, and the API server.

One centre runs at a time, as they would disturb one another. Hosts h1 to h3 are the centres', h4 is the second worker's
of the all-reduce; both directions of each cable are shaped to its rate by TBF.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from pyroute2 import IPRoute

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.base import Metadata
from controller.apiserver.resources.probe_result import ProbeRun
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.apiserver.tokens import TokenRequest
from controller.apps.demo.training.fabric import SWITCH
from dataplane.cgroups import group_of
from dataplane.config import document_of
from dataplane.errors import MillraceError
from dataplane.fabric.kernel import HOST_DEVICE, switch_device
from dataplane.rpc.access import Role
from tests.benchmarks.probing.exchange import PEER
from tests.integration.allreduce_namespaces import AggregationFabric
from tests.waiting import comes_true

ROOT: Final = Path(__file__).parents[3]
UNIT: Final = "slice"
_WAIT_S: Final = 180.0
_TASK_S, _PROBE_S = 600.0, 60.0
_PORT, _PULL_PORT = 7000, 7001
_FASTEST_BPS: Final = 100_000_000
_BURST_BYTES, _QUEUE_BYTES = 16 << 10, 512 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """Share of a centre in the machine: units of a core each, CPU time (thousandths) and memory per unit, link rate."""

    name: str
    host: str
    cores: str
    units: int
    cpu_milli: int | None
    memory_bytes: int
    rate_bps: int

    @property
    def line(self) -> str:
        """As people read it."""
        share = "a core" if self.cpu_milli is None else f"{self.cpu_milli / 10:g} % of a core"
        memory, rate = self.memory_bytes >> 20, self.rate_bps / 1e6
        return f"{self.units} x {share} and {memory} MiB, {rate:g} Mbit/s"


CENTRES: Final = (
    Limits("wide", "h1", "0-1", 2, None, 2 << 30, 60_000_000),
    Limits("narrow", "h2", "1", 1, 800, 1 << 30, 25_000_000),
    Limits("capped", "h3", "1", 1, 500, 512 << 20, 40_000_000),
)
"""Chosen before there were results: no two alike in anything, links slow enough for a switch on the same cores."""
_PEER_HOST: Final = "h4"


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished task: its run time, from its processes' start to their end, and a probe's measurements."""

    run_time_s: float
    runs: tuple[ProbeRun, ...] = ()


class Places:
    """Fabric, API server and other processes while the `with` block lasts; needs root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Place(f"unix:{folder}/api.sock")
        self.client = SyncApiClient(self.place)
        self._fabric = AggregationFabric(len(CENTRES) + 1, _FASTEST_BPS, shaped=False)
        self._peer = ""
        self._shaped: set[str] = set()
        self._secret = folder / "pull.secret"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.client.close)
            settings = ApiSettings(storage=StoragePlace(sqlite=f"{self.folder}/db"), listen=(self.place.address,))
            stack.enter_context(self._daemon("api", settings, "api", "serve", "-s"))
            _until(self._answers, "the API server answers")
            stack.enter_context(self._fabric)
            self._shape(_PEER_HOST, _FASTEST_BPS)
            self._start_peer()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def centre(self, limits: Limits, kernels: Iterable[str]) -> Iterator[None]:
        """Have a centre, ready and with some kernels tried, while the block lasts."""
        with self._daemon(limits.name, self._settings(limits, kernels), "centre", "serve", "-s"):
            _until(lambda: self._is_ready(limits.name), f"centre {limits.name} is ready", self._log(limits.name))
            if limits.name not in self._shaped:  # not before its kernels are tried: a pull of 64 MiB would take long
                self._shaped.add(limits.name)
                self._shape(limits.host, limits.rate_bps)
            yield
        _remove_groups(limits.name)

    def run(self, limits: Limits, name: str, program: Program, *, repetitions: int = 1) -> Ran:
        """Run a task at a running centre, on its one unit; raise MillraceError if it fails."""
        is_probe = program.kind is ProgramKind.PROBE
        spec = TaskSpec(program=program, is_probe=is_probe, repetitions=repetitions, limit_s=_TASK_S)
        self.client.of(Task).create(Task(metadata=Metadata(name=name), spec=spec))
        self.client.dispatch(DispatchRequest(dispatches=(Dispatch(name, limits.name, UNIT, 1),)))
        task = self._ended(name, _PROBE_S, 0.8) if is_probe else self._ended(name, _TASK_S, 2.0)
        status = task.status
        if status.phase is not TaskPhase.SUCCEEDED or status.run_time_s is None:
            raise MillraceError(f"task {name} at {limits.name}: {status.phase.value}: {'; '.join(status.reasons)}")
        result = None if status.result is None else self.client.of(ProbeResult).get(status.result)
        runs = () if result is None else result.status.runs
        return Ran(status.run_time_s, runs)

    def _ended(self, name: str, patience_s: float, first_s: float) -> Task:
        """Return a task once it has ended; polling disturbs the measurement, so it is rare."""
        end_s = time.monotonic() + patience_s
        time.sleep(first_s)
        while (task := self.client.of(Task).get(name)).status.phase not in TASK_ENDED:
            if time.monotonic() > end_s:
                self.client.of(Task).delete(name)
                why = "; ".join(task.status.reasons)
                raise MillraceError(f"task {name}: still {task.status.phase.value} after {patience_s:g} s: {why}")
            time.sleep(first_s / 2)
        return task

    # what runs

    def _settings(self, limits: Limits, kernels: Iterable[str]) -> dict[str, Any]:
        token = self.folder / f"{limits.name}.token"
        if not token.exists():
            made = self.client.create_token(TokenRequest(name=limits.name, role=Role.CENTRE, subject=limits.name))
            token.touch(0o600)
            token.write_text(made.token, encoding="ascii")
        unit = {"name": UNIT, "cores": 1, "count": limits.units, "memory_bytes": limits.memory_bytes}
        if limits.cpu_milli is not None:
            unit["cpu_milli"] = limits.cpu_milli
        namespace = f"/run/netns/{self._fabric.fabric.namespace(limits.host)}"
        return {
            "centre": limits.name,
            "state": str(self.folder / limits.name),
            "api": self.place.address,
            "token_file": str(token),
            "hosts": [limits.host],
            "units": [unit],
            "local": {
                "cores": limits.cores,
                "network_namespace": namespace,
                "control_groups": "always",
                "warm": ["torch", "numpy"],
                "unsafe_same_user": True,  # as the warm process takes it; all tasks are the benchmark's
            },
            "trial": {"kernels": sorted(kernels)},
            "environment": {
                PEER: f"{self._peer}:{_PORT}",
                "MILLRACE_PULL_FROM": f"{self._peer}:{_PULL_PORT}",
                "MILLRACE_PULL_SECRET_FILE": str(self._secret),
                "PYTHONPATH": str(ROOT),
            },
        }

    @contextmanager
    def _daemon(self, name: str, settings: object, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a daemon of Millrace until the block ends."""
        file, log = self.folder / f"{name}.yaml", self._log(name)
        file.write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with log.open("ab") as out:
            command = [sys.executable, "-m", "controller.apps.cli", *words, str(file)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _answers(self) -> bool:
        try:
            self.client.of(Centre).list()
        except MillraceError:
            return False
        return True

    def _is_ready(self, name: str) -> bool:
        """Return whether a centre is ready, its kernels tried."""
        centres = {centre.metadata.name: centre for centre in self.client.of(Centre).list().items}
        return (
            name in centres
            and centres[name].status.ready
            and any(unit.operators for unit in centres[name].status.units)
        )

    def _start_peer(self) -> None:
        address = str(self._fabric.topology.host[_PEER_HOST].ipv4)
        self._peer = address
        words = ["--listen", f"{address}:{_PULL_PORT}", "--secret-file", str(self._secret), "--for", "7200"]
        self._fabric.fabric.run_in(
            _PEER_HOST,
            [sys.executable, "-m", "controller.apps.cli", "probe", "kernels", "serve", *words],
            stdout=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        _until(lambda: self._secret.exists() and self._secret.stat().st_size > 0, "what is pulled from is served")
        command = [sys.executable, "-m", "tests.benchmarks.probing.exchange", address, str(_PORT)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        peer = self._fabric.fabric.run_in(_PEER_HOST, command, stdout=subprocess.PIPE, env=environment)
        assert peer.stdout is not None
        if peer.stdout.readline() != b"ready\n":
            raise MillraceError("the second worker of the all-reduce has not started")

    def _shape(self, host: str, rate_bps: int) -> None:
        """Shape both ends of a host's cable."""
        port = self._fabric.topology.attachment[host].port
        for node, device in ((host, HOST_DEVICE), (SWITCH, switch_device(port))):
            self._fabric.fabric.call_in(node, partial(_add_tbf, device, rate_bps))


def _add_tbf(device: str, rate_bps: int) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.tc("add", "tbf", index, 0x10000, rate=rate_bps // 8, burst=_BURST_BYTES, limit=_QUEUE_BYTES)


def _remove_groups(centre: str) -> None:
    """Remove what an agent leaves for its successor, as there is none: control groups without processes."""
    for top in set(group_of().tops.values()):
        for group in top.glob(f"millrace/centres/{centre}-*"):
            for folder, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()


def _until(condition: Callable[[], bool], what: str, log: Path | None = None) -> None:
    """Wait until a condition holds; raise MillraceError, with a log's last line, if it never does."""
    if not comes_true(condition, limit_s=_WAIT_S, poll_s=0.1):
        lines = [] if log is None else log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise MillraceError(f"never: {what}{': ' + lines[-1] if lines else ''}")
