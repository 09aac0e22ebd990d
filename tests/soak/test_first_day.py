"""A new user's first day from the pages alone: each command succeeds, or says in one line what to do.

Unlike tests/soak/test_pages.py, nothing stands before the first command but the checkout, and the user is not root:
what a page takes for granted fails here. No command prints a stack trace or is silent for long, and where a page shows
output it has the same shape (tests/soak/pages/first_day.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from tests.docs.shell_blocks import PAGES, ROOT, shell_blocks_of
from tests.soak.pages.first_day import AS_ROOT, FIRST, KERNELS
from tests.soak.pages.sandbox import run_inside
from tests.soak.pages.typing_in import Done, problems_of

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(7200)]

FIRST_HOURS: Final = (
    "first:docs/start/demo.md",
    "docs/start/first-hour.md#Operate a network",
    "docs/start/first-hour.md#Own a cluster",
    "docs/start/first-hour.md#Train",
    "docs/start/up.md",
)
"""Installation with the demo, the three ways in, and the page that the first of them leads to."""
FOLDERS: Final = ("start", "cluster", "network", "training")
AFTER: Final = {"docs/cluster/probe-evaluation.md": "docs/cluster/task-scheduler.md#An example"}
"""Sections that a page tells its reader to follow first, with a link."""
ROOTS: Final = {"docs/training/allreduce.md": "the commands need root"}
"""Pages that say so."""
ELSEWHERE: Final = {
    "docs/cluster/kubernetes.md": "a cluster of Kubernetes",
    "docs/cluster/sql-on-spark.md": "a registry of Python packages",
    "docs/network/nic-devices.md": "Debian's archive",
    "docs/start/install.md": "a registry of Python packages",
}
"""Pages whose first command needs a service that only the machine's network may have."""


def _with_a_command() -> list[Path]:
    pages = [page for page in PAGES if page.parent.name in FOLDERS and shell_blocks_of(page)]
    return [page for page in pages if str(page.relative_to(ROOT)) not in ELSEWHERE]


def _day(folder: Path, *names: str) -> list[Done]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    result = folder / "done.json"
    ran = run_inside("tests.soak.pages.first_day", str(result), *names)
    assert ran.returncode == 0, ran.stdout
    return [Done(**each) for each in json.loads(result.read_text())]


@pytest.fixture(scope="module")
def _kernels_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("kernels")
    for parent in [folder, *folder.parents[:2]]:
        parent.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KERNELS, str(folder))
        yield


def test_three_first_hours_end_well(tmp_path: Path) -> None:
    done = _day(tmp_path, *FIRST_HOURS)
    assert list(problems_of(done)) == []
    assert len(done) >= 15


@pytest.mark.usefixtures("_kernels_compiled_once")
@pytest.mark.parametrize("page", _with_a_command(), ids=lambda page: str(page.relative_to(ROOT)))
def test_first_command_of_a_page_succeeds(page: Path, tmp_path: Path) -> None:
    name = str(page.relative_to(ROOT))
    before = [AFTER[name]] if name in AFTER else []
    done = _day(tmp_path, *before, f"{AS_ROOT if name in ROOTS else ''}{FIRST}{name}")
    assert list(problems_of(done)) == []
    assert done[-1].status in {0, None}
