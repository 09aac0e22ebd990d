"""Empty environments in which a wheel of this checkout is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dataplane.errors import MillraceError

ROOT = Path(__file__).parents[2]
UV = ROOT / ".ci" / "uv"


def run(*command: object, at: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command that cannot find the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=at, env=environment)


def build_wheel(folder: Path) -> Path:
    """Return the wheel, made in a folder; raise MillraceError."""
    _must(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    return next(folder.glob("*.whl"))


def install(folder: Path, wheel: str) -> Path:
    """Make an environment with a wheel and its dependencies, at locked versions; return its folder of programs.

    Raises MillraceError.
    """
    _must(UV, "venv", "--python", sys.executable, folder)
    _must(UV, "pip", "install", "--python", folder, "--constraint", "requirements/base.txt", wheel)
    return folder / "bin"


def site_packages(environment: Path) -> Path:
    """Return an environment's package folder."""
    return next((environment / "lib").glob("python3*")) / "site-packages"


def site_megabytes(environment: Path) -> float:
    """Return the size of an environment's packages."""
    files = (path for path in site_packages(environment).rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in files) / 1_000_000


def _must(*command: object) -> None:
    done = run(*command)
    if done.returncode != 0:
        raise MillraceError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
