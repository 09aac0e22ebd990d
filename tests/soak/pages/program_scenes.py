"""P4 programs and their compiler, p4lang's samples, published data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.docs.shell_blocks import ROOT
from tests.soak.pages.workspace import LackingError, Workspace


def _p4c(workspace: Workspace) -> None:
    """The compiler is on the PATH."""
    workspace.need("p4c-bm2-ss")


def _own_program(workspace: Workspace) -> None:
    """The reader is where the forwarder of the examples is."""
    _p4c(workspace)
    workspace.folder = workspace.folder / "docs/examples/own_program"


def _basic_of_the_tutorials(workspace: Workspace) -> None:
    """The solution of p4lang's exercise `basic`, compiled as its makefile does, and a file of commands for it."""
    workspace.need("p4c-bm2-ss", "simple_switch_CLI")
    exercise = _given("MILLRACE_TUTORIALS", "a checkout of p4lang's tutorials") / "exercises/basic"
    (workspace.folder / "build").mkdir()
    workspace.call(f"p4c-bm2-ss --p4v 16 -o build/basic.json {exercise}/solution/basic.p4")
    workspace.write(
        "s1-commands.txt", "table_add MyIngress.ipv4_lpm MyIngress.ipv4_forward 10.0.1.1/32 => 08:00:00:00:01:11 1\n"
    )


def _samples_of_p4c(workspace: Workspace) -> None:
    """The reader is in the checkout, with p4c's next to it."""
    _p4c(workspace)
    sources = _given("MILLRACE_P4C_SAMPLES", "a source tree of p4c")
    beside = workspace.room / "beside"
    (beside / "millrace").mkdir(parents=True)
    (beside / "p4c").symlink_to(sources)
    workspace.call(f"mount --bind {workspace.folder} {beside}/millrace")
    workspace.folder = beside / "millrace"


def _published_graph(workspace: Workspace) -> None:
    """The task graph that the page's figures are of."""
    name = "hetero_spotri_spotri-320-10.txt"
    published = ROOT.parent / "shared/data" / name
    if not published.is_file():
        raise LackingError(name)
    shutil.copy(published, workspace.folder / name)


def _given(variable: str, what: str) -> Path:
    """Return the folder that a variable of the tests names."""
    if (folder := os.environ.get(variable)) is None:
        raise LackingError(f"{what}, which {variable} names")
    return Path(folder)


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "p4c": _p4c,
    "own program": _own_program,
    "basic of the tutorials": _basic_of_the_tutorials,
    "samples of p4c": _samples_of_p4c,
    "published graph": _published_graph,
}
