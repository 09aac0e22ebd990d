"""Pages built by `make site`: all of them, with correct links and code; `make deep` builds the site."""

from __future__ import annotations

import importlib.util
import posixpath
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / ".ci/site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation_once(site: ModuleType) -> None:
    sections = site.navigation((ROOT / "docs/index.md").read_text(encoding="utf-8"))
    shown = [page for section in sections for places in section.values() for page in places if len(page) > 1]
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    outside = {page for page, path in site.linked_outside().items() if path.suffix == ".md"}
    assert len(set(shown)) == len(shown)
    assert set(shown) == pages | outside | {"api/dataplane.md", "api/collectors.md", "api/controller.md"}


def test_links_lead_to_places_of_the_site(site: ModuleType) -> None:
    outside = site.linked_outside()
    pages = {site.place_of(page): page for page in (ROOT / "docs").rglob("*.md")}
    pages |= {page: path for page, path in outside.items() if path.suffix == ".md"}
    pictures = {site.place_of(picture) for picture in (ROOT / "docs").rglob("*.svg")}
    for address, source in pages.items():
        text = site.rewritten(source.read_text(encoding="utf-8"), source, address)
        led = {posixpath.normpath(posixpath.join(posixpath.dirname(address), link)) for link in site.links_of(text)}
        assert led <= pages.keys() | outside.keys() | pictures, address


def test_what_stands_outside_is_listed(site: ModuleType) -> None:
    text = site.shown(ROOT / "deploy/container/Containerfile")
    assert text.startswith("# deploy/container/Containerfile\n\n````dockerfile\n")
    assert "FROM ${BASE}" in text


def test_marks_are_gone_and_files_have_their_names(site: ModuleType) -> None:
    page = ROOT / "docs/index.md"
    text = '<!-- run -->\n```python\n"[a](b.md)"\n```\n<!-- file: x.yaml -->\n```yaml\na: 1\n```\n'
    text += "[code](examples/README.md#top)\n"
    assert site.rewritten(text, page, "index.md") == (
        '```python\n"[a](b.md)"\n```\n```yaml title="x.yaml"\na: 1\n```\n[code](examples/README.md#top)\n'
    )


def test_api_pages_have_what_pages_import(site: ModuleType) -> None:
    modules = site.modules_used()
    assert {"dataplane.switch.switch", "collectors.feed.client", "controller.network.p4runtime.session"} <= set(modules)
    assert "::: collectors.feed.client" in site.api_page("collectors", modules)
    assert "::: controller" not in site.api_page("collectors", modules)
