"""A machine on which a page may install anything: its folders are under a layer in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.pages.workspace import Workspace

_SYSTEM: Final = ("/usr", "/opt", "/var")


def _packages(workspace: Workspace) -> None:
    """Debian's packages can be installed, and prompts are answered with yes."""
    _own(workspace)
    Path("/etc/apt/apt.conf.d/90-pages").write_text('APT::Get::Assume-Yes "true";\n')
    workspace.call("apt-get update -qq")


def _an_environment(workspace: Workspace) -> None:
    """An empty environment of Python is active."""
    folder = workspace.room / "environment"
    workspace.call(f"python3 -m venv {folder}")
    workspace.environment["PATH"] = f"{folder}/bin:{workspace.environment['PATH']}"


def _a_wheel(workspace: Workspace) -> None:
    """The wheel that docs/start/install.md makes is here, and /opt is the page's own."""
    _own(workspace)
    workspace.call("pip wheel --quiet --no-deps --wheel-dir . .")


def _own(workspace: Workspace) -> None:
    for number, folder in enumerate(_SYSTEM):
        upper, work = workspace.room / f"system{number}", workspace.room / f"system-work{number}"
        if upper.exists():
            continue
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={folder},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "pages", "-o", layers, folder], check=True)


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "packages": _packages,
    "an environment": _an_environment,
    "a wheel": _a_wheel,
}
