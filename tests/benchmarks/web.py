"""The page at the size that it claims: 1,000 switches, 10,000 cables, all of whose figures change each second.

A process serves such a feed with the collector's own code, the API server runs as users run it, and readers take its
stream as the page does. `server_cores_10_viewers` is CPU time of the API server over time, its reading of the feed
included; `picture_age_s` the greatest age that a picture reaches before the next one replaces it; `replay_seek_s` the
time until the first picture of the past, out of a history of two minutes. With Playwright and Chromium (CHROMIUM, else
chromium-headless-shell on the PATH) the page itself is measured: `first_picture_s` from the address to the map's first
drawing; `interaction_cpu_ms_per_frame` CPU time of all browser processes for each frame while the map is dragged, which
no other load of the machine changes; `redraw_cores` the same over time while nobody touches it; `axe_serious` what axe
finds. Without them these are null.

    python -m tests.benchmarks.web [--quick] [--seconds N]     # --quick: 100 switches
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from collectors.collector import Collector
from collectors.feed.server import FeedServer, FeedSettings
from collectors.history.rows import Observation, RowMaker
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.state.link_states import LinkStates, link_states_of
from collectors.state.nominal import nominal_snapshot
from collectors.values import Snapshot
from controller.apiserver.client import ApiClient, Place
from controller.apiserver.view.frames import Frame
from dataplane.clock import NS_PER_S, MonotonicClock
from dataplane.topology.families import from_text
from dataplane.topology.values import Topology

ROOT: Final = Path(__file__).parents[2]
TICKS: Final = os.sysconf("SC_CLK_TCK")
HISTORY_S: Final = 120
FABRICS: Final = {True: "leaf-spine:spines=10,leaves=90,hosts=1", False: "fat-tree:k=28"}


class Changing(Collector):
    """A collector all of whose links change with each snapshot."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology, MonotonicClock())
        self._made = Figures(topology)

    def snapshot(self) -> Snapshot:
        """Return new figures."""
        return self._made.at(MonotonicClock().now_ns())


class Figures:
    """Random figures of all links."""

    def __init__(self, topology: Topology) -> None:
        self._nominal = nominal_snapshot(topology, 0)
        self._states = link_states_of(self._nominal.links)
        self._rng = np.random.default_rng(1)
        self._use = self._rng.random(len(self._states))

    def at(self, taken_ns: int) -> Snapshot:
        """Return the figures of a time: use wanders, a tenth of the links loses frames."""
        states, rng, count = self._states, self._rng, len(self._states)
        self._use = np.clip(self._use + rng.normal(0, 0.05, count), 0, 1)
        columns = dict(states.columns)
        columns["utilisation"] = self._use
        columns["delay_mean_ns"] = (5_000 + 1e6 * self._use**8 * rng.random(count)).astype(np.int64)
        columns["loss"] = np.where(rng.random(count) < 0.1, 0.01 * rng.random(count), 0.0)
        columns["age_ns"] = np.full(count, 1_000_000)
        columns["samples"] = np.full(count, 10)
        return replace(self._nominal, taken_ns=taken_ns, links=LinkStates(states.places, columns))


async def feed(fabric: str, address: str) -> None:
    """Serve changing figures until killed."""
    server = FeedServer(Changing(from_text(fabric)), FeedSettings(address=address))
    await server.start()
    print("ready", flush=True)
    await asyncio.Event().wait()


