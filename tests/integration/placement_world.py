"""The API server, a scheduler, the workload controller and managers with podman, in one process; the user's
commands against them; and, around them, hosts in namespaces with switches between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from typer.testing import CliRunner

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.process import serve as serve_api
from controller.apiserver.resources import Node, Pod
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.apiserver.tokens import TokenRequest
from controller.apps.cli.app import app
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.scheduling.process import serve as serve_scheduler
from controller.scheduling.settings import SchedulerSettings
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from controller.workloads.nodes.settings import NodeSettings, OnStop, RestartSection
from controller.workloads.placement.process import serve as serve_placement
from controller.workloads.placement.settings import PlacementSettings
from dataplane.config import document_of
from dataplane.errors import MillraceError
from dataplane.fabric.kernel import KernelFabric
from dataplane.rpc.access import Role
from dataplane.topology.file import load_topology
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.waiting import wait_until

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
QUICK = RestartSection(first_wait_s=0.1, longest_wait_s=1.0)

TOPOLOGY = """
millrace: 1
name: {name}
defaults: {{access: {{rate: 1 Gbit/s, delay: 1 us}}}}
switches: [{{name: s1}}, {{name: s2}}]
hosts:
  - {{name: h1, switch: s1, cores: 4, memory: [{{kind: dram, capacity: 8 GiB}}]}}
  - {{name: h2, switch: s1, cores: 4, memory: [{{kind: dram, capacity: 8 GiB}}],
      devices: [{{kind: gpu, model: T4, count: 1}}]}}
  - {{name: h3, switch: s2, cores: 4, memory: [{{kind: dram, capacity: 8 GiB}}]}}
  - {{name: h4, switch: s2, cores: 4, memory: [{{kind: dram, capacity: 8 GiB}}]}}
  - {{name: h5, switch: s2, cores: 4, memory: [{{kind: dram, capacity: 8 GiB}}]}}
links: [{{a: s1, b: s2, rate: 100 Mbit/s, delay: 5 us}}]
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Output and exit status of a command."""

    out: str
    err: str
    code: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(slots=True)
class Daemon:
    """A daemon that runs as a task of the world's loop, with its ready line."""

    task: Future[None]
    stop: Callable[[], object]
    ready: threading.Event = field(default_factory=threading.Event)


