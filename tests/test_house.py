"""Rules for the whole repository: pages name files that exist, folders stay readable, nothing outside is read."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.path_races import races_in

ROOT = Path(__file__).parents[1]
PACKAGES = ("dataplane", "collectors", "controller")
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "topologies").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.dot"),
    ]
)
HISTORY = {"CHANGELOG.md": "tells of files that were"}
"""Pages that may name former things, with the reason."""

MOST_MODULES = 16
WIDE = {
    "dataplane/wire": "one header a file",
    "dataplane/switch/p4runtime": "the service: a part of the specification a file",
    "controller/apiserver/resources": "a kind of resources a file",
}
"""Folders with more modules than one can take in at a glance, and of what one kind they are."""

RACED = (
    *(
        "controller/apiserver",
        "controller/workloads/centres",
        "controller/workloads/nodes",
        "controller/probing/running",
    ),
    *("controller/apps/up", "dataplane/local", "dataplane/rpc"),
)
"""Packages of daemons that touch folders in which jobs, pods or users may write."""
_STATE = "the daemon's state folder: nobody else can enter it"
_CONTAINERS = "a folder of the runtime's own, 0700, beside the container's root"
_SETTINGS = "a path that only the administrator's settings name"
_CGROUPS = "control groups have no links"
_PACKAGE = "files of the installed package"
RACE_FREE = {
    "controller/apiserver/agents/state_folder.py:StateFolder.identity": _STATE,
    "controller/apiserver/server/audit.py:AuditLog._rotate": _SETTINGS,
    "controller/apiserver/view/files.py:PageFiles._read": _PACKAGE,
    "controller/apiserver/view/files.py:PageFiles._digest": _PACKAGE,
    "controller/workloads/centres/engines/containers/boot.py:pack": "runs inside the container, as the job itself",
    "controller/workloads/centres/engines/containers/boot.py:unpack": "runs inside the container, before the job",
    "controller/workloads/centres/engines/jobs/folders.py:_write": "a job's record, which the agent keeps to itself",
    "controller/workloads/centres/engines/jobs/keeper.py:confine": _CGROUPS,
    "controller/workloads/centres/engines/jobs/sandboxing.py:separate": "/proc has no links of users",
    "controller/workloads/centres/engines/jobs/sandboxing.py:_show": "O_EXCL, in a mount of this process alone",
    "controller/workloads/centres/engines/local/engine.py:LocalEngine._kept": _STATE,
    "controller/workloads/centres/engines/local/engine.py:LocalEngine.cancel": _STATE,
    "controller/workloads/centres/engines/local/isolation.py:Isolation._shown": "/etc is root's",
    "controller/workloads/centres/engines/local/isolation.py:_real": "the interpreter and what settings name",
    "controller/workloads/centres/engines/local/records.py:Record.write": _STATE,
    "controller/workloads/centres/folder.py:CentreFolder._write": _STATE,
    "controller/workloads/nodes/mps.py:_write": _SETTINGS,
    "controller/workloads/nodes/numbering.py:_write": _STATE,
    "controller/workloads/nodes/runtimes/images/layout.py:Layout.link": "the runtime's own copy of a layout",
    "controller/workloads/nodes/runtimes/images/rootfs.py:_write": "beside an image's root, which is unpacked below it",
    "controller/workloads/nodes/runtimes/podman/memory.py:_eventfd_of": _CGROUPS,
    "controller/workloads/nodes/runtimes/reading/beneath.py:open_below": "the allowed folders, which settings name",
    "controller/workloads/nodes/runtimes/reading/renaming.py:rename": "the runtime's own copy of an archive",
    "controller/workloads/nodes/runtimes/runc/records.py:Records.write": _CONTAINERS,
    "controller/workloads/nodes/runtimes/runc/runtime.py:RuncRuntime._lay_out": _CONTAINERS,
    "controller/workloads/nodes/runtimes/runc/runtime.py:RuncRuntime.exec": _CONTAINERS,
    "controller/workloads/nodes/serving/attempts.py:Attempts._write": _STATE,
    "controller/workloads/nodes/serving/dismissals.py:Dismissals._write": _STATE,
    "controller/workloads/nodes/serving/driver.py:Driver._place_now": "namespaces' names are root's",
    "controller/workloads/nodes/serving/images.py:ImageCollector._write": _STATE,
    "controller/probing/running/command.py:_write": "runs as the job, in its own folder",
    "controller/probing/running/trying.py:_run": "a temporary folder of this process's own",
    "controller/probing/running/warm.py:_take_place": _CGROUPS,
    "controller/apps/up/command.py:_is_topology": "the command line of whoever runs this",
    "controller/apps/up/command.py:_started": "the log in the state folder of whoever runs this",
    "controller/apps/up/state.py:StateFolder.write_settings": "the command line of whoever runs this",
    "controller/apps/up/state.py:default_run": "the command line of whoever runs this",
}
"""Functions that use paths after checking them, and why no one else can change those paths."""

_TOP = "|".join((*PACKAGES, "tests", "topologies", "docs", "p4", "requirements"))
_PATH = re.compile(rf"(?<![\w./-])(?:{_TOP})(?:/[\w.-]*\w)+/?")
_DOTTED = re.compile(rf"(?<![\w./])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_ENDINGS = (".md", ".yaml", ".toml", ".sock", ".json")
_PLACEHOLDER = "NAME"


def files_named_in(text: str) -> set[str]:
    """Return the paths of files and folders of ours in a page; `NAME` in one stands for any."""
    return {match[0].rstrip("/") for match in _PATH.finditer(text) if _PLACEHOLDER not in match[0]}


def names_used_in(text: str) -> set[str]:
    """Return our dotted names in a page's text, modules and their members; its code is run elsewhere."""
    return {match[0] for match in _DOTTED.finditer(_BLOCK.sub("", text)) if not match[0].endswith(_ENDINGS)}