def write_history(folder: Path, topology: Topology, end_ns: int) -> None:
    """Write a row of each link for every second before a time."""
    settings = HistorySettings(folder=str(folder))
    writer, rows, figures = HistoryWriter(settings), RowMaker(topology, settings), Figures(topology)
    for second in range(HISTORY_S, 0, -1):
        wall_ns = end_ns - second * NS_PER_S
        writer.write(rows.batches(Observation(wall_ns, figures.at(wall_ns))), wall_ns)
    writer.close()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all below it."""
    total, below = 0.0, {pid}
    stats = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                _, _, rest = (path / "stat").read_text().rpartition(")")
                stats[int(path.name)] = rest.split()
    while more := {child for child, fields in stats.items() if int(fields[1]) in below} - below:
        below |= more
    for process in below & stats.keys():
        total += (int(stats[process][11]) + int(stats[process][12])) / TICKS
    return total


class Reader:
    """A reader of the stream: bytes, and the greatest age of what it shows."""

    def __init__(self) -> None:
        self.bytes = self.states = 0
        self.age_s = 0.0
        self.first_s: float | None = None
        self._shown_ns: int | None = None

    async def read(self, client: httpx.AsyncClient, path: str) -> None:
        """Read until cancelled, or the stream ends."""
        began_s, data = time.monotonic(), b""
        async with client.stream("GET", path, timeout=None) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_raw():
                self.bytes += len(part)
                data += part
                while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">I", data)[0]):
                    self._take(data[4], data[5 : 4 + size], began_s)
                    data = data[4 + size :]

    def _take(self, kind: int, payload: bytes, began_s: float) -> None:
        if kind not in {Frame.FULL, Frame.DIFFERENCE}:
            return
        self.states += 1
        if self.first_s is None:
            self.first_s = time.monotonic() - began_s
        # A picture is oldest when the next one takes its place.
        if self._shown_ns is not None:
            self.age_s = max(self.age_s, (time.time_ns() - self._shown_ns) / NS_PER_S)
        self._shown_ns = struct.unpack_from(">Q", payload)[0]


async def viewing(client: httpx.AsyncClient, viewers: int, seconds: float, pid: int) -> dict[str, float]:
    """Return CPU and traffic with a number of readers."""
    readers = [Reader() for _ in range(viewers)]
    tasks = [asyncio.create_task(reader.read(client, "/v1/view/stream")) for reader in readers]
    while not all(reader.states > 1 for reader in readers):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.1)
    for reader in readers:
        reader.bytes, reader.age_s = 0, 0.0
    began_s, began_cpu_s = time.monotonic(), cpu_s(pid)
    await asyncio.sleep(seconds)
    passed_s, used_s = time.monotonic() - began_s, cpu_s(pid) - began_cpu_s
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "cores": used_s / passed_s,
        "kbytes_per_s": sum(reader.bytes for reader in readers) / viewers / passed_s / 1000,
        "age_s": max(reader.age_s for reader in readers),
    }


async def started(*command: str) -> asyncio.subprocess.Process:
    """Start a process; return it once it has said that it is ready."""
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    while b"ready" not in (line := await process.stdout.readline()):
        assert line, f"{command} ended"
    return process


async def ended(process: asyncio.subprocess.Process) -> None:
    """End a process."""
    process.kill()
    await process.communicate()


async def measured(folder: Path, *, quick: bool, seconds: float) -> dict[str, Any]:
    """Run everything; return the figures."""
    fabric = FABRICS[quick]
    topology = from_text(fabric)
    now_ns = time.time_ns()
    write_history(folder / "history", topology, now_ns)
    settings = folder / "api.yaml"
    settings.write_text(
        f"storage: {{sqlite: {folder}/db}}\nlisten: ['unix:{folder}/api', '127.0.0.1:0']\n"
        f"view: {{topology: '{fabric}', history: {folder}/history, viewers: 200,\n"
        f"       network_state: {{feed: 'unix:{folder}/feed', path_server: null, interval: 1s}}}}\n"
        "limits: {connections_of_one: 500, watches_of_one: 500, requests_per_s: 2000}\n"
    )
    async with AsyncExitStack() as stack:
        for command in (
            (sys.executable, "-m", "tests.benchmarks.web", "--feed", fabric, f"unix:{folder}/feed"),
            (sys.executable, "-m", "controller.apps.cli", "api", "serve", "--settings", str(settings)),
        ):
            process = await started(*command)
            stack.push_async_callback(ended, process)
        limits = httpx.Limits(max_connections=300, max_keepalive_connections=300)
        transport = httpx.AsyncHTTPTransport(uds=f"{folder}/api", limits=limits)
        client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://api"))
        ten = await viewing(client, 10, seconds, process.pid)
        hundred = await viewing(client, 100, seconds, process.pid)
        seek = Reader()
        begin_ns = now_ns - (HISTORY_S - 30) * NS_PER_S
        await seek.read(client, f"/v1/view/replay?from={begin_ns}&to={begin_ns + NS_PER_S}&speed=1")
        api = await stack.enter_async_context(ApiClient(Place(f"unix:{folder}/api")))
        code = await api.new_code(viewer=True)
        shown = await asyncio.to_thread(in_browser, f"{code.urls[0]}/#{code.code}", seconds)
    return {
        "switches": len(topology.switches),
        "links": 2 * sum(link.a.node in topology.switch and link.b.node in topology.switch for link in topology.links),
        **shown,
        "picture_age_s": round(hundred["age_s"], 3),
        "server_cores_10_viewers": round(ten["cores"], 3),
        "server_cores_100_viewers": round(hundred["cores"], 3),
        "kbytes_per_s_viewer": round(ten["kbytes_per_s"], 1),
        "viewers": 100,
        "replay_seek_s": None if seek.first_s is None else round(seek.first_s, 3),
    }


BROWSER_KEYS: Final = ("first_picture_s", "interaction_cpu_ms_per_frame", "redraw_cores", "axe_serious")


def in_browser(url: str, seconds: float) -> Mapping[str, Any]:
    """Return the figures of the page in Chromium; null without a browser."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell")
    if found is None or importlib.util.find_spec("playwright") is None:
        return dict.fromkeys(BROWSER_KEYS)
    sync_playwright = importlib.import_module("playwright.sync_api").sync_playwright
    options = {"executable_path": found, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(**options)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        began_s = time.monotonic()
        page.goto(url.replace("/#", "/#", 1))
        page.wait_for_selector(".verdict:not(.unknown)", timeout=60_000)
        page.keyboard.press("g")
        page.keyboard.press("m")
        page.wait_for_selector("canvas", timeout=60_000)
        first_s = time.monotonic() - began_s
        page.wait_for_timeout(3000)
        began_s, began_cpu_s = time.monotonic(), cpu_s(os.getpid())
        page.wait_for_timeout(1000 * seconds)
        idle = (cpu_s(os.getpid()) - began_cpu_s) / (time.monotonic() - began_s)
        page.evaluate("() => { window.frames_ = 0; const n = () => { frames_++; requestAnimationFrame(n) }; n() }")
        began_cpu_s = cpu_s(os.getpid())
        page.mouse.move(600, 400)
        page.mouse.down()
        for step in range(200):
            page.mouse.move(600 + 100 * np.sin(step / 10), 400 + 60 * np.cos(step / 10))
        page.mouse.up()
        frames = max(1, page.evaluate("() => frames_"))
        moving = 1000 * (cpu_s(os.getpid()) - began_cpu_s) / frames
        serious = axe(page)
        browser.close()
    return dict(zip(BROWSER_KEYS, (round(first_s, 2), round(moving, 1), round(idle, 3), serious), strict=True))


def axe(page: Any) -> int | None:
    """Return the number of serious and critical findings of axe."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        return None
    page.evaluate(Path(importlib.import_module("axe_playwright_python.base").AXE_FILE_PATH).read_text("utf-8"))
    found = page.evaluate("() => axe.run()")
    return sum(violation["impact"] in {"serious", "critical"} for violation in found["violations"])


def main() -> int:
    """Print all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 switches")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--feed", nargs=2, metavar=("FABRIC", "ADDRESS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed is not None:
        asyncio.run(feed(*options.feed))
        return 0
    with tempfile.TemporaryDirectory(prefix="web-") as name:
        print(json.dumps(asyncio.run(measured(Path(name), quick=options.quick, seconds=options.seconds))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
