"""The supervisor with small programs for daemons: reload, restart of one, and its log of both."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.apps.up.control import SOCKET, Question, ask
from controller.apps.up.errors import UpError
from controller.apps.up.plan import UpPlan, make_plan
from controller.apps.up.settings import UpSettings
from controller.apps.up.state import StateFolder
from controller.apps.up.supervision.supervisor import Supervisor
from controller.apps.up.values import DaemonState, State
from dataplane.config import load
from tests.waiting import finish_within, until

LIMIT_S = 60.0
ONE = """
millrace: 1
name: one
collector: {host: c1}
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: c1, switch: s1}]
"""
STAND_IN = """
import pathlib, signal, sys, time
words, file = sys.argv[2:-2], pathlib.Path(sys.argv[-1])
def say(what):
    print(what, file.read_text().count("interval"), flush=True)
signal.signal(signal.SIGHUP, lambda *_: say("hung up"))
say(": ready: " + " ".join(words))
while True:
    time.sleep(60)
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateFolder]:
    (tmp_path / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "one.yaml").write_text(ONE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("controller.apps.up.supervision.daemon._MODULE", "stand_in")
    # The programs answer no health check.
    monkeypatch.setattr("controller.apps.up.health.ANSWER_S", 0.01)
    # pytest's own folder may be too long for sockets in it.
    with tempfile.TemporaryDirectory(prefix="up") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        folder = StateFolder(tmp_path / "state")
        folder.prepare()
        yield folder


def write(state: StateFolder, more: str) -> None:
    topology = state.path.parent / "one.yaml"
    state.settings.write_text(f"topology: {topology}\nfabric: {{peak_utilisation: 0}}\n{more}", encoding="utf-8")


def plan_of(state: StateFolder) -> UpPlan:
    plan = make_plan(load(state.settings, UpSettings).in_folder(state), state)
    # No API is there that could make tokens.
    return dataclasses.replace(plan, daemons=tuple(dataclasses.replace(each, token=None) for each in plan.daemons))


@asynccontextmanager
async def supervised(state: StateFolder) -> AsyncIterator[Path]:
    """Run a supervisor until the block ends; yield its socket."""
    plan, ready = plan_of(state), asyncio.Event()
    supervisor = Supervisor(plan, lambda _line: None, reload=lambda: plan_of(state))
    running = asyncio.create_task(supervisor.run(lambda _state: ready.set()))
    try:
        await finish_within(ready.wait(), LIMIT_S)
        yield Path(plan.settings.run) / SOCKET
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await finish_within(running, LIMIT_S)


async def daemons_at(socket: Path) -> dict[str, DaemonState]:
    state = (await ask(socket, Question("status"))).state
    assert state is not None
    return {daemon.name: daemon for daemon in state.daemons}


def log_of(state: StateFolder, name: str) -> str:
    return (state.logs / f"{name}.log").read_text(encoding="utf-8")


def test_sighup_starts_and_stops_nodes_and_centres(state: StateFolder) -> None:
    write(state, "nodes: {h1: {drives: {u1: {load: {group: /u1}}}}}\n")

    async def use() -> None:
        async with supervised(state) as socket:
            old = {name: daemon.pid for name, daemon in (await daemons_at(socket)).items()}
            assert {"node-h1", "drive-u1"} <= old.keys()
            write(state, "nodes: {h77: {}}\n")
            with pytest.raises(UpError, match=r"nodes\.h77: topology one has no such host"):
                await ask(socket, Question("reload"))
            assert not (state.generated / "node-h77.yaml").exists()
            os.kill(os.getpid(), signal.SIGHUP)
            refused = "reload failed, keeping the previous settings: nodes.h77: topology one has no such host"
            await until(lambda: refused in log_of(state, "up"))
            assert {name: daemon.pid for name, daemon in (await daemons_at(socket)).items()} == old

            write(state, "centres: {east: {}}\npaths: {interval: 1ms}\n")
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda: "node-h1: stopped" in log_of(state, "up"))
            await until(lambda: "centre-east: ready after" in log_of(state, "up"))
            await until(lambda: "scheduler: ready again after" in log_of(state, "up"))
            new = await daemons_at(socket)
            assert new.keys() == old.keys() - {"node-h1", "drive-u1"} | {"centre-east"}
            assert new["centre-east"].state is State.READY
            assert {name for name in old if name in new and new[name].pid != old[name]} == {"scheduler"}
            assert not (state.generated / "node-h1.yaml").exists()
            assert "hung up" in log_of(state, "controller")
            assert "hung up" not in log_of(state, "paths")

    asyncio.run(use())
    for line in (
        "centre-east: added to the settings; starts",
        "node-h1: removed from the settings; stops",
        "drive-u1: stopped",
        "scheduler: restarts, as compute centres came or went",
        "paths: `millrace restart paths` required for: interval",
    ):
        assert line in log_of(state, "up")


def test_one_daemon_is_restarted_with_new_settings(state: StateFolder) -> None:
    write(state, "paths: {}\n")

    async def use() -> None:
        async with supervised(state) as socket:
            write(state, "paths: {interval: 1ms, flows: []}\n")
            await ask(socket, Question("reload"))
            assert (await ask(socket, Question("restart", "paths"), answer_s=LIMIT_S)).took_s
            assert log_of(state, "paths").count("ready: paths serve") == 2
            with pytest.raises(UpError, match=r"^there is no daemon 'pahts'; did you mean `paths`\?"):
                await ask(socket, Question("restart", "pahts"))
            current = await daemons_at(socket)
            assert {name: daemon.restarts for name, daemon in current.items() if daemon.restarts} == {"paths": 1}
            (incident,) = current["paths"].incidents
            assert (incident.how, incident.by_request) == ("restarted by request", True)

            # A reload names nothing that the new process has read.
            await ask(socket, Question("reload"))
            assert log_of(state, "up").count("`millrace restart paths` required") == 1

            # A death is in the same log.
            pid = current["paths"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: log_of(state, "up").count("paths: ready again after") == 2)
            assert "paths: killed by SIGKILL, after" in log_of(state, "up")

    asyncio.run(use())
