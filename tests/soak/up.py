"""All that `millrace up` runs is killed at random moments: `millrace status` is green again, and nothing is lost.

Each daemon is killed by SIGKILL several times, in random order, after random pauses. After each death the time until
every daemon is green is measured, and that: the controller says that all switches hold what they should; the history's
rows of before are there, and new ones come; counters of reports go on; what the API acknowledged is there, once.

Usage: python -m tests.soak.up [--topology NAME] [--time virtual|kernel] [--kills N] [--seed N] [--pause-s S]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

from collectors.history.query import query
from controller.apps.up.control import SOCKET, Question, ask
from controller.apps.up.state import StateFolder, free_port
from controller.apps.up.values import UpState
from controller.common.errors import ControllerError
from controller.network.status.service import ControllerClient, ControllerClientSettings
from dataplane.fabric.live.settings import Time

POLL_S = 0.25
"""Being asked takes daemons time, too."""
START_S = 120.0


@dataclass(slots=True)
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: dict[str, int] = field(default_factory=dict)
    green_s: dict[str, list[float]] = field(default_factory=dict)
    """Time from each death of a daemon until all were green again."""
    acknowledged: int = 0
    """Writes to the API."""
    problems: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[str, int, float, float]]:
        """Return daemon, deaths, median and maximum of the seconds until green."""
        return [(name, len(times), statistics.median(times), max(times)) for name, times in self.green_s.items()]


@dataclass(slots=True)
class Running:
    """A running supervisor and its socket."""

    process: subprocess.Popen[bytes]
    state: StateFolder
    socket: Path

    def status(self) -> UpState | None:
        """Return the overall state, None without an answer."""
        try:
            return asyncio.run(ask(self.socket, Question("status"))).state
        except ControllerError:
            return None

    def until_green(self, limit_s: float) -> UpState:
        """Return the first state with everything green; raise TimeoutError naming what is not."""
        deadline, state = time.monotonic() + limit_s, None
        while time.monotonic() < deadline:
            state = self.status()
            if state is not None and state.is_green:
                return state
            if self.process.poll() is not None:
                raise TimeoutError(f"the supervisor ended with status {self.process.returncode}")
            time.sleep(POLL_S)
        raise TimeoutError(
            "; ".join(f"{d.name}: {d.health.text}" for d in state.daemons if not d.is_green) if state else ""
        )


@dataclass(slots=True)
class ApiWriter:
    """Creates tasks at the API, one after another, over its deaths; acknowledged ones must exist, once."""

    socket: str
    acknowledged: set[str] = field(default_factory=set)
    asked: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write in a thread while the block lasts."""
        thread = threading.Thread(target=self._write, name="api-writer")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def lost(self) -> list[str]:
        """Return acknowledged tasks that are wrong."""
        with self._client() as client:
            names = list[str]()
            query: dict[str, str] = {"limit": "500"}
            while True:
                page = client.get("/v1/tasks", params=query).raise_for_status().json()
                names += [item["metadata"]["name"] for item in page["items"]]
                if not page.get("continue"):
                    break
                query["continue"] = page["continue"]
        problems = []
        if missing := self.acknowledged - set(names):
            problems.append(f"{len(missing)} of {len(self.acknowledged)} acknowledged tasks are gone")
        if len(names) != len(set(names)):
            problems.append("tasks are there twice")
        return problems

    def _client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.HTTPTransport(uds=self.socket), base_url="http://api", timeout=5.0)

    def _write(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException), self._connected() as connection:
                while not self._stop.is_set():
                    name = f"task-{self.asked}"
                    self.asked += 1
                    task = {"kind": "Task", "metadata": {"name": name}, "spec": {"program": {"kind": "python"}}}
                    connection.request("POST", "/v1/tasks", json.dumps(task), {"Content-Type": "application/json"})
                    answer = connection.getresponse()
                    text = answer.read().decode()
                    if answer.status == 201:
                        self.acknowledged.add(name)
                    elif answer.status < 500:
                        raise AssertionError(text)
                    self._stop.wait(0.02)
            self._stop.wait(0.05)

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        """Raise OSError without a listener, and leave nothing open: httpx leaves its socket open."""
        with (
            socket.socket(socket.AF_UNIX) as stream,
            contextlib.closing(http.client.HTTPConnection("api")) as connection,
        ):
            stream.settimeout(5.0)
            stream.connect(self.socket)
            connection.sock = stream
            yield connection


