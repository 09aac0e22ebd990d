"""What every engine does, over the real thing: processes, a Slurm cluster."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from controller.centres.engines.base import ERRORS_FILE, OUTPUT_FILE, Engine, JobPhase
from controller.centres.errors import EngineError, OrderError
from tests.controller.centres.engines.ray_cluster import RayCluster, skip_without_ray
from tests.controller.centres.engines.slurm_cluster import SlurmCluster, skip_without_slurm
from tests.controller.centres.engines.worlds import (
    ENVIRONMENT,
    RayWorld,
    SlurmWorld,
    World,
    ended,
    order,
    play,
    running,
    until_there,
)

pytestmark = pytest.mark.root

_HOSTILE = "a'b\"c $HOME `id` $(id) \\ \n#SBATCH --partition=accelerated\n;rm -rf / %j %% ../.. é \t--uid=1"


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster for all tests of this file: it takes a second to come."""
    skip_without_slurm()
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """A cluster for all tests of this file: it takes seven seconds to come."""
    with RayCluster(skip_without_ray()) as cluster:
        cluster.start_other()
        yield cluster


@pytest.fixture(params=["slurm", "ray"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Each engine's world in turn."""
    found: World
    if request.param == "ray":
        found = RayWorld(request.getfixturevalue("ray_cluster"), tmp_path)
    else:
        found = SlurmWorld(request.getfixturevalue("slurm_cluster"), tmp_path)
    yield found
    found.close()


def test_jobs_run_in_their_folders_and_see_the_environment_of_their_orders_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_TOKEN", "secret")
    monkeypatch.setenv("SBATCH_PARTITION", "accelerated")

    async def script() -> None:
        engine = world.engine()
        await engine.start()
        files = {"in/put.txt": b"what it reads", "script": b"#!/bin/sh\ncat in/put.txt; pwd; env >&2\n"}
        asked = order(world, "hello", "./script", files=files)
        job = await engine.submit(asked)
        state = (await ended(engine, job))[job]
        assert (state.phase, state.exit_code, state.reason) == (JobPhase.SUCCEEDED, 0, "")
        assert (state.mark, state.unit, state.units, state.folder) == (asked.mark, world.unit, 1, asked.folder)
        assert (asked.folder / OUTPUT_FILE).read_text() == f"what it reads{asked.folder}\n"
        seen = (asked.folder / ERRORS_FILE).read_text()
        assert "PATH=/usr/local/bin" in seen
        assert "secret" not in seen
        assert 0 < (state.started_ns or 0) < (state.finished_ns or 0)
        usage = await engine.usage(job)
        assert usage is not None
        assert usage.cpu_s > 0
        assert (usage.memory_peak_bytes or 0) > 100_000
        await engine.close()

    play(script)


def test_how_jobs_end_is_told_by_exit_code_or_signal(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        orders = (
            order(world, "code", "sh", "-c", "exit 7"),
            order(world, "signal", "sh", "-c", "kill -SEGV $$"),
            order(world, "missing", "no-such-program"),
            order(world, "limit", "sleep", "60", limit_s=0.2),
            order(
                world,
                "talkative",
                "sh",
                "-c",
                "echo first; head -c 300000 /dev/zero; echo last",
                output_limit_bytes=2000,
            ),
        )
        code, killed, missing, limit, talkative = [await engine.submit(each) for each in orders]
        states = await ended(engine, code, killed, missing, limit, talkative)
        assert all(states[each].phase is JobPhase.FAILED for each in (code, killed, missing, limit)), states
        assert states[code].exit_code == 7
        assert states[killed].exit_code == 128 + signal.SIGSEGV
        assert states[missing].exit_code == 127
        assert "no-such-program" in states[missing].reason
        assert states[limit].exit_code == 128 + signal.SIGTERM
        assert "0.2 s" in states[limit].reason
        assert states[talkative].phase is JobPhase.SUCCEEDED
        output = (orders[4].folder / OUTPUT_FILE).read_bytes()
        assert output.startswith(b"first\n")
        assert output.endswith(b"last\n")
        assert len(output) < 2100

    play(script)


def test_jobs_get_several_units(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        before = {kind.name: kind for kind in await engine.resources()}[world.unit]
        before = msgspec.structs.replace(before, free=before.count)
        asked = order(world, "wide", "sh", "-c", "echo here > out; while [ ! -e go ]; do sleep 0.05; done", units=2)
        job = await engine.submit(asked)
        await until_there(asked.folder / "out")
        state = (await engine.states((job,)))[job]
        assert (state.phase, state.units) == (JobPhase.RUNNING, 2)
        while {kind.name: kind for kind in await engine.resources()}[world.unit] != before:
            await asyncio.sleep(0.05)  # its own jobs are not others' work, though Ray counts late
        (asked.folder / "go").touch()
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED

    play(script)


def test_what_can_never_run_is_refused_before_anything_is_started(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        for wrong, said in (
            (order(world, "huge", "true", units=100_000), "100000"),
            (order(world, "none", "true", units=0), "0 units"),
            (order(world, "elsewhere", "true", unit="no-such-unit"), "no-such-unit"),
            (order(world, "image", "true", image="docker.io/library/busybox"), "busybox"),
            (order(world, "nothing"), "nothing"),
            (order(world, "zero", "echo", "a\0b"), "zero byte"),
            (order(world, "name", "true", environment={"A=B": "c"}), "A=B"),
            (order(world, "out", "true", files={"../out": b""}), "../out"),
        ):
            with pytest.raises(OrderError) as found:
                await engine.submit(wrong)
            assert said in str(found.value)
            assert "\n" not in str(found.value)
        assert await engine.jobs() == ()
        assert not (world.root / "out").exists()

    play(script)


def test_hostile_words_reach_the_program_as_they_are(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['WORDS']]))"
        argv = ("python3", "-c", program, _HOSTILE, "", "--job-name=x", "-")
        asked = order(
            world, "hostile", *argv, environment={**ENVIRONMENT, "WORDS": _HOSTILE}, files={"a b'c\n.txt": b"x"}
        )
        job = await engine.submit(asked)
        state = (await ended(engine, job))[job]
        assert state.phase is JobPhase.SUCCEEDED, (asked.folder / ERRORS_FILE).read_text()
        words = json.loads((asked.folder / OUTPUT_FILE).read_text())
        assert words == [[_HOSTILE, "", "--job-name=x", "-"], _HOSTILE]
        assert (asked.folder / "a b'c\n.txt").read_text() == "x"

    play(script)


def test_cancelled_jobs_end_with_all_that_they_have_started(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        polite = order(world, "polite", "sh", "-c", "trap 'echo bye > bye; exit 0' TERM; echo > on; sleep 60 & wait")
        stubborn = order(
            world, "stubborn", "sh", "-c", "trap '' TERM; setsid sh -c 'echo $$ > other; exec sleep 60' & sleep 60"
        )
        jobs = [await engine.submit(each) for each in (polite, stubborn)]
        await until_there(polite.folder / "on")
        process = int(await until_there(stubborn.folder / "other"))
        await asyncio.gather(engine.cancel(jobs[0], 20), engine.cancel(jobs[1], 0.2))
        states = await ended(engine, *jobs)
        assert all(state.phase is JobPhase.FAILED for state in states.values()), states
        assert all("cancelled" in state.reason for state in states.values()), states
        assert (polite.folder / "bye").exists()
        assert states[jobs[1]].exit_code == 128 + signal.SIGKILL
        assert not Path(f"/proc/{process}").exists()
        await engine.cancel(jobs[0], 1)  # again, and of one that nobody knows: neither is an error
        await engine.cancel("999999", 1)

    play(script)


def test_an_agent_that_starts_again_finds_its_jobs_and_nobody_elses(world: World) -> None:
    async def script() -> None:
        first, other = world.engine(), world.engine(centre="elsewhere")
        asked = order(world, "long", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 5", is_probe=True)
        job = await first.submit(asked)
        done = await first.submit(order(world, "done", "true"))
        foreign = await other.submit(order(world, "foreign", "true", centre="elsewhere"))
        await ended(other, foreign)
        await ended(first, done)
        await running(first, job)
        await first.close()

        second = world.engine()
        await second.start()
        found = {state.mark.task: state for state in await second.jobs()}
        assert {name: state.phase for name, state in found.items()} == {
            "long": JobPhase.RUNNING,
            "done": JobPhase.SUCCEEDED,
        }
        assert (found["long"].mark, found["long"].id, found["long"].folder) == (asked.mark, job, asked.folder)
        assert await second.submit(asked) == job, "the same mark twice is one job"
        (asked.folder / "go").touch()
        assert (await ended(second, job))[job].exit_code == 5
        await second.forget(job)
        await second.forget(done)
        third = world.engine()
        await third.start()
        assert await third.jobs() == (), "what is forgotten is not told of again"
        await other.forget(foreign)

    play(script)


def test_jobs_that_nobody_knows_are_lost(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        states = await engine.states(("424242",))
        assert states["424242"].phase is JobPhase.LOST
        assert states["424242"].reason

    play(script)


def test_an_engine_that_hangs_is_an_error_of_one_line_in_time(world: World) -> None:
    async def script() -> None:
        engine = world.engine(deadline_s=0.5)
        with world.hanging():
            for asked in (
                engine.resources(),
                engine.jobs(),
                engine.start(),
                engine.submit(order(world, "late", "true")),
            ):
                with pytest.raises(EngineError) as found:
                    async with asyncio.timeout(10):
                        await asked
                assert "0.5 s" in str(found.value)
                assert "\n" not in str(found.value)

    play(script)


def test_jobs_outlive_an_engine_that_is_away_for_a_while(world: World) -> None:
    async def script() -> None:
        engine = world.engine(deadline_s=1.5)
        asked = order(world, "through", "sh", "-c", "echo > on; while [ ! -e go ]; do sleep 0.05; done; echo end")
        job = await engine.submit(asked)
        await until_there(asked.folder / "on")
        with world.away():
            with pytest.raises(EngineError) as found:
                await engine.resources()
            assert "\n" not in str(found.value)
            (asked.folder / "go").touch()
            await until_there(asked.folder / OUTPUT_FILE)
        assert (await ended(engine, job))[job].phase is JobPhase.SUCCEEDED
        again = order(world, "after", "true")
        assert (await ended(engine, late := await engine.submit(again)))[late].phase is JobPhase.SUCCEEDED

    play(script)


def test_changes_of_resources_are_told(world: World) -> None:
    async def script() -> None:
        engine = world.engine()
        before = await _count(engine, world.unit)
        async with aclosing(engine.changes()) as changes:  # type: ignore[type-var]
            told = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0.3)
            with world.smaller():
                await told
                fewer = await _count(engine, world.unit)
                assert 0 < fewer < before
                assert len(engine.notes) == 1, engine.notes
                told = asyncio.ensure_future(anext(changes))
            await told
        assert await _count(engine, world.unit) == before

    play(script)


async def _count(engine: Engine, unit: str) -> int:
    return next(kind.count for kind in await engine.resources() if kind.name == unit)
