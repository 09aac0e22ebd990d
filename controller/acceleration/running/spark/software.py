"""Java and pyspark on this machine: one line that says what to install if they are missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from controller.acceleration.running.errors import RunError
from dataplane.extras import missing
from dataplane.given import MIB, read_given_text

_JAVA: Final = 17
"""Oldest Java that Spark 4.3 runs on."""
_INSTALL: Final = "apt install openjdk-17-jre-headless"
_MAIN: Final = re.compile(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)')
_VERSION_S: Final = 60.0


def spark_home() -> Path:
    """Return pyspark's folder; RunError names the extra that has it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise RunError(str(missing("running on Spark", ModuleNotFoundError("pyspark", name="pyspark"))))
    return Path(found.origin).parent


def java_home() -> Path:
    """Return Java's folder, of JAVA_HOME or the PATH; RunError names the package to install."""
    given = os.environ.get("JAVA_HOME")
    program = str(Path(given) / "bin" / "java") if given else shutil.which("java")
    if program is None or not os.access(program, os.X_OK):
        where = f"JAVA_HOME={given} has none" if given else "no java on the PATH"
        raise RunError(f"running on Spark needs Java {_JAVA}: {where}: {_INSTALL}")
    home = Path(program).resolve().parent.parent
    if (version := _version(home, program)) < _JAVA:
        raise RunError(f"running on Spark needs Java {_JAVA}: {program} is Java {version}: {_INSTALL}")
    return home


def _version(home: Path, program: str) -> int:
    """Return Java's main version, of its `release` file (JAVA_VERSION="17.0.15"), or of its own words."""
    try:
        words = read_given_text(home / "release", MIB)
    except (OSError, ValueError):
        try:
            done = subprocess.run(  # noqa: S603 - the user's Java
                [program, "-version"], capture_output=True, text=True, check=False, timeout=_VERSION_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RunError(f"running on Spark needs Java {_JAVA}: {program} does not run: {error}") from None
        words = done.stderr
    found = _MAIN.search(words)
    return int(found[1]) if found is not None else 0
