"""Hosts in namespaces around one switch, the controller with its job service, and workers that are processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec
import yaml

from collectors.feed.server import FeedSettings
from collectors.process import CollectorProcessSettings
from collectors.values import JobState
from controller.apps.cli.network.feed import ask, snapshot_of
from controller.apps.demo.training.fabric import star
from controller.common.standby.settings import StandbySettings
from controller.network.aggregation.service.client import JobClient, JobClientSettings
from controller.network.aggregation.service.messages import JobRow
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.settings import AggregationSettings
from controller.network.content.settings import StoreSettings
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.gnmi.settings import Hellos
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.config import document_of
from dataplane.fabric.kernel import KernelFabric
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.topology.file import dumps
from dataplane.topology.values import Topology
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
MS = 1_000_000
WAIT_S = 60.0
RATE_BPS = 1_000_000_000
JOBS = JobSettings(lease_ns=6000 * MS, reconnect_ns=300 * MS, return_ns=10_000 * MS, hold_ns=20_000 * MS, window=64)
COLLECTOR = "c1"
AGGREGATION = AggregationSettings(report_every=1, dead_after_ns=2000 * MS, interval_ns=100 * MS)


class JobFabric:
    """A star, or another topology, in the kernel under a controller while the `with` block lasts; needs root."""

    def __init__(
        self,
        workers: int,
        jobs: JobSettings = JOBS,
        *,
        topology: Topology | None = None,
        aggregation: AggregationSettings = AGGREGATION,
        watches: tuple[Watch, ...] = (),
        store: StoreSettings | None = None,
        worker: str = "tests.integration.job_worker",
        standby: StandbySettings | None = None,
    ) -> None:
        """Start workers by the module `worker`; a controller with `standby` is one of a pair."""
        self._worker, self._standby = worker, standby
        self.topology = topology or star(workers, RATE_BPS, collector=COLLECTOR)
        self.fabric = KernelFabric(self.topology)
        self.processes: list[subprocess.Popen[bytes]] = []
        """The daemons."""
        self._jobs, self._aggregation, self._watches, self._store = jobs, aggregation, watches, store
        self._stack = ExitStack()
        self._workers: list[WorkerProcess] = []

    def __enter__(self) -> Self:
        # Compiled here, without a time limit; the switch finds it in the cache.
        compile_program(load_program(*reversed(fabric_program(FABRIC_AGGREGATION))), Purpose.FORWARDING)
        with ExitStack() as stack:
            stack.enter_context(self.fabric)
            self.fabric.wait_ready(WAIT_S)
            self._nursery = stack.enter_context(_process(self._worker))
            stack.callback(self._kill_workers)
            self._start_collector(stack)
            self._controller = self._start_daemon(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kill_controller(self) -> None:
        """Kill the controller (SIGKILL)."""
        self.processes.remove(self._controller)
        self._controller.kill()
        self._controller.wait()

    def start_controller(self) -> None:
        """Start it again, and wait until its switches are reconciled."""
        self._controller = self._start_daemon(self._stack)

    def start_second_controller(self) -> None:
        """Start the other one of a pair, which stands by."""
        self._start_daemon(self._stack, "second")
        until(lambda: "standing by as second" in self._log("second"), "a controller that stands by")

    def until_second_is_active(self) -> None:
        """Wait until it has taken over and reconciled the switches."""
        until(lambda: "reconciled, " in self._log("second"), "a takeover")

    def until_all_connected(self) -> None:
        """Wait until the workers of all jobs have returned."""

        def are_there() -> bool:
            return all(member.state == "working" for job in self.jobs() for member in job.members)

        until(are_there, "workers that return")

    def _log(self, name: str) -> str:
        path = self.fabric.run_dir / f"{name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def jobs(self) -> list[JobRow]:
        """Return the jobs as the service lists them."""

        async def listed() -> list[JobRow]:
            async with JobClient(JobClientSettings(address=self.address)) as client:
                return list(await client.jobs())

        return asyncio.run(listed())

    def _kill_workers(self) -> None:
        for worker in self._workers:
            worker.kill()

    @property
    def address(self) -> str:
        """Address of the job service, reachable from all namespaces; of a pair both, separated by a comma."""
        names = ("controller",) if self._standby is None else ("controller", "second")
        return ",".join(map(self._jobs_at, names))

    def _jobs_at(self, name: str) -> str:
        return f"unix:{self.fabric.run_dir}/jobs-of-{name}"

    @property
    def feed(self) -> str:
        """Address of the collector's feed."""
        return f"unix:{self.fabric.run_dir}/feed"

    def watched_jobs(self) -> list[JobState]:
        """Return the jobs as the collector sees them now."""
        return list(ask(self.feed, snapshot_of).jobs.values())

    def _start_collector(self, stack: ExitStack) -> None:
        """Start a collector in its host's namespace, and wait until it serves."""
        folder = self.fabric.run_dir
        (folder / "star.yaml").write_text(dumps(self.topology), encoding="utf-8")
        settings = CollectorProcessSettings(topology=str(folder / "star.yaml"), feed=FeedSettings(address=self.feed))
        (folder / "collector.yaml").write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        log = stack.enter_context((folder / "collector.log").open("w+", encoding="utf-8"))
        assert self.topology.collector is not None
        start = partial(self.fabric.run_in, self.topology.collector.host)
        arguments = ("collector", "serve", "-s", str(folder / "collector.yaml"))
        self.processes.append(stack.enter_context(_process("controller.apps.cli", *arguments, log=log, start=start)))
        until(lambda: "ready" in (folder / "collector.log").read_text(encoding="utf-8"), "a collector that is ready")

    def _start_daemon(self, stack: ExitStack, name: str = "controller") -> subprocess.Popen[bytes]:
        """Start a controller, and wait until its switches are reconciled, unless it is the second of a pair."""
        folder, standby = self.fabric.run_dir, self._standby
        if standby is not None:
            standby = msgspec.structs.replace(standby, sqlite=str(folder / "lease.db"), holder=name)
        settings = DaemonSettings(
            topology=str(folder / "star.yaml"),
            switches={node.name: self.fabric.p4runtime_address(node.name) for node in self.topology.switches},
            watches=self._watches,
            jobs=msgspec.structs.replace(self._jobs, listen=self._jobs_at(name)),
            collector=self.feed,
            aggregation=self._aggregation,
            store=self._store,
            standby=standby,
            retry=RetrySettings(longest_wait_ns=200 * MS),
            # On a busy machine hellos come late: a link that counts as dead would refuse the jobs.
            hellos=Hellos(multiplier=20),
        )
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
        log = stack.enter_context((folder / f"{name}.log").open("a+", encoding="utf-8"))
        arguments = ("controller", "serve", "-s", str(folder / f"{name}.yaml"))
        count = self._log(name).count("reconciled, ") + len(settings.switches)
        process = stack.enter_context(_process("controller.apps.cli", *arguments, log=log))
        self.processes.append(process)
        if name == "controller":
            until(lambda: self._log(name).count("reconciled, ") >= count, "switches that are reconciled")
        return process

    def start_worker(self, host: str, workers: int) -> WorkerProcess:
        """Start a worker in its host's namespace."""
        out = self.fabric.run_dir / f"{host}.{len(self._workers)}.jsonl"
        order = {"address": self.address, "host": host, "workers": workers, "out": str(out)}
        nursery = self._nursery
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(json.dumps(order | {"namespace": self.fabric.namespace(host)}).encode() + b"\n")
        nursery.stdin.flush()
        worker = WorkerProcess(int(nursery.stdout.readline()), out)
        self._workers.append(worker)
        return worker


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker, and its output file."""

    pid: int
    out: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Complete lines of output so far."""
        text = self.out.read_text(encoding="utf-8") if self.out.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def sums(self) -> dict[int, int]:
        """Sums by the all-reduce's number."""
        return {line["count"]: line["sum"] for line in self.lines if "sum" in line}

    @property
    def error(self) -> str | None:
        """Final error, if any."""
        return next((line["error"] for line in self.lines if "error" in line), None)

    def wait_for_sum(self, total: int, after: int = -1) -> int:
        """Return the number of the first all-reduce after `after` with this sum."""

        def first() -> int | None:
            return next((count for count, value in self.sums.items() if count > after and value == total), None)

        until(lambda: first() is not None or self.error is not None, f"a sum of {total} in {self.out.name}")
        count = first()
        assert count is not None, self.error
        return count

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds, for longer than other tests: daemons and namespaces are started."""
    wait_until(condition, f"never: {what}", limit_s=WAIT_S)


@contextmanager
def _process(
    module: str,
    *arguments: str,
    log: IO[str] | None = None,
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module as a process until the block ends; its stderr goes to `log`."""
    process = start(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
