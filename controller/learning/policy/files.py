"""Checkpoints of a live scheduler: in folders that nobody else can write to, each learned into by one scheduler."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from controller.learning.agent.records import Checkpoint, load_checkpoint
from controller.learning.errors import LearningError

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def load_own(path: Path) -> Checkpoint:
    """Return the checkpoint in a file that nobody else can change; raise LearningError, naming the file, otherwise."""
    if path.exists():
        _check(path, path, path.stat())
    return load_checkpoint(path)


def check_place(path: Path) -> None:
    """Raise LearningError for a file in a folder that others can change, or on a path that others can; links, too."""
    try:
        for folder in {path.parent.resolve(strict=True), path.resolve().parent}:
            for parent in (folder, *folder.parents):
                status = parent.stat()
                # In a sticky folder nobody can remove or rename the files of others.
                if parent == folder or not status.st_mode & stat.S_ISVTX:
                    _check(path, parent, status)
    except OSError as error:
        raise LearningError(f"{path}: cannot be read: {error.strerror or error}") from error


def _check(path: Path, folder: Path, status: os.stat_result) -> None:
    if status.st_uid not in {0, os.geteuid()}:
        raise LearningError(f"{path}: {folder} belongs to user {status.st_uid}, who could change decisions")
    if status.st_mode & _OTHERS:
        raise LearningError(f"{path}: others can write to {folder}, and could change decisions")


class Claim:
    """Claim of this process to learn into a checkpoint, until it is released or the process ends."""

    def __init__(self, path: Path) -> None:
        """Raise LearningError if another process holds it."""
        lock_file = path.with_name(f"{path.name}.lock")
        try:
            self._file = os.open(lock_file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise LearningError(f"{lock_file}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise LearningError(f"{path}: another scheduler or profile learns into it") from None

    def release(self) -> None:
        """Let another process claim it."""
        os.close(self._file)
