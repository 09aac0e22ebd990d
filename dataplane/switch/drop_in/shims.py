"""Executables called simple_switch_grpc and simple_switch that start our switch, for scripts that look for bmv2's."""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dataplane.errors import ConfigError
from dataplane.switch.drop_in.names import BMV2_NAMES, CALLED_AS

MARK: Final = "# Written by `millrace install-shims`"
"""Beginning of a shim's second line; a file without it is not ours."""

_SOURCE: Final = Path(__file__).resolve().parents[3]


def install(folder: Path, *, force: bool = False) -> list[str]:
    """Write a shim for each of bmv2's names into a folder; return a line for each.

    Existing shims are rewritten. Raises ConfigError, and writes nothing, if a file of that name is something else,
    which `force` replaces.
    """
    if not folder.is_dir():
        raise ConfigError("there is no such folder", file=str(folder))
    foreign = [name for name in BMV2_NAMES if _is_foreign(folder / name)]
    if foreign and not force:
        problem = "was not written by Millrace: choose another folder, or replace it with --force"
        raise ConfigError(problem, file=str(folder / foreign[0]))
    try:
        return [_write(folder / name, replaces=name in foreign) for name in BMV2_NAMES]
    except OSError as error:
        raise ConfigError(error.strerror or str(error), file=str(error.filename or folder)) from error


def script(name: str) -> str:
    """Return the shim script; it execs the switch, so that its parent has the switch's process."""
    return "\n".join(_lines(name)) + "\n"


def _lines(name: str) -> Iterator[str]:
    yield "#!/bin/sh"
    yield f"{MARK}: Millrace's switch under the name of bmv2's; remove this file to uninstall it."
    if str(_SOURCE) not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        yield f"export PYTHONPATH={shlex.quote(str(_SOURCE))}${{PYTHONPATH:+:$PYTHONPATH}}"
    # -P: do not import modules of the folder in which it is started.
    yield f'exec {shlex.quote(sys.executable)} -P -m dataplane.switch.process {CALLED_AS} {name} "$@"'


def is_shim(path: Path) -> bool:
    """Return whether a file is one of ours, which starts our switch under a name of bmv2's."""
    with path.open("rb") as file:
        return MARK.encode() in file.read(256)


def _is_foreign(path: Path) -> bool:
    """Return whether a file exists that is not a shim."""
    if not os.path.lexists(path):
        return False
    return path.is_symlink() or not path.is_file() or not is_shim(path)


def _write(path: Path, *, replaces: bool) -> str:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(script(path.name), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return f"{path}: starts Millrace's switch{', replacing the previous file' if replaces else ''}"