def is_there(name: str) -> bool:
    """Return whether a dotted name leads to a module or package, and the rest of it stands there."""
    path, parts = ROOT, name.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts and (path / f"{parts[0]}.py").is_file():
        path /= f"{parts.pop(0)}.py"
    else:
        path /= "__init__.py"
    if parts and parts[0] == "__file__":
        return path.is_file()
    return path.is_file() and (not parts or re.search(rf"\b{parts[0]}\b", path.read_text(encoding="utf-8")) is not None)


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
    text = "see `dataplane/no/such.py`, (controller/apps/cli) and collectors.values.Snapshot, not ../dataplane/x.py"
    assert files_named_in(text) == {"dataplane/no/such.py", "controller/apps/cli"}
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
    faults = {path for path in [*modules(), *pages] if outside.search(path.read_text(encoding="utf-8"))}
    assert faults == set()


def test_no_module_climbs_out_of_the_repository() -> None:
    """By `parents[N]` of its own file, or a folder next to the checkout; tests may, and skip if it is missing."""
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
    source = ROOT / "docs/reference/architecture.dot"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    picture = source.with_suffix(".svg").read_text(encoding="utf-8")
    assert f"{source.name} sha256:{digest}" in picture, "make picture"


def test_no_path_is_checked_and_then_used() -> None:
    """A link may take its place between: open it once, without following links, and keep to the descriptor."""
    faults = {
        f"{path.relative_to(ROOT)}:{race.function}": f"{path.relative_to(ROOT)}: {race}"
        for package in RACED
        for path in sorted((ROOT / package).rglob("*.py"))
        for race in races_in(path.read_text(encoding="utf-8"))
    }
    assert [text for name, text in faults.items() if name not in RACE_FREE] == []
    assert RACE_FREE.keys() <= faults.keys(), "what is no more needs no reason"


JOB_FOLDER = """
class Engine:
    def write(self, order):
        order.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in order.files.items():
            path = order.folder / name
            path.write_bytes(content)
        os.chown(order.folder, *self._user)
"""
BUNDLE_ROOT = """
def root_of(folder, name):
    root = (folder / name).resolve()
    if not root.is_dir() or not root.is_relative_to(folder):
        raise OrderError(name)
    return root
"""
RESULT = """
async def read(path):
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        return file.read()
"""


@pytest.mark.parametrize(
    ("source", "races"),
    [
        (JOB_FOLDER, ["Engine.write:7: write_bytes of path", "Engine.write:8: chown of order.folder"]),
        (BUNDLE_ROOT, ["root_of:3: resolve of folder / name"]),
        (RESULT, ["read:5: open of path after is_file"]),
        ("def f(x):\n    if os.path.isfile(x): shutil.rmtree(x)", ["f:2: rmtree of x after isfile"]),
        ("def f(x):\n    if os.access(x, 4): return open(x)", ["f:2: open of x after access"]),
        ("if FILE.exists(): FILE.unlink()", ["<module>:1: unlink of FILE after exists"]),
        ("def f(x):\n    y = os.open(x, FLAGS)\n    os.fchown(y, 0, 0)\n    return x.exists()", []),
        ("def f(x):\n    with x.open('wb') as file: file.write(b'')", ["f:2: open of x"]),
        ("def f(x):\n    with x.open('xb') as file: file.write(b'')", []),
        ("def f(x, y):\n    if x.exists(): y.unlink()", []),
        ("def f(x, y):\n    if y.exists(): os.unlink(y, dir_fd=x)", []),
    ],
)
def test_races_are_found(source: str, races: list[str]) -> None:
    assert list(map(str, races_in(source))) == races


_TIME_UNIT = re.compile(
    r"^_?(?:NS|S|SECOND|MS|NS_PER_S|NS_PER_MS|SECOND_NS|S_NS)(?:: Final)? = (?:1_000_000(?:_000)?|1e[69]|10\*\*[69])\b",
    re.MULTILINE,
)


def test_units_of_time_are_stated_once() -> None:
    faults = {
        path.relative_to(ROOT).as_posix(): _TIME_UNIT.findall(path.read_text(encoding="utf-8"))
        for path in modules()
        if path.suffix == ".py"
    }
    assert [name for name, constants in faults.items() if constants] == ["dataplane/clock.py"]
