"""Project secrets: files FOLDER/PROJECT/NAME written by this machine's administrator and read by this process."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.common.errors import ControllerError

_MOST_BYTES: Final = 65_536
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class SecretError(ControllerError):
    """A secret is not available: one line that names it without revealing its content."""


def secrets_of(folder: Path | None, project: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return a project's secrets by variable for the names in `wanted`; raise SecretError.

    A trailing newline is not part of a secret. Folders and files must belong to this user or to root, and nobody else
    may read or write them.
    """
    if not wanted:
        return {}
    if folder is None:
        raise SecretError(f"secret {next(iter(wanted.values()))}: no secrets are served: `secrets` names no folder")
    return {variable: _read(folder, project, name) for variable, name in wanted.items()}


def _read(folder: Path, project: str, name: str) -> str:
    opened: list[int] = []
    try:
        # Open step by step, each below the previous one, so that a name cannot lead elsewhere.
        opened.append(os.open(folder, _OPEN | os.O_DIRECTORY))
        opened.append(os.open(project, _OPEN | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(name, _OPEN, dir_fd=opened[-1]))
        for descriptor in opened:
            _check_private(descriptor)
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise SecretError("it is not a regular file")
        # One byte more than allowed distinguishes a file that is too large from one that is exactly full.
        data = os.read(opened[-1], _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise SecretError(f"it is larger than {_MOST_BYTES} bytes")
        text = data.decode().removesuffix("\n")
        if "\0" in text:
            raise SecretError("it contains a NUL, which an environment variable cannot hold")
    except OSError as error:
        raise SecretError(f"secret {name} of project {project}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, SecretError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else error
        raise SecretError(f"secret {name} of project {project}: {why}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return text


def _check_private(descriptor: int) -> None:
    status = os.fstat(descriptor)
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o077:
        raise SecretError("other users can access it or its folder: set modes 600 and 700")
