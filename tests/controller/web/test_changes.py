"""Changes made in a browser, over a real API server, collector and path server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from collectors.collector import Collector
from controller.apiserver.resources import Centre, Metadata, ProbeTask
from controller.apiserver.resources.probe_task import ImplementationSpec, KernelUseSpec, ProbeTaskSpec
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import Served
from tests.controller.apiserver.view.test_browsers import browser, signed_in
from tests.controller.apiserver.view.test_changes import MANIFEST
from tests.controller.apiserver.view.test_network import run

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell is not on the PATH"),
]
PATIENCE_MS = 120_000
NUMPY = ImplementationSpec(device=DeviceKind.CPU, library="numpy", entry="numpy:dot")


@contextmanager
def opened(url: str, session: Mapping[str, str]) -> Iterator[Any]:
    """Open the page, signed in, in a browser of this thread; it must not complain on its console."""
    with playwright.sync_playwright() as runs:
        launched = runs.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        context = launched.new_context(viewport={"width": 1280, "height": 900})
        # A busy machine takes longer to start a browser than a code lasts.
        context.add_cookies([{"name": name, "value": value, "url": url} for name, value in session.items()])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        page.wait_for_selector(".verdict")
        yield page
        # A refusal that the page shows is an answer, which browsers log.
        assert [text for text in said if "Failed to load resource" not in text] == []
        launched.close()


def drive(look: Callable[[Any], None], *, viewer: bool = False) -> None:
    async def act(served: Served, client: httpx.AsyncClient, collector: Collector) -> None:
        await served.client.of(Centre).create(Centre(metadata=Metadata(name="east")))
        uses = (KernelUseSpec(name="a", kernel="dgemm", version=1, implementation=NUMPY, tolerance=0.0),)
        probe = ProbeTask(metadata=Metadata(name="solver"), spec=ProbeTaskSpec(category="hpc", uses=uses))
        await served.client.of(ProbeTask).create(probe)
        async with browser(served) as own:
            await signed_in(served, own, viewer=viewer)
            session = dict(own.cookies)

        def browse() -> None:
            with opened(served.url, session) as page:
                look(page)

        await asyncio.to_thread(browse)

    run(act)


def confirm(page: Any, action: str) -> None:
    """Press a dialog's button, and wait until it has done it."""
    page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()
    page.get_by_role("dialog").wait_for(state="detached")


def undo(page: Any) -> None:
    page.get_by_role("button", name="Undo").click()


def go(page: Any, route: str) -> None:
    page.evaluate("route => { location.hash = route }", route)


def test_each_change_asks_is_made_and_undone() -> None:
    def look(page: Any) -> None:
        acknowledge(page)
        change_rules(page)
        pin(page)
        apply(page)
        probe(page)

    drive(look)


def acknowledge(page: Any) -> None:
    button = page.get_by_role("button", name="Acknowledge slow on link s1->s2")
    button.click()
    dialog = page.get_by_role("dialog", name="Acknowledge slow on link s1->s2")
    # The dialog has the focus and keeps it; Escape gives it back to the button.
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.textContent").startswith("Acknowledge")
    button.click()
    page.get_by_label("Note for the others, optional").fill("a new cable <b>comes</b>")
    confirm(page, "Acknowledge")
    page.get_by_text("a new cable <b>comes</b>").wait_for()
    undo(page)
    button.wait_for()


def change_rules(page: Any) -> None:
    go(page, "#/system")
    page.get_by_role("button", name="Add a rule …").click()
    text = page.get_by_label("The rule, as in a settings file")
    text.fill("name: full\nfigure: utilisatio\nabove: 0.9\n")
    page.get_by_text("a link has no figure 'utilisatio'").wait_for()
    text.fill("name: full\nfigure: utilisation\nabove: 0.9\n")
    page.get_by_text("full: link: utilisation above 0.9.").wait_for()
    confirm(page, "Add")
    page.get_by_text("Not in the settings: added by local").wait_for()
    page.get_by_role("button", name="Remove rule full").click()
    confirm(page, "Remove")
    undo(page)
    page.get_by_role("button", name="Remove rule full").wait_for()


def pin(page: Any) -> None:
    go(page, "#/why?src=h1&dst=h2")
    page.get_by_role("button", name="s1 → s3 → s2").click()
    page.get_by_role("button", name="Pin to the chosen path …").click()
    page.get_by_text("It is moved from s1 → s2 to s1 → s3 → s2.").wait_for()
    page.get_by_text("By the present figures it is").wait_for()
    confirm(page, "Pin")
    page.get_by_text("Pinned to", exact=True).wait_for()
    page.get_by_role("button", name="Release …").click()
    confirm(page, "Release")
    page.get_by_text("h1 → h2 is released.").wait_for()
    undo(page)
    page.get_by_role("button", name="Release …").wait_for()


def apply(page: Any) -> None:
    go(page, "#/compute?tab=pods")
    page.get_by_role("button", name="Apply a manifest …").click()
    text = page.get_by_label("Manifest, ours or Kubernetes', in YAML or JSON")
    text.fill(MANIFEST.replace("cpu", "cpus"))
    page.get_by_text("manifest:5: ").wait_for()
    text.fill(MANIFEST)
    page.get_by_role("cell", name="is created").wait_for()
    confirm(page, "Apply")
    page.get_by_role("button", name="web", exact=True).click()
    page.get_by_role("button", name="Delete web …").click()
    confirm(page, "Delete")
    page.get_by_text("Pod web is deleted.").wait_for()
    page.get_by_role("button", name="web", exact=True).wait_for(state="detached")


def probe(page: Any) -> None:
    go(page, "#/compute?tab=centres")
    page.get_by_role("button", name="east", exact=True).click()
    page.get_by_role("button", name="Start a probe of east …").click()
    page.get_by_text("It runs dgemm on one unit, 3 times").wait_for()
    confirm(page, "Start")
    page.get_by_text("is sent to east.").wait_for()
    go(page, "#/compute?tab=tasks")
    task = page.get_by_role("button", name="demand-solver-east-")
    task.wait_for()
    undo(page)
    task.wait_for(state="detached")


def test_viewer_is_offered_no_change() -> None:
    def look(page: Any) -> None:
        page.get_by_text("slow", exact=True).first.wait_for()
        for route, shown in (
            ("#/now", "Open events"),
            ("#/system", "Event rules"),
            ("#/why?src=h1&dst=h2", "Alternatives"),
            ("#/compute?tab=pods", "Compute"),
        ):
            go(page, route)
            page.get_by_role("heading", name=shown, exact=True).wait_for()
            assert page.get_by_role("button").filter(has_text="…").count() == 0, route

    drive(look, viewer=True)
