"""Backends of the engines in tests, behind the one interface that the engines' suite uses."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from controller.workloads.centres.engines.base import JOB_ENDED, Engine, JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.engines.ray import RayEngine, RaySettings
from controller.workloads.centres.engines.slurm import SlurmEngine, SlurmSettings
from controller.workloads.centres.settings import ControlGroups, LocalSettings, UnitSettings
from controller.workloads.centres.units import Found
from dataplane.local.deadline import local_timeout
from tests.controller.workloads.centres.engines.doors import PortDoor
from tests.controller.workloads.centres.engines.ray_cluster import RayCluster
from tests.controller.workloads.centres.engines.slurm_cluster import SlurmCluster
from tests.left_processes import kill_those_of
from tests.sandboxes import local_settings
from tests.waiting import until

DEADLINE_S = 60.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class World(Protocol):
    """A real backend for jobs, and the folder of the jobs' folders."""

    unit: str
    """A unit type of which a job can get two."""
    root: Path
    centre: str
    """Centre used only by this test; the backend may hold other centres' jobs, too."""

    def engine(self, centre: str | None = None, deadline_s: float = 10.0) -> Engine:
        """Return a new engine, as made by a starting agent."""
        ...

    def gate(self, order: JobOrder) -> Path:
        """Return a folder shared by test and job, in the job as $GATE."""
        ...

    def has_process(self, number: int, name: str) -> bool:
        """Return whether a process of a job is running; the number is the job's."""
        ...

    def close(self) -> None:
        """Release everything not shared by all tests."""
        ...

    def hanging(self) -> AbstractContextManager[None]:
        """Let the backend hang for a while."""
        ...

    def away(self) -> AbstractContextManager[None]:
        """Stop and restart the queried service; running jobs continue."""
        ...

    def smaller(self) -> AbstractContextManager[None]:
        """Remove some units."""
        ...


class OnThisMachine:
    """Worlds whose jobs see the files and processes of this machine."""

    def gate(self, order: JobOrder) -> Path:
        """The job's own folder."""
        return order.folder

    def has_process(self, number: int, name: str) -> bool:
        """It is a process of this machine."""
        file = Path(f"/proc/{number}/comm")
        return file.exists() and file.read_text().strip() == name


class LocalWorld(OnThisMachine):
    """Processes of this machine."""

    unit = "core"

    def __init__(self, root: Path) -> None:
        self.root, self.centre = root, root.name
        self._cores = tuple(sorted(os.sched_getaffinity(0)))

    def close(self) -> None:
        """End a test's leftovers, which are many if it failed."""
        kill_those_of(self.root)

    def engine(self, centre: str | None = None, deadline_s: float = 10.0) -> LocalEngine:
        """Return an engine; a restarted one finds the state of its predecessor."""
        name = centre or self.centre
        settings = local_settings(control_groups=ControlGroups.NEVER, look_s=0.05)
        units = (UnitSettings(name=self.unit, count=2, cores=1),)
        return LocalEngine(settings, units, self.root / "local" / name, f"/millrace-test-{name}", self._look)

    def hanging(self) -> AbstractContextManager[None]:
        """No other service is involved."""
        pytest.skip("processes need no other service")

    def away(self) -> AbstractContextManager[None]:
        """No other service is involved."""
        pytest.skip("processes need no other service")

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """Remove cores."""
        before = self._cores
        self._cores = before[:1]
        try:
            yield
        finally:
            self._cores = before

    def _look(self, _: LocalSettings) -> Found:
        return Found(self._cores, 1000 * len(self._cores))


