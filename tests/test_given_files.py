"""Files named by users are read only by dataplane/given.py: with limits, and never waiting forever for a pipe."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_house import ROOT, modules

READS = {"read_text", "read_bytes", "open"}

OWN = {
    "collectors/devices/root.py": "sensors of this machine",
    "collectors/history/files.py": "its own mark of uploads",
    "collectors/history/journal.py": "its own journal",
    "collectors/history/objects/bucket.py": "its own files, uploaded",
    "collectors/history/objects/upload.py": "its own files, uploaded",
    "controller/apiserver/agents/state_folder.py": "its own state",
    "controller/apiserver/view/files.py": "the page, as installed",
    "controller/apiserver/view/system.py": "the audit log of its own server",
    "controller/workloads/centres/": "files of jobs in folders of its own, with limits there",
    "controller/apps/cli/completion/": "a table of its own, and what `millrace up` and fabrics note",
    "controller/apps/cli/doctor/": "the kernel's, and a scratch folder of its own",
    "controller/cluster/operators/tracing/exchange.py": "between two of its own processes",
    "controller/cluster/operators/tracing/running.py": "the kernel's",
    "controller/apps/demo/": "logs of its own",
    "controller/workloads/nodes/": "folders of the node's manager",
    "controller/acceleration/running/starting.py": "a log of its own",
    "controller/acceleration/running/tasks/process.py": "what the centre's agent has written",
    "controller/probing/kernels/loading.py": "the kernel's",
    "controller/probing/kernels/transfers/disk.py": "files that it has written",
    "controller/probing/running/command.py": "writes",
    "controller/probing/running/reading.py": "loads in a tenth of the time without, and has a limit",
    "controller/probing/running/warm.py": "the kernel's",
    "controller/apps/up/": "its own state, and logs",
    "dataplane/blas_threads.py": "the kernel's",
    "dataplane/cgroup_limits.py": "the kernel's",
    "dataplane/cgroups.py": "the kernel's",
    "dataplane/fabric/": "its own logs, manifests and counters",
    "dataplane/given.py": "the reader itself",
    "dataplane/load/processor.py": "the kernel's",
    "dataplane/local/deadline.py": "the kernel's",
    "dataplane/local/endings.py": "logs of processes that it has started",
    "dataplane/native/cache.py": "what is installed",
    "dataplane/nic/devices/far_end.py": "the kernel's",
    "dataplane/nic/dpdk/": "what is installed, and its own notes",
    "dataplane/program/build_check.py": "p4/ of this repository",
    "dataplane/rpc/peers.py": "the kernel's",
    "dataplane/switch/drop_in/shims.py": "what it has written",
}
"""Modules and folders that read only files of the system or of their own, with the reason."""


def reads_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each call that opens a file for reading."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        of_system = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "os"
        if isinstance(called, ast.Name) and name != "open":
            continue
        if name in READS and not of_system and _opens_for_reading(node, name):
            yield node.lineno, name


def _opens_for_reading(node: ast.Call, name: str) -> bool:
    if name != "open":
        return True
    index = 1 if isinstance(node.func, ast.Name) else 0
    words = [argument.value for argument in node.args[index:] if isinstance(argument, ast.Constant)]
    words += [keyword.value.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)]
    modes = [word for word in words if isinstance(word, str) and set(word) <= set("rwaxbt+")]
    is_file = isinstance(node.func, ast.Name) or bool(modes) or any(k.arg == "encoding" for k in node.keywords)
    return is_file and not any(set(mode) & set("wax") for mode in modes)


@pytest.mark.parametrize("package", ["collectors", "controller", "dataplane"])
def test_what_users_name_is_read_by_one_reader(package: str) -> None:
    faults = {}
    for path in modules():
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(package) or any(name.startswith(own) for own in OWN):
            continue
        text = path.read_text(encoding="utf-8")
        lines = list(reads_of(ast.parse(text))) if any(f"{word}(" in text for word in READS) else []
        if lines:
            faults[name] = lines
    assert faults == {}


@pytest.mark.parametrize("own", OWN)
def test_the_exceptions_are_there_and_open_files(own: str) -> None:
    path = ROOT / own
    texts = [file.read_text(encoding="utf-8") for file in (path.rglob("*.py") if path.is_dir() else [path])]
    assert any(f"{word}(" in text for text in texts for word in READS)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("p.read_text()", True),
        ("p.open()", False),
        ("p.open('rb')", True),
        ("p.open(encoding='utf-8')", True),
        ("p.open('w', encoding='utf-8')", False),
        ("read_text(p)", False),
        ("open(p)", True),
        ("open(p, 'wb')", False),
        ("os.open(p, 0)", False),
        ("session.open(schema=1)", False),
    ],
)
def test_a_read_is_known(text: str, reads: bool) -> None:
    assert bool(list(reads_of(ast.parse(text)))) is reads