class PlacementWorld:
    """See the module; daemons run in an event loop in their own thread."""

    def __init__(self, folder: Path, storage: PodmanStorage, *, schedules: bool = True) -> None:
        """Without `schedules` the scheduler is the test's own."""
        self.folder, self.storage, self._schedules = folder, storage, schedules
        self.topology = folder / "topology.yaml"
        self.topology.write_text(TOPOLOGY.format(name=f"p{os.getpid() % 10_000}"), encoding="utf-8")
        self.place = Place(f"unix:{folder}/api.sock")
        self._loop = asyncio.new_event_loop()
        self._stack = ExitStack()
        self.client = SyncApiClient(self.place)

    def __enter__(self) -> PlacementWorld:
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        self._stack.callback(self._loop.close)
        self._stack.callback(thread.join)
        self._stack.callback(self._loop.call_soon_threadsafe, self._loop.stop)
        self._stack.callback(self.client.close)
        self.start(serve_api, ApiSettings(storage=StoragePlace(sqlite=str(self.folder / "db")),
                                          listen=(self.place.address,)))  # fmt: skip
        if self._schedules:
            settings = SchedulerSettings(api=self.place.address, topology=str(self.topology), name="s")
            self.start(serve_scheduler, settings)
        self.start(serve_placement, PlacementSettings(api=self.place.address))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, serve: Callable[..., Coroutine[Any, Any, None]], settings: object, *, ready: bool = True) -> Daemon:
        """Start a daemon, and wait for its ready line, or for its end; it is stopped with the world."""
        stop = asyncio.Event()
        began = threading.Event()

        async def run() -> None:
            await serve(settings, stop, on_ready=lambda _: began.set())

        task = asyncio.run_coroutine_threadsafe(run(), self._loop)
        daemon = Daemon(task, lambda: self._loop.call_soon_threadsafe(stop.set), began)
        self._stack.callback(self._end, daemon)
        if ready:
            self.until(lambda: began.is_set() or task.done(), "a daemon that is ready")
            if task.done():
                task.result()
        return daemon

    def _end(self, daemon: Daemon) -> None:
        daemon.stop()
        if daemon.task.exception(WAIT_S) is not None and daemon.ready.is_set():
            daemon.task.result()

    def node_settings(self, node: str, **more: Any) -> NodeSettings:
        """Return a manager's settings, with a token of the node's own."""
        settings = NodeSettings(
            node=node,
            state=str(self.folder / f"state-{node}"),
            api=self.place.address,
            token_file=str(self.token(node)),
            topology=str(self.topology),
            runtime=RuntimeSettings(environment=self.storage.environment, image_folders=self.storage.image_folders),
            restart=QUICK,
            report_s=0.3,
            look_s=1.0,
            on_stop=OnStop.STOP,
        )
        return msgspec.structs.replace(settings, **more)

    def token(self, node: str) -> Path:
        """Return the file of a token of a node."""
        file = self.folder / f"{node}.token"
        if not file.exists():
            made = self.client.create_token(TokenRequest(name=node, role=Role.NODE, subject=node))
            file.touch(0o600)
            file.write_text(made.token, encoding="ascii")
        return file

    @contextmanager
    def process(self, settings: NodeSettings, *, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Run a manager as a process until the block ends; `before` is Python that it executes first."""
        file = self.folder / f"{settings.node}.yaml"
        file.write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        code = f"{before}\nimport sys\nsys.argv[0] = 'millrace'\nfrom controller.apps.cli import main\nmain()\n"
        command = [sys.executable, "-c", code, "node", "serve", "-s", str(file)]
        with (self.folder / f"{settings.node}.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
            # The guard of a manager that never knew its pods, or was killed, ends with this.
            (Path(settings.state) / "lease").unlink(missing_ok=True)

    def until_ready(self, *nodes: str) -> None:
        """Wait until nodes have reported that they are ready."""

        def ready() -> set[str]:
            return {node.metadata.name for node in self.client.of(Node).list().items if node.status.ready}

        self.until(lambda: ready() >= set(nodes), f"{', '.join(nodes)} ready")

    def log(self, node: str) -> str:
        """Return the log of a manager process."""
        return (self.folder / f"{node}.log").read_text(encoding="utf-8")

    def run(self, line: str, script: str = "") -> CommandResult:
        """Run a command of the user's."""
        result = CliRunner().invoke(app, line.split(), input=script, env={"MILLRACE_API": self.place.address})
        error = result.exception
        if error is not None and not isinstance(error, SystemExit | MillraceError):
            raise error
        err = f"millrace: {error}\n" if isinstance(error, MillraceError) else ""
        return CommandResult(result.stdout, result.stderr + err, result.exit_code)

    def type(self, line: str, data: bytes) -> tuple[bytes, int]:
        """Run a command as a separate process, with an input; return its output and its exit status."""
        environment = {**os.environ, "MILLRACE_API": self.place.address}
        command = [sys.executable, "-m", "controller.apps.cli", *line.split()]
        completed = subprocess.run(
            command, input=data, env=environment, capture_output=True, check=False, timeout=WAIT_S
        )
        assert not completed.stderr, completed.stderr
        return completed.stdout, completed.returncode

    def apply(self, script: str, *options: str) -> CommandResult:
        """Apply a script; `IMAGE` in it is the storage's image."""
        result = self.run(f"pod apply -f - {' '.join(options)}", script.replace("IMAGE", self.storage.image))
        assert result.code == 0, result
        return result

    def pod(self, name: str) -> Pod:
        return self.client.of(Pod).get(name)

    def wait_for(self, name: str, holds: Callable[[Pod], object], what: str) -> Pod:
        """Return a pod once it satisfies a condition."""
        last: list[Pod] = []

        def look() -> bool:
            last[:] = [self.pod(name)]
            return bool(holds(last[0]))

        self.until(look, lambda: f"{name}: {what}: {last and last[0].status}")
        return last[0]

    def until(self, condition: Callable[[], bool], what: str | Callable[[], str], within_s: float = WAIT_S) -> None:
        """Wait until a condition holds."""
        wait_until(condition, lambda: f"never: {what() if callable(what) else what}", limit_s=within_s, poll_s=0.02)

    def containers(self) -> list[tuple[str, str, str]]:
        """Return node, pod and state of all containers that podman has."""
        text = self.podman("ps", "-a", "--format", "json")
        labels = [(container["Labels"] or {}, container["State"]) for container in json.loads(text)]
        return sorted((label["millrace.node"], label["millrace.pod"], state) for label, state in labels)

    def podman(self, *words: str) -> str:
        """Run podman behind its manager's back; return its output."""
        environment = {**os.environ, **self.storage.environment}
        command = ["podman", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, check=True, text=True, timeout=WAIT_S
        ).stdout


@contextmanager
def fabric_of(file: Path, folder: Path) -> Iterator[KernelFabric]:
    """Set up a topology in the kernel with forwarding switches while the block lasts."""
    topology = load_topology(str(file))
    with KernelFabric(topology) as fabric:
        settings = DaemonSettings(
            topology=str(file),
            switches={node.name: fabric.p4runtime_address(node.name) for node in topology.switches},
            retry=RetrySettings(longest_wait_ns=200_000_000),
        )
        path, log = folder / "controller.yaml", folder / "controller.log"
        path.write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        command = [sys.executable, "-m", "controller.apps.cli", "controller", "serve", "-s", str(path)]
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            fabric.wait_ready(WAIT_S)

            def are_reconciled() -> bool:
                assert process.poll() is None, log.read_text(encoding="utf-8")
                return log.read_text(encoding="utf-8").count("reconciled, ") >= len(settings.switches)

            wait_until(are_reconciled, lambda: log.read_text(encoding="utf-8"), limit_s=WAIT_S)
            yield fabric
        finally:
            process.kill()
            process.wait()
