"""A machine on which a page may install what it wants: its folders under a layer in memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.pages.place import Place

_SYSTEM: Final = ("/usr", "/opt", "/var")


def _packages(place: Place) -> None:
    """Debian's packages can be installed, and prompts are answered with yes."""
    _own(place)
    Path("/etc/apt/apt.conf.d/90-pages").write_text('APT::Get::Assume-Yes "true";\n')
    place.call("apt-get update -qq")


def _an_environment(place: Place) -> None:
    """An empty environment of Python is active."""
    folder = place.room / "environment"
    place.call(f"python3 -m venv {folder}")
    place.environment["PATH"] = f"{folder}/bin:{place.environment['PATH']}"


def _a_wheel(place: Place) -> None:
    """The wheel that docs/start/install.md makes is here, and /opt is the page's own."""
    _own(place)
    place.call("pip wheel --quiet --no-deps --wheel-dir . .")


def _own(place: Place) -> None:
    for number, folder in enumerate(_SYSTEM):
        upper, work = place.room / f"system{number}", place.room / f"system-work{number}"
        if upper.exists():
            continue
        upper.mkdir()
        work.mkdir()
        layers = f"lowerdir={folder},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "pages", "-o", layers, folder], check=True)


SCENES: Final[dict[str, Callable[[Place], None]]] = {
    "packages": _packages,
    "an environment": _an_environment,
    "a wheel": _a_wheel,
}
