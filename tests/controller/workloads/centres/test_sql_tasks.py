"""SQL tasks at a centre with real jobs: planned operators run on units, and what they took corrects expectations."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from controller.acceleration.running.tasks.values import RAN_FILE, Ran, Way
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest
from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.task import (
    TASK_ENDED,
    Program,
    ProgramKind,
    ProgramTable,
    TaskPhase,
    TaskSpec,
    TaskStatus,
)
from controller.apps.cli.task.sql import planned
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.learning import Learner
from controller.workloads.centres.settings import SqlSettings
from dataplane.topology.values import DeviceKind
from tests.controller.workloads.centres.centre_world import CentreWorld, open_folder, play_centre

SQL = "SELECT item % 3 AS kind, sum(price) FROM lines WHERE price < 500 GROUP BY kind ORDER BY kind"


def table(folder: Path) -> ProgramTable:
    """Write a table that a job can read."""
    rng = np.random.default_rng(1)
    file = open_folder(folder) / "lines.parquet"
    pq.write_table(pa.table({"item": rng.integers(0, 50, 20_000), "price": rng.integers(0, 1000, 20_000)}), file)
    file.chmod(0o644)
    return ProgramTable(file=str(file))


def task_of(lines: ProgramTable, name: str = "sums") -> Task:
    program = Program(kind=ProgramKind.SQL, text=SQL, tables={"lines": lines})
    return planned(Task(metadata=Metadata(name=name), spec=TaskSpec(program=program)))


def devices_of(task: Task, device: DeviceKind, seconds: float = 0.01) -> tuple[OperatorDevice, ...]:
    return tuple(
        OperatorDevice(operator=operator.name, device=device, seconds=seconds) for operator in task.spec.operators
    )


async def run(world: CentreWorld, task: Task, units: int, devices: tuple[OperatorDevice, ...]) -> Task:
    await world.client.of(Task).create(task)
    name = task.metadata.name
    dispatch = Dispatch(task=name, centre="c1", unit="core", units=units, operator_devices=devices)
    await world.client.dispatch(DispatchRequest(dispatches=(dispatch,)))
    return await world.until(name, *TASK_ENDED)


def test_operators_run_on_units_and_their_time_is_learned(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            task = task_of(table(tmp_path))
            done = await run(world, task, 1, devices_of(task, DeviceKind.CPU))
            assert done.status.phase is TaskPhase.SUCCEEDED, done.status.reasons
            summary, compared = done.status.reasons
            assert summary.startswith("3 rows by 1 worker in ")
            assert "s expected" in compared
            learned = await world.centre(lambda centre: centre.status.corrections_version == 1)
            kinds = {operator.operator for operator in task.spec.operators}
            assert {each.operator for each in learned.status.corrections} == kinds
        async with world.agent():  # the next one goes on from there
            assert (await world.centre(lambda centre: centre.status.ready)).status.corrections_version == 1

    play_centre(tmp_path, act)


def test_a_device_that_is_not_there_has_a_stand_in_that_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    async def act(world: CentreWorld) -> None:
        async with world.agent():
            centre = await world.centre()
            assert [need.kind for need in centre.status.units[0].unit.devices] == [DeviceKind.GPU]
            task = task_of(table(tmp_path))
            done = await run(world, task, 1, devices_of(task, DeviceKind.GPU))
            assert done.status.phase is TaskPhase.SUCCEEDED, done.status.reasons
            assert "filter-1 on torch-c" in done.status.reasons[0]
            assert (await world.centre()).status.corrections_version == 0

    play_centre(tmp_path, act, sql=SqlSettings(stand_in=DeviceKind.GPU))


def test_a_table_that_changed_after_planning_fails_the_task(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with world.agent():
            await world.centre()
            task = task_of(table(tmp_path))
            file = Path(task.spec.program.tables["lines"].file)
            pq.write_table(pa.table({"item": ["a"], "price": [1]}), file)
            file.chmod(0o644)
            done = await run(world, task, 1, ())
            assert done.status.phase is TaskPhase.FAILED
            assert "column item is VARCHAR; BIGINT when the task was planned" in done.status.reasons[-1]

    play_centre(tmp_path, act)


def ended(task: Task, units: int = 1) -> Task:
    status = TaskStatus(units=units, operator_devices=devices_of(task, DeviceKind.CPU))
    return replace(task, status=status)


def learner(folder: Path) -> Learner:
    (folder / "state").mkdir(exist_ok=True)
    return Learner(CentreFolder(folder / "state", "c1"))


def leave(folder: Path, **changes: object) -> None:
    """Write what a job leaves."""
    left = Ran(way=Way.SPLIT, workers=1, rows=3, load_s=0.1, seconds=0.5)
    (folder / RAN_FILE).write_bytes(msgspec.json.encode(replace(left, **changes)))


def test_what_a_job_leaves_is_not_trusted(tmp_path: Path) -> None:
    task, job = ended(task_of(table(tmp_path))), tmp_path / "job"
    learned = learner(tmp_path)
    job.mkdir()
    assert not learned.learn(task, job)  # nothing there
    for content in (b"", b"{}", b"[" * 100_000, b'{"way":"split","workers":0,"rows":1,"load_s":0,"seconds":-1}'):
        (job / RAN_FILE).write_bytes(content)
        assert not learned.learn(task, job)
    (job / RAN_FILE).unlink()
    (job / RAN_FILE).symlink_to("/etc/passwd")
    assert not learned.learn(task, job)
    (job / RAN_FILE).unlink()
    leave(job, seconds=1e9)
    assert learned.learn(task, job)
    assert all(1 < each.factor <= 4 for each in learned.report)


@pytest.mark.parametrize("changes", [{"way": Way.WHOLE}, {"way": Way.SPARK}, {"workers": 2}])
def test_only_a_split_run_on_all_units_teaches(tmp_path: Path, changes: dict[str, object]) -> None:
    task, job = ended(task_of(table(tmp_path))), tmp_path / "job"
    job.mkdir()
    leave(job, **changes)
    assert not learner(tmp_path).learn(task, job)


def test_corrections_outlive_a_damaged_file(tmp_path: Path) -> None:
    task, job = ended(task_of(table(tmp_path))), tmp_path / "job"
    job.mkdir()
    leave(job)
    assert learner(tmp_path).learn(task, job)
    assert learner(tmp_path).corrections.version == 1
    (tmp_path / "state" / "corrections.json").write_text("{")
    assert learner(tmp_path).corrections.version == 0
    shutil.rmtree(tmp_path / "state")
