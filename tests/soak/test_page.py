"""The page over a kernel fabric: each view in a browser, and a hundred viewers at once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.apiserver.client import ApiClient, Place
from tests.benchmarks.web import Reader
from tests.soak.up import START_S, Running, running
from tests.waiting import finish_within, until, wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell is not on the PATH"),
]
VIEWS = ("now", "map", "why", "traffic", "jobs", "compute", "system")
VIEWERS = 100
STATES = 10
"""States that each viewer gets before they leave."""
PATIENCE_S = 300.0
NODES = "nodes: {h1: {}, h2: {}}\n"
LIMITS = "limits: {connections_of_one: 300, watches_of_one: 300}"


def test_each_view_shows_a_kernel_fabric_to_a_hundred(tmp_path: Path) -> None:
    with running(tmp_path, "leaf-spine:spines=2,leaves=2,hosts=2", "kernel", more=NODES, api=LIMITS) as up:
        up.until_green(START_S)
        socket = up.socket.parent / "api.sock"
        code = asyncio.run(_new_code(socket))
        assert _seen(code) == []
        asyncio.run(finish_within(_viewed(socket), PATIENCE_S))
        _is_green(up)


async def _new_code(socket: Path) -> str:
    async with ApiClient(Place(f"unix:{socket}")) as api:
        made = await api.new_code(viewer=True)
    return f"{made.urls[0]}/#{made.code}"


def _seen(address: str) -> list[str]:
    """Look at each view, at the past and at a link; return what the browser's console had to say."""
    said: list[str] = []
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page: Any = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(1000 * PATIENCE_S)
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        page.wait_for_selector(".verdict:not(.unknown)")
        for view in VIEWS:
            page.evaluate("view => { location.hash = `#/${view}` }", view)
            page.wait_for_url(f"**#/{view}*")
            page.locator("h1").first.wait_for(state="attached")
        page.evaluate("() => { location.hash = '#/map?link=leaf1&to=spine1' }")
        page.get_by_role("heading", name="leaf1 → spine1").wait_for()
        page.wait_for_selector("canvas[data-drawn]")
        page.keyboard.press("Space")
        page.wait_for_selector(".banner.past")
        page.get_by_role("button", name="Back to live").click()
        page.wait_for_selector(".banner.past", state="detached")
        browser.close()
    return said


async def _viewed(socket: Path) -> None:
    """Read the stream as many viewers; return once each has the states."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=httpx.Limits(max_connections=2 * VIEWERS))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        readers = [Reader() for _ in range(VIEWERS)]
        tasks = [asyncio.create_task(reader.read(client, "/v1/view/stream")) for reader in readers]
        try:
            await until(
                lambda: any(map(asyncio.Task.done, tasks)) or all(reader.states >= STATES for reader in readers)
            )
            for task in tasks:
                assert not task.done(), task.exception()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _is_green(up: Running) -> None:
    """Wait until all daemons are well: a hundred viewers harm none."""
    wait_until(
        lambda: (state := up.status()) is not None and state.is_green, "a daemon is not well", limit_s=PATIENCE_S
    )
