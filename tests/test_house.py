"""What holds for the house as a whole: pages name files that exist, folders stay readable, nothing outside is read."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("dataplane", "collectors", "controller")
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "topologies").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").glob("*.dot"),
    ]
)
HISTORY = {"CHANGELOG.md": "tells of files that were"}
"""Pages that may name what is no more, with the reason."""

MOST_MODULES = 16
WIDE = {
    "dataplane/wire": "one header a file",
    "dataplane/switch/p4runtime": "the service: a part of the specification a file",
    "controller/cli": "a command a file",
}
"""Folders with more modules than one can take in at a glance, and of what one kind they are."""

_TOP = "|".join((*PACKAGES, "tests", "topologies", "docs", "p4", "requirements"))
_PATH = re.compile(rf"(?<![\w./-])(?:{_TOP})(?:/[\w.-]*\w)+/?")
_DOTTED = re.compile(rf"(?<![\w./])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ENDINGS = (".md", ".yaml", ".toml", ".sock", ".json")
_PLACEHOLDER = "NAME"


def files_named_in(text: str) -> set[str]:
    """Return the paths of files and folders of ours in a page; `NAME` in one stands for any."""
    return {found[0].rstrip("/") for found in _PATH.finditer(text) if _PLACEHOLDER not in found[0]}


def names_used_in(text: str) -> set[str]:
    """Return the dotted names of ours in a page's text, modules and what is in them; its code is run elsewhere."""
    return {found[0] for found in _DOTTED.finditer(_BLOCK.sub("", text)) if not found[0].endswith(_ENDINGS)}


def is_there(name: str) -> bool:
    """Return whether a dotted name leads to a module or package, and the rest of it stands there."""
    place, parts = ROOT, name.split(".")
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place /= f"{parts.pop(0)}.py"
    else:
        place /= "__init__.py"
    if parts and parts[0] == "__file__":
        return place.is_file()
    return place.is_file() and (
        not parts or re.search(rf"\b{parts[0]}\b", place.read_text(encoding="utf-8")) is not None
    )


def modules() -> Iterator[Path]:
    """Yield every module of the packages."""
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    if page.name in HISTORY:
        pytest.skip(HISTORY[page.name])
    text = page.read_text(encoding="utf-8")
    assert {name for name in files_named_in(text) if not (ROOT / name).exists() and f"{name}.*" not in text} == set()
    assert {name for name in names_used_in(text) if not is_there(name)} == set()


def test_names_of_files_are_found_in_pages() -> None:
    text = "see `dataplane/no/such.py`, (controller/cli) and collectors.values.Snapshot, not ../dataplane/x.py"
    assert files_named_in(text) == {"dataplane/no/such.py", "controller/cli"}
    assert names_used_in(text) == {"collectors.values.Snapshot"}
    assert is_there("collectors.values.Snapshot")
    assert not is_there("collectors.values.Snapshoot")
    assert not is_there("collectors.valuables")


def test_no_folder_has_more_modules_than_one_can_take_in() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in modules() if path.name != "__init__.py")
    assert {folder for folder, count in counts.items() if count > MOST_MODULES} == WIDE.keys()


def test_docstrings_and_settings_refer_to_nothing_outside() -> None:
    outside = re.compile(r"(?<![\w/.])(?:spec|facts|\.\./shared)/|shared/data")
    pages = [page for page in PAGES if page.name not in HISTORY]
    found = {path for path in [*modules(), *pages] if outside.search(path.read_text(encoding="utf-8"))}
    assert found == set()


def test_no_module_climbs_out_of_the_repository() -> None:
    """By `parents[N]` of its own file, or a folder beside the checkout; tests may, and skip where it is not there."""
    for path in modules():
        depth = len(path.relative_to(ROOT).parts) - 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                assert node.value != "shared", f"{path}:{node.lineno}"
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "parents"
            ):
                assert isinstance(node.slice, ast.Constant), f"{path}:{node.lineno}"
                assert int(str(node.slice.value)) <= depth, f"{path}:{node.lineno}"


def test_the_picture_is_made_of_its_source() -> None:
    source = ROOT / "docs/architecture.dot"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    picture = source.with_suffix(".svg").read_text(encoding="utf-8")
    assert f"{source.name} sha256:{digest}" in picture, "make picture"
