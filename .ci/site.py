"""Hooks of mkdocs: navigation, pages from outside docs/, sources that pages link to, API pages, and code's file names.

The pages themselves stay as GitHub shows them. Files linked outside docs/ become pages of the site: Markdown unchanged,
any other file as a listing. API pages cover the modules that pages and example programs import.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGES = {
    "dataplane": "Switches, devices, wire formats, topologies, workers of an all-reduce.",
    "collectors": "From telemetry reports to the state of the network.",
    "controller": "Controller, path server, schedulers and their services.",
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".p4": "c", "": "dockerfile"}
OUTSIDE = "project"
"""The folder of the site for pages from outside docs/."""

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:)(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_MARK = re.compile(r"^<!-- (?:run|file: (?P<file>[\w.-]+)) -->\n```(?P<language>\w+)$", re.MULTILINE)
_IMPORT = re.compile(rf"^\s*(?:from|import) ((?:{'|'.join(PACKAGES)})(?:\.\w+)+)", re.MULTILINE)


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the site's navigation: the index's headings with the pages that they link to first, then the API."""
    sections: list[dict[str, Any]] = [{"Home": "index.md"}]
    seen: set[str] = set()
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        uris = [place_of(DOCS / match["target"]) for match in _LINK.finditer(text)]
        pages = [uri for uri in dict.fromkeys(uris) if uri.endswith(".md") and uri not in seen]
        seen.update(pages)
        sections.append({title: pages})
    rest = [uri for uri, path in sorted(linked_outside().items()) if path.suffix == ".md" and uri not in seen]
    return [*sections, {"API": [f"api/{package}.md" for package in PACKAGES]}, {"Project": rest}]


def place_of(path: Path) -> str:
    """Return the site path of a project file."""
    path = path.resolve()
    if path.is_relative_to(DOCS) and path.suffix in {".md", ".svg"}:
        return path.relative_to(DOCS).as_posix()
    if path.is_dir():
        path /= "README.md"
    inside = path.relative_to(ROOT).as_posix()
    return f"{OUTSIDE}/{inside}" if path.suffix == ".md" else f"{OUTSIDE}/{inside}.md"


def links_of(text: str) -> Iterator[str]:
    """Yield the targets of a page's links, except those in code blocks."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        yield match["target"]


def linked_outside() -> dict[str, Path]:
    """Return files outside docs/ that pages link to, directly or indirectly, by their site path."""
    linked: dict[str, Path] = {}
    waiting = sorted(DOCS.rglob("*.md"))
    while waiting:
        page = waiting.pop()
        for target in links_of(page.read_text(encoding="utf-8")):
            path = (page.parent / target).resolve()
            uri = place_of(path)
            if (path.is_relative_to(DOCS) and path.suffix in {".md", ".svg"}) or uri in linked:
                continue
            linked[uri] = path
            if path.suffix == ".md":
                waiting.append(path)
    return linked


def shown(path: Path) -> str:
    """Return a page about a file or folder from outside docs/, its links still relative to its location."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        files = sorted(file.name for file in path.iterdir() if file.is_file())
        return f"# {name}\n\n" + "\n".join(f"- {file}" for file in files)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    fence = "`" * 4
    return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"


def modules_used() -> list[str]:
    """Return our modules that pages and example programs import."""
    texts = [path.read_text(encoding="utf-8") for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.py"))]
    modules = {module for text in texts for module in _IMPORT.findall(text)}
    return sorted(module for module in modules if _is_module(module))


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def api_page(package: str, modules: list[str]) -> str:
    """Return a package's page, which mkdocstrings fills."""
    ours = [module for module in modules if module.partition(".")[0] == package]
    return "\n\n".join([f"# {package}", PACKAGES[package], *(f"::: {module}" for module in ours)])


def rewritten(text: str, source: Path, uri: str) -> str:
    """Return a page for the site: links point into the site, marked blocks show their file's name."""
    pieces, end = [], 0
    for fence in [*_FENCE.finditer(text), None]:
        plain = text[end : len(text) if fence is None else fence.start()]
        pieces.append(_LINK.sub(lambda match: _moved(match, source, uri), plain))
        if fence is not None:
            pieces.append(fence[0])
            end = fence.end()
    return _MARK.sub(_titled, "".join(pieces))


def _moved(match: re.Match[str], source: Path, uri: str) -> str:
    target = place_of(source.parent / match["target"])
    return posixpath.relpath(target, posixpath.dirname(uri) or ".") + (match["anchor"] or "")


def _titled(match: re.Match[str]) -> str:
    title = f' title="{match["file"]}"' if match["file"] else ""
    return f"```{match['language']}{title}"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the site its navigation."""
    config.nav = navigation((DOCS / "index.md").read_text(encoding="utf-8"))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add linked files from outside docs/ and the API pages; drop example programs."""
    from mkdocs.structure.files import File, InclusionLevel  # noqa: PLC0415 - tests of the rest have no mkdocs

    for file in list(files):
        if file.src_uri.startswith("examples/") and not file.src_uri.endswith(".md"):
            files.remove(file)
    for uri, path in linked_outside().items():
        file = File.generated(config, uri, content=shown(path))
        if path.suffix != ".md":
            file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    modules = modules_used()
    for package in PACKAGES:
        files.append(File.generated(config, f"api/{package}.md", content=api_page(package, modules)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite a page for the site."""
    del config, files
    uri = page.file.src_uri
    if uri.startswith("api/"):
        return markdown
    source = ROOT / uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else DOCS / uri
    return rewritten(markdown, source, uri)