@contextmanager
def running(
    folder: Path, topology: str, at: str, *words: str, more: str = "", controller: str = "", api: str = ""
) -> Iterator[Running]:
    """Run `millrace up` with a state folder and `more` settings while the block lasts.

    `controller` and `api` are lines that come first in these sections.
    """
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "run"), "HOME": str(folder)}
    # Half of the time in which a process starts would be spent on compiling our own modules.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Compiled code is the user's, not this folder's.
    environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    state = StateFolder(folder / "state")
    state.prepare()
    # A port of its own, so that several run on a machine.
    state.write_settings(topology, Time(at), folder / "run" / "millrace", udp_port=free_port(0))
    text = state.settings.read_text("utf-8").replace("controller:\n", f"controller:\n  {controller}\n")
    text = text.replace("\napi:\n", f"\napi:\n  {api}\n")
    state.settings.write_text(text + more, "utf-8")
    command = [sys.executable, "-m", "controller.apps.cli", "up", "--state", str(state.path), *words]
    with (folder / "up.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
    try:
        yield Running(process, state, folder / "run" / "millrace" / SOCKET)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def soak(
    topology: str, at: str, kills: int, seed: int, limit_s: float, pause_s: tuple[float, float] = (0.0, 4.0)
) -> Report:
    """Kill each daemon this many times, and return the result."""
    rng, report = random.Random(seed), Report()
    with tempfile.TemporaryDirectory(prefix="up") as name, running(Path(name), topology, at) as up:
        first = up.until_green(START_S)
        order = [daemon.name for daemon in first.daemons for _ in range(kills)]
        rng.shuffle(order)
        before, writer = Kept.of(up), ApiWriter(str(up.socket.parent / "api.sock"))
        with writer.writing():
            for daemon in order:
                time.sleep(rng.uniform(*pause_s))
                try:
                    report.green_s.setdefault(daemon, []).append(kill(up, daemon, limit_s))
                except TimeoutError as error:
                    report.problems.append(f"{daemon}: not green {limit_s:g} s after its death: {error}")
                    break
                report.kills[daemon] = report.kills.get(daemon, 0) + 1
        report.problems += before.lost(Kept.of(up)) + writer.lost()
        report.acknowledged = len(writer.acknowledged)
    return report


def kill(up: Running, name: str, limit_s: float) -> float:
    """Kill a daemon; return how long it took until everything was green again, that daemon under a new number."""
    state = up.status()
    assert state is not None
    pid = next(daemon.pid for daemon in state.daemons if daemon.name == name)
    while pid is None:
        return kill(up, name, limit_s)
    os.kill(pid, signal.SIGKILL)
    killed_s = time.monotonic()
    while True:
        state = up.until_green(limit_s - (time.monotonic() - killed_s))
        if all(daemon.pid != pid for daemon in state.daemons):
            return time.monotonic() - killed_s


@dataclass(frozen=True, slots=True)
class Kept:
    """State that must survive every death."""

    history_rows: int
    oldest: str
    switches: int
    live: int

    @classmethod
    def of(cls, up: Running) -> Kept:
        """Ask history and controller."""
        rows, oldest = _history(up.state.path / "history")
        status = asyncio.run(_controller(up.socket.parent))
        return cls(rows, oldest, status["switches"], status["live"])

    def lost(self, after: Kept) -> list[str]:
        """Return lost state."""
        problems = []
        if after.history_rows <= self.history_rows:
            problems.append(f"the history has {after.history_rows} rows, and had {self.history_rows}")
        if self.oldest and after.oldest != self.oldest:
            problems.append(f"the history begins at {after.oldest}, and began at {self.oldest}")
        if after.live != after.switches:
            problems.append(f"{after.live} of {after.switches} switches are reconciled")
        return problems


def _history(folder: Path) -> tuple[int, str]:
    answer = query(folder, "select count(*) as rows, min(time) as oldest from links", lambda _: None)
    row = next(iter(batch.to_pylist()[0] for batch in answer.batches))
    return int(row["rows"]), str(row["oldest"])


async def _controller(run: Path) -> Mapping[str, int]:
    async with ControllerClient(ControllerClientSettings(address=f"unix:{run}/controller.sock")) as client:
        status = await client.status()
    return {"switches": status.switches, "live": len(status.live)}


def main() -> int:
    """Print a table of times until green, and as the last line what happened as JSON; status 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="abilene")
    parser.add_argument("--time", default="virtual", choices=["virtual", "kernel"])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=4.0, help="the longest pause between two deaths")
    parser.add_argument("--limit-s", type=float, default=60.0)
    options = parser.parse_args()
    report = soak(options.topology, options.time, options.kills, options.seed, options.limit_s, (0.0, options.pause_s))
    print(f"{'killed':<12} {'times':>5} {'median s':>9} {'max s':>7}   until all is green")
    for name, times, median_s, max_s in report.rows():
        print(f"{name:<12} {times:>5} {median_s:>9.2f} {max_s:>7.2f}")
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
