"""One daemon under a supervisor: restarted when it dies, asked to stop, killed if it does not, never orphaned."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apps.up.errors import UpError
from controller.apps.up.settings import LogSettings, RestartSettings
from controller.apps.up.supervision.daemon import Daemon, environment, wait_after
from controller.apps.up.supervision.incidents import Incidents
from controller.apps.up.supervision.lines import DaemonLog
from controller.apps.up.supervision.supervisor import stop_in_order
from controller.apps.up.values import Incident, State
from dataplane.local.deadline import local_timeout
from tests.waiting import until as until_true

SETTINGS = RestartSettings(first_wait_s=0.01, longest_wait_s=0.02, stop_s=0.5)
WAIT_S = 30.0


Make = Callable[[str], tuple[Daemon, asyncio.Event]]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a factory for daemons that run a given program instead of `millrace`, with an event for their changes."""
    log, up_log = (DaemonLog(name, tmp_path, LogSettings(), None) for name in ("thing", "up"))

    def make(program: str) -> tuple[Daemon, asyncio.Event]:
        (tmp_path / "stand_in.py").write_text(program, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr("controller.apps.up.supervision.daemon._MODULE", "stand_in")
        changed = asyncio.Event()
        return Daemon("thing", ["--settings", "x"], log, SETTINGS, on_change=changed.set, up_log=up_log), changed

    yield make
    log.close()
    up_log.close()


async def until(changed: asyncio.Event, is_so: Callable[[], bool]) -> None:
    async with local_timeout(WAIT_S, "a test"):
        while not is_so():
            changed.clear()
            await changed.wait()


def test_killed_daemon_is_restarted(tmp_path: Path, daemon: Make) -> None:
    async def use() -> None:
        supervised, changed = daemon(
            "import sys, time; print('millrace thing: ready: ', *sys.argv[2:], flush=True); time.sleep(60)",
        )
        running = asyncio.create_task(supervised.run())
        await until(changed, lambda: supervised.state is State.READY)
        first = supervised.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(changed, lambda: supervised.state is State.READY and supervised.pid != first)
        assert (supervised.restarts, supervised.last_error, supervised.early_ends) == (1, "killed by SIGKILL", 0)
        await supervised.stop()
        await running
        assert (supervised.state, supervised.pid) == (State.STOPPED, None)
        (death,) = supervised.incidents
        assert (death.how, death.by_request) == ("killed by SIGKILL", False)
        assert death.ready_after_s is not None
        assert death.ready_after_s > 0

    asyncio.run(use())
    log = (tmp_path / "thing.log").read_text(encoding="utf-8")
    assert log.count("ready:  --settings x") == 2
    assert "killed by SIGKILL; restart 1 in 0.0 s" in log
    first, death, again = (tmp_path / "up.log").read_text(encoding="utf-8").splitlines()
    assert re.search(r" thing: ready after \S+ s \(process \d+\)$", first)
    assert re.search(r" thing: killed by SIGKILL, after \S+ s; restart 1 in 0\.0 s$", death)
    assert re.search(r" thing: ready again after \S+ s \(process \d+\)$", again)


def test_restart_by_request_waits_for_the_next_process(tmp_path: Path, daemon: Make) -> None:
    async def use() -> None:
        supervised, changed = daemon("import time; print(': ready: here', flush=True); time.sleep(60)")
        running = asyncio.create_task(supervised.run())
        await until(changed, lambda: supervised.state is State.READY)
        first = supervised.pid
        async with local_timeout(WAIT_S, "a test"):
            took_s = await supervised.restarted()
        assert supervised.state is State.READY
        assert supervised.pid not in (None, first)
        assert took_s > 0
        (incident,) = supervised.incidents
        assert (incident.how, incident.by_request) == ("restarted by request", True)
        assert (supervised.last_error, supervised.early_ends) == (None, 0)

        # A daemon that cannot start any more is given up, with its reason, and goes on being started.
        (tmp_path / "stand_in.py").write_text("import sys; sys.exit('millrace: the port is taken')")
        with pytest.raises(UpError, match="the thing does not get ready again: ended with status 1: the port is taken"):
            await supervised.restarted()
        (tmp_path / "stand_in.py").write_text("import time; print(': ready: here', flush=True); time.sleep(60)")
        async with local_timeout(WAIT_S, "a test"):
            await supervised.restarted()
        await supervised.stop()
        with pytest.raises(UpError, match="the thing is being stopped"):
            await supervised.restarted()
        await running

    asyncio.run(use())
    assert "thing: restarted by request" in (tmp_path / "up.log").read_text(encoding="utf-8")


HUNG_UP = """
import signal, time
print("starts", flush=True)
time.sleep(0.2)
signal.signal(signal.SIGHUP, lambda *_: print("hung up", flush=True))
print(": ready: here", flush=True)
while True:
    time.sleep(60)
"""


def test_hangup_waits_until_a_daemon_can_take_it(tmp_path: Path, daemon: Make) -> None:
    """Python's default action for SIGHUP would end one that is starting."""

    async def use() -> None:
        supervised, changed = daemon(HUNG_UP)
        running = asyncio.create_task(supervised.run())
        await until(changed, lambda: supervised.state is State.STARTING)
        supervised.hang_up()
        await until(changed, lambda: supervised.state is State.READY)
        await until_true(lambda: "hung up" in (tmp_path / "thing.log").read_text(encoding="utf-8"))
        assert supervised.restarts == 0
        await supervised.stop()
        await running

    asyncio.run(use())


def test_incidents_are_forgotten_after_an_hour() -> None:
    now_s, wall = [0.0], datetime(2030, 1, 1, 14, 3, 12, tzinfo=UTC)
    incidents = Incidents(lambda: now_s[0], lambda: wall)
    incidents.note("killed by SIGKILL")
    now_s[0] = 1.5
    incidents.note_ready()
    incidents.note_ready()
    now_s[0] = 3000.0
    incidents.note("restarted by request", by_request=True)
    old, new = incidents.recent()
    assert old == Incident(wall, "killed by SIGKILL", ready_after_s=1.5)
    assert new == Incident(wall, "restarted by request", by_request=True)
    now_s[0] = 3601.0
    assert incidents.recent() == (new,)
    now_s[0] = 6601.0
    assert incidents.recent() == ()


def test_failing_daemon_has_a_reason_and_is_counted(tmp_path: Path, daemon: Make) -> None:
    async def use() -> None:
        supervised, changed = daemon(
            "import sys; print('millrace: the port is taken', 'millrace thing: 3 flows', sep=chr(10)); sys.exit(1)"
        )
        running = asyncio.create_task(supervised.run())
        await until(changed, lambda: supervised.early_ends == 3)
        assert supervised.last_error == "ended with status 1: the port is taken"
        await supervised.stop()
        await running

    asyncio.run(use())


def test_daemon_that_does_not_stop_is_killed(tmp_path: Path, daemon: Make) -> None:
    async def use() -> None:
        supervised, changed = daemon(
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(': ready: here', flush=True)\n"
            "while True: time.sleep(60)",
        )
        running = asyncio.create_task(supervised.run())
        await until(changed, lambda: supervised.state is State.READY)
        await supervised.stop()
        await running

    asyncio.run(use())
    assert "did not stop within 0.5 s: killed" in (tmp_path / "thing.log").read_text(encoding="utf-8")


def test_daemon_stopped_while_starting_ends(daemon: Make) -> None:
    async def use() -> None:
        supervised, _ = daemon(f"import time; time.sleep({4 * WAIT_S})")
        running = asyncio.create_task(supervised.run())
        await asyncio.sleep(0)
        assert supervised.pid is None
        await supervised.stop()
        async with local_timeout(WAIT_S, "a test"):
            await running

    asyncio.run(use())


STOPS_WITH_OTHERS = """
import pathlib, signal, sys, time
folder, name, *others = sys.argv[2:]
folder = pathlib.Path(folder)
def end(*_):
    (folder / f"{name}.saw").write_text(" ".join(sorted(each.stem for each in folder.glob("*.ended"))))
    while not all((folder / f"{other}.saw").exists() for other in others):
        time.sleep(0.01)
    (folder / f"{name}.ended").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
print(": ready: here", flush=True)
while True:
    time.sleep(60)
"""


def test_asked_daemon_stops_last_the_others_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes wait for each other's SIGTERM: if stopped one by one, the first would be killed."""
    (tmp_path / "stand_in.py").write_text(STOPS_WITH_OTHERS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("controller.apps.up.supervision.daemon._MODULE", "stand_in")
    asks = {"fabric": (), "api": (), "node-h1": ("fabric", "api"), "node-h2": ("fabric", "api")}
    others = {"node-h1": ["node-h2"], "node-h2": ["node-h1"]}

    async def use() -> None:
        changed, settings = asyncio.Event(), replace(SETTINGS, stop_s=WAIT_S)
        log = DaemonLog("all", tmp_path, LogSettings(), None)
        daemons = [
            Daemon(name, [str(tmp_path), name, *others.get(name, ())], log, settings, on_change=changed.set)
            for name in asks
        ]
        running = [asyncio.create_task(daemon.run()) for daemon in daemons]
        await until(changed, lambda: all(daemon.state is State.READY for daemon in daemons))
        await stop_in_order(daemons, asks)
        await asyncio.gather(*running)
        log.close()

    asyncio.run(use())
    saw = {name: set((tmp_path / f"{name}.saw").read_text().split()) for name in asks}
    assert {"node-h1", "node-h2"} <= saw["api"] & saw["fabric"]
    assert not saw["node-h1"] | saw["node-h2"]
    assert len(list(tmp_path.glob("*.ended"))) == len(asks)


def test_a_daemon_dies_with_its_supervisor() -> None:
    """Even by kill -9: the kernel kills it."""
    child = "import time; from controller.apps.cli.child import die_with; import os, sys; die_with(int(sys.argv[1]))\n"
    child += "print(os.getpid(), flush=True); time.sleep(60)"
    parent = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, str(os.getpid())])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        watched = os.pidfd_open(int(supervisor.stdout.readline()))
        supervisor.kill()
        try:
            # Readable when the process has ended.
            assert select.select([watched], [], [], WAIT_S)[0]
        finally:
            os.close(watched)


def test_waits_grow_for_those_that_die_young() -> None:
    settings = RestartSettings(first_wait_s=0.1, young_s=10.0)
    assert wait_after(9.0, 1.6, settings) == 1.6
    assert wait_after(11.0, 1.6, settings) == 0.1


def test_service_manager_is_notified_by_the_supervisor_only() -> None:
    assert environment({"NOTIFY_SOCKET": "/run/x", "A": "b"}) == {
        "A": "b",
        "PYTHONUNBUFFERED": "1",
        "MILLRACE_LOG_FORMAT": "plain",
    }