class SlurmWorld(OnThisMachine):
    """A cluster of three nodes."""

    unit = "batch"

    def __init__(self, cluster: SlurmCluster, root: Path) -> None:
        self.cluster, self.root, self.centre = cluster, root, root.name

    def close(self) -> None:
        """The cluster stays for the next test."""

    def engine(self, centre: str | None = None, deadline_s: float = 10.0, **more: Any) -> SlurmEngine:
        """Return an engine for the cluster."""
        if "user" not in more:
            more["unsafe_same_user"] = True  # the tests are root
        # This slurmctld forgets jobs two seconds after their end.
        more.setdefault("unsafe_trust_folders", True)
        settings = SlurmSettings(configuration=self.cluster.configuration, poll_s=0.05, deadline_s=deadline_s, **more)
        name = centre or self.centre
        return SlurmEngine(settings, centre=name, records=self.root / f"records-{name}")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Pause slurmctld at any point."""
        with self.cluster.frozen_controller():
            yield

    @contextmanager
    def away(self) -> Iterator[None]:
        """End slurmctld."""
        self.cluster.stop_controller()
        yield
        self.cluster.start_controller()
        self.cluster.wait_for_controller()

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """Drain a node."""
        self.cluster.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
        try:
            yield
        finally:
            self.cluster.run("scontrol", "update", "NodeName=n2", "State=RESUME")


class RayWorld(OnThisMachine):
    """A cluster of two nodes behind a door."""

    unit = "slot"

    def __init__(self, cluster: RayCluster, root: Path) -> None:
        self.cluster, self.root, self.centre = cluster, root, root.name
        self._door = PortDoor(cluster.port)

    def close(self) -> None:
        """Close the door."""
        self._door.close()

    def engine(self, centre: str | None = None, deadline_s: float = 10.0) -> RayEngine:
        """Return an engine for the cluster."""
        address, token_file = f"http://127.0.0.1:{self._door.port}", self.cluster.token_file
        settings = RaySettings(address=address, token_file=token_file, deadline_s=deadline_s, poll_s=0.1)
        name = centre or self.centre
        return RayEngine(settings, centre=name, records=self.root / f"records-{name}")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Pause the dashboard at any point."""
        with self.cluster.frozen():
            yield

    def away(self) -> AbstractContextManager[None]:
        """Close the door."""
        return self._door.shut()

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """End a node."""
        self.cluster.stop_other()
        try:
            yield
        finally:
            self.cluster.start_other()


def order(world: World, task: str, *argv: str, **more: Any) -> JobOrder:
    """Return a task's order; `more` sets fields such as the mark's epoch and centre."""
    mark = JobMark(
        more.pop("centre", world.centre),
        task,
        more.pop("uid", f"{abs(hash(task)):016x}"),
        more.pop("epoch", 1),
        more.pop("is_probe", False),
    )
    given: dict[str, Any] = {"unit": world.unit, "units": 1, "environment": ENVIRONMENT, "grace_s": 0.3, **more}
    made = JobOrder(mark=mark, argv=argv, folder=world.root / f"{task}-{mark.epoch}", **given)
    return replace(made, environment={**made.environment, "GATE": str(world.gate(made))})


_STARTED: list[Engine] = []


async def started(world: World, **more: Any) -> Engine:
    """Return a started engine; it is closed after the script."""
    engine = world.engine(**more)
    _STARTED.append(engine)
    await engine.start()
    return engine


def play(script: Callable[[], Awaitable[None]]) -> None:
    """Run a test's script with a deadline."""

    async def within() -> None:
        try:
            async with local_timeout(DEADLINE_S, "a test"):
                await script()
        finally:
            while _STARTED:
                await _STARTED.pop().close()

    asyncio.run(within())


async def ended(engine: Engine, *jobs: str) -> Mapping[str, JobState]:
    """Wait for the end of jobs; return how they ended."""
    return await in_phases(engine, jobs, JOB_ENDED)


async def running(engine: Engine, *jobs: str) -> Mapping[str, JobState]:
    """Wait until jobs run."""
    return await in_phases(engine, jobs, (JobPhase.RUNNING,))


async def in_phases(engine: Engine, jobs: tuple[str, ...], phases: tuple[JobPhase, ...]) -> Mapping[str, JobState]:
    """Wait until all jobs are in one of some phases; return their states."""
    states: Mapping[str, JobState] = {}

    async def are_there() -> bool:
        nonlocal states
        states = await engine.states(jobs)
        assert all(state.phase in phases or state.phase not in JOB_ENDED for state in states.values()), states
        return all(state.phase in phases for state in states.values())

    await until(are_there, lambda: states, limit_s=DEADLINE_S, poll_s=0.02)
    return states


async def until_there(path: Path) -> str:
    """Wait for a file that a job writes; return its text."""
    await until(lambda: path.exists() and path.read_text() != "", f"no {path}", limit_s=DEADLINE_S, poll_s=0.02)
    return path.read_text()
