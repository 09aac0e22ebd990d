"""Draws the pictures of the page in docs/start: `python -m tests.page_screenshots` (`make screenshots`).

They show a real `millrace up`, light and dark; Playwright and chromium-headless-shell are needed. Look at them before
you commit them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

ROOT = Path(__file__).parents[1]
Scheme = Literal["light", "dark"]
PICTURES: dict[Scheme, Path] = {"light": ROOT / "docs/start/page.png", "dark": ROOT / "docs/start/page-dark.png"}
_COMMAND = [sys.executable, "-m", "controller.apps.cli"]
_PATIENCE_MS = 600_000
_SETTLED_MS = 20_000
"""Traffic has reached its rates, and queues their usual lengths."""


@contextmanager
def running(topology: str) -> Iterator[str]:
    """Run `millrace up` in a folder of its own; yield the address of its API."""
    with TemporaryDirectory(prefix="millrace-pictures-") as folder:
        state = ["--state", folder]
        addresses = _said("up", topology, *state, "--detach")
        try:
            found = re.search(r"unix:[^\s,]*api\.sock", addresses)
            assert found is not None, addresses
            yield found[0]
        finally:
            subprocess.run([*_COMMAND, "down", *state], check=True, cwd=ROOT)


def _said(*words: str) -> str:
    return subprocess.run([*_COMMAND, *words], check=True, cwd=ROOT, capture_output=True, text=True).stdout


def draw(api: str, route: str) -> None:
    """Save the page at an address below `#/` in both schemes."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - main says what is missing

    shell = shutil.which("chromium-headless-shell")
    with sync_playwright() as run:
        browser = run.chromium.launch(executable_path=shell, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for scheme, file in PICTURES.items():
            context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme=scheme)
            page = context.new_page()
            page.set_default_timeout(_PATIENCE_MS)
            page.goto(_said("view", "--viewer", "--api", api).splitlines()[0])
            page.wait_for_selector(".verdict")
            page.evaluate("route => { location.hash = route }", f"#/{route}")
            page.wait_for_selector("canvas[data-drawn]")
            page.wait_for_timeout(_SETTLED_MS)
            page.screenshot(path=file)
            context.close()
        browser.close()


def main() -> None:
    """Draw both pictures; what they show can be chosen."""
    parser = argparse.ArgumentParser(prog="python -m tests.page_screenshots", description=__doc__)
    parser.add_argument("--topology", default="abilene")
    parser.add_argument("--route", default="map", help="below #/ of the address, such as map or jobs")
    parser.add_argument("--api", default=None, help="an API server that runs already, instead of `millrace up`")
    options = parser.parse_args()
    os.environ.pop("MILLRACE_API", None)
    if options.api is not None:
        draw(options.api, options.route)
        return
    with running(options.topology) as api:
        draw(api, options.route)


if __name__ == "__main__":
    main()
