"""The page in a browser, over a computed fabric: what one sees, and what it says when something is wrong."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.controller.web.computed_view import ComputedView, bundle
from tests.controller.web.view_server import serve, troubled
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell is not on the PATH"),
]
VIEWS = ("now", "map", "why", "traffic", "jobs", "compute", "system")
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as run:
        launched = run.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield launched
        launched.close()


class Visit:
    """A tab of one browser profile, signed in; it gathers what the console says."""

    def __init__(self, browser: Any, view: ComputedView, base: str, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.context.set_default_timeout(PATIENCE_MS)
        self.said: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.base = base
        view.codes.add("code")
        self.page.goto(f"{base}/#code")
        self.page.wait_for_selector(".verdict")

    def go(self, route: str) -> None:
        self.page.evaluate("route => { location.hash = route }", route)

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()


@pytest.fixture
def view() -> ComputedView:
    return troubled("abilene")


@pytest.fixture
def base(view: ComputedView) -> Iterator[str]:
    server = serve(view)
    yield f"http://127.0.0.1:{server.server_port}"
    view.is_away = True
    server.shutdown()
    server.server_close()


@pytest.fixture
def visit(browser: Any, view: ComputedView, base: str) -> Iterator[Visit]:
    opened = Visit(browser, view, base)
    yield opened
    opened.context.close()


def test_a_code_signs_in_once(visit: Visit) -> None:
    assert "code" not in visit.page.url.partition("#")[2]
    visit.sees("2 links are down and 2 critical events are open.")
    other = visit.context.browser.new_page()
    other.goto(f"{visit.base}/#code")
    other.get_by_text("the code is used up").wait_for(timeout=PATIENCE_MS)
    other.get_by_label("Token").fill("viewer-token")
    other.get_by_role("button", name="Sign in").click()
    other.wait_for_selector(".verdict", timeout=PATIENCE_MS)
    other.close()
    assert visit.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_serious_violations(browser: Any, view: ComputedView, base: str, scheme: str) -> None:
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-playwright-python is not installed")
    axe = next(Path(spec.origin).parent.rglob("axe.min.js")).read_text()
    visit = Visit(browser, view, base, color_scheme=scheme, viewport={"width": 320, "height": 640})
    visit.page.evaluate(axe)
    for name in VIEWS:
        visit.go(f"#/{name}?link=snva&to=losa" if name == "map" else f"#/{name}")
        visit.page.locator("h1").first.wait_for(state="attached")
        found = visit.page.evaluate("axe.run()")["violations"]
        assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == [], name
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 320, name
    visit.context.close()
    assert visit.said == []


def test_the_map_draws_and_selects(visit: Visit) -> None:
    visit.go("#/map")
    visit.page.wait_for_selector("canvas[data-drawn]")
    visit.page.get_by_role("button", name="snva → losa", exact=True).click()
    visit.sees("Drained: no new traffic is placed here.")
    visit.sees("queue, mean")
    assert "link=snva" in visit.page.url
    drawn = int(visit.page.get_attribute("canvas", "data-drawn"))
    visit.page.wait_for_selector(f"canvas:not([data-drawn='{drawn}'])")
    visit.page.get_by_role("button", name="Other direction").click()
    visit.page.get_by_role("heading", name="losa → snva").wait_for()
    assert visit.said == []


def test_a_link_is_drained_and_put_back(visit: Visit, view: ComputedView) -> None:
    view.may = ["drain"]
    visit.page.reload()
    visit.page.wait_for_selector(".verdict")
    visit.go("#/now?link=kscy&to=dnvr")
    visit.page.get_by_role("button", name="Drain …").click()
    dialog = visit.page.get_by_role("dialog", name="Drain kscy->dnvr")
    dialog.get_by_text("further measured flows on it").wait_for()
    dialog.get_by_text("would be hstn->kscy at 74").wait_for()
    assert dialog.get_by_role("row").count() > 1
    dialog.get_by_label("Both directions").check()
    visit.page.get_by_role("dialog", name="Drain kscy<->dnvr").get_by_text("would be hstn->kscy").wait_for()
    visit.page.get_by_label("Why").fill("new <b>optics</b>")
    dialog_now = visit.page.get_by_role("dialog")
    dialog_now.get_by_role("button", name="Drain").click()
    visit.sees("kscy<->dnvr is drained.")
    visit.sees("By ada")
    visit.sees("new <b>optics</b>")
    assert view.elements == {"kscy<->dnvr": "new <b>optics</b>"}
    visit.page.get_by_role("button", name="Undo").click()
    wait_until(lambda: not view.elements, "it is still drained", limit_s=PATIENCE_MS / 1000)
    visit.page.get_by_role("button", name="Drain …").wait_for()
    assert visit.said == []


def test_two_tabs_drain_one_after_the_other(visit: Visit, view: ComputedView) -> None:
    view.may = ["drain"]
    visit.page.reload()
    visit.page.wait_for_selector(".verdict")
    visit.go("#/now?node=kscy")
    visit.page.get_by_role("button", name="Drain …").click()
    dialog = visit.page.get_by_role("dialog", name="Drain kscy")
    dialog.get_by_text("stays: it is their only switch").wait_for()
    view.change_drain({"element": "hstn", "drained": True, "note": "other tab"})
    dialog.get_by_role("button", name="Drain").click()
    dialog.get_by_text("the drains have changed since this was shown: look again").wait_for()
    dialog.get_by_role("button", name="Drain").click()
    visit.sees("kscy is drained.")
    visit.page.get_by_role("button", name="Undrain …").click()
    visit.page.get_by_role("dialog", name="Put back kscy").get_by_role("button", name="Undrain").click()
    visit.sees("kscy is put back.")
    assert list(view.elements) == ["hstn"]
    assert [said for said in visit.said if "409" not in said] == []


def test_a_viewer_sees_no_button_that_changes(visit: Visit) -> None:
    visit.go("#/now?link=snva&to=losa")
    visit.sees("Drained: no new traffic is placed here.")
    assert visit.page.get_by_role("button", name="rain …").count() == 0


def test_jobs_name_who_holds_them_up(visit: Visit, view: ComputedView) -> None:
    slow = view.jobs(0)[0]["slowest"]["name"]
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("j")
    visit.sees(f"{slow} holds it up by 760 µs an item: 94 % of the waiting")
    visit.page.wait_for_selector("canvas[data-drawn]")
    visit.page.get_by_role("button", name="<b>vgg</b>").click()
    visit.sees("waits for workers: 1 of 8 have joined.")
    assert "job=" in visit.page.url
    visit.page.get_by_role("heading", name="Workers of <b>vgg</b>").wait_for()
    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="Jobs as CSV", exact=True).click()
    assert "resnet" in Path(saved.value.path()).read_text("utf-8")
    assert visit.said == []


def test_old_figures_are_named_and_recover(visit: Visit, view: ComputedView) -> None:
    visit.go("#/map")
    visit.page.wait_for_selector("tbody tr")  # there are figures that can grow old
    visit.go("#/now")
    view.problem = "127.0.0.1:9000 refuses connections"
    visit.sees("collector: 127.0.0.1:9000 refuses connections")
    visit.page.wait_for_selector(".banner.bad strong:has-text('The figures are')")
    visit.sees("Nothing can be said: the figures are old")
    view.problem = None
    visit.page.wait_for_selector(".banner.bad", state="detached")
    view.is_away = True
    visit.sees("No connection:")
    view.is_away = False
    visit.page.wait_for_selector(".banner.bad", state="detached")


def test_a_pasted_link_shows_the_same_figures(visit: Visit, browser: Any, view: ComputedView, base: str) -> None:
    visit.go("#/map")
    visit.page.wait_for_selector("tbody tr")
    visit.page.keyboard.press("Space")
    visit.sees("You see")
    visit.page.wait_for_url("**/*at=*")
    here = visit.page.locator("tbody").first.inner_text()
    other = Visit(browser, view, base)
    other.go(visit.page.url.partition("#")[2])
    other.sees("You see")
    wait_until(lambda: other.page.locator("tbody").first.inner_text() == here, "other figures", poll_s=0.5)
    other.page.get_by_role("button", name="Back to live").click()
    other.page.wait_for_selector(".banner.past", state="detached")
    assert visit.said == other.said == []
    other.context.close()


def test_keys_reach_views_search_and_events(visit: Visit) -> None:
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("m")
    visit.page.wait_for_selector("canvas")
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("snva losa")
    visit.page.get_by_role("option").first.wait_for()
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("heading", name="snva → losa").wait_for()
    visit.page.keyboard.press("Escape")
    visit.page.wait_for_selector("aside", state="detached")
    visit.page.keyboard.press("[")
    visit.page.wait_for_selector(".banner.past")
    visit.page.keyboard.press("l")
    visit.page.wait_for_selector(".banner.past", state="detached")
    visit.page.keyboard.press("?")
    visit.page.get_by_role("heading", name="Keys").wait_for()


def test_markup_in_names_is_text(browser: Any) -> None:
    name = "<img src=x onerror=alert(1)>" + "x" * 200
    view = troubled("abilene")
    view.topology["switches"][9]["name"] = name
    view = ComputedView(view.topology)
    view.down = {link for link, ends in enumerate(view.ends) if name in ends}
    server = serve(view)
    visit = Visit(browser, view, f"http://127.0.0.1:{server.server_port}")
    visit.page.on("dialog", lambda _: visit.said.append("a dialog"))
    visit.sees(name)
    visit.go("#/map")
    visit.page.wait_for_selector("canvas[data-drawn]")
    assert visit.page.locator("img").count() == 0
    assert visit.said == []
    visit.context.close()
    view.is_away = True
    server.shutdown()
    server.server_close()


def test_clock_of_the_server_may_jump(visit: Visit, view: ComputedView) -> None:
    shown = visit.page.get_by_label("Time of the figures")
    visit.go("#/map")
    visit.page.wait_for_selector("tbody tr")
    here = int(shown.inner_text()[:2])
    for hours in (2, -3):
        view.ahead_ns = hours * 3_600_000_000_000
        far = {(here + hours) % 24, (here + hours + 1) % 24}
        wait_until(partial(_is_of_hour, shown, far), partial(shown.inner_text), limit_s=PATIENCE_MS / 1000)
        visit.page.wait_for_selector(".banner.bad", state="detached")
    assert visit.said == []


def _is_of_hour(shown: Any, hours: set[int]) -> bool:
    return int(shown.inner_text()[:2]) in hours


def test_an_expired_session_asks_to_sign_in_again(visit: Visit, view: ComputedView) -> None:
    view.sessions.clear()
    view.is_away = True
    visit.sees("No connection:")
    view.is_away = False
    visit.page.get_by_label("Token").fill("viewer-token")
    visit.page.get_by_role("button", name="Sign in").click()
    visit.page.wait_for_selector(".verdict")
    assert [said for said in visit.said if "401" not in said and "503" not in said] == []


def test_a_hundred_cables_are_one_bundle(browser: Any) -> None:
    view = ComputedView(bundle(100, "x" * 200))
    view.down = {150}
    server = serve(view)
    visit = Visit(browser, view, f"http://127.0.0.1:{server.server_port}")
    visit.sees("1 link is down")
    assert (
        visit.page.evaluate("[...document.querySelectorAll('.card')].filter(c => c.scrollWidth > c.clientWidth)") == []
    )
    visit.go("#/map")
    visit.page.wait_for_selector("canvas[data-drawn]")
    visit.sees("The first 150 of 200 are shown; CSV has all.")
    visit.page.locator("tbody tr").first.get_by_text("down").wait_for()
    assert visit.said == []
    visit.context.close()
    view.is_away = True
    server.shutdown()
    server.server_close()


def test_another_version_reloads_itself_once(browser: Any, base: str, view: ComputedView) -> None:
    view.build = "of another version"
    visit = Visit(browser, view, base)
    visit.sees("This page is of another version than the server.")
    visit.context.close()
