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
    """Raise LearningError for a file in a folder that others can change, or whose way there they can; links, too."""
    try:
        for folder in {path.parent.resolve(strict=True), path.resolve().parent}:
            for place in (folder, *folder.parents):
                found = place.stat()
                # Whoever can write to a folder of sticky names can neither remove nor rename what is not his.
                if place == folder or not found.st_mode & stat.S_ISVTX:
                    _check(path, place, found)
    except OSError as error:
        raise LearningError(f"{path}: cannot be read: {error.strerror or error}") from error


def _check(path: Path, place: Path, found: os.stat_result) -> None:
    if found.st_uid not in {0, os.geteuid()}:
        raise LearningError(f"{path}: {place} belongs to user {found.st_uid}, who could change what is decided by")
    if found.st_mode & _OTHERS:
        raise LearningError(f"{path}: others can write to {place}, and could change what is decided by")


class Claim:
    """Says that this process learns into a checkpoint, until it is released or the process ends."""

    def __init__(self, path: Path) -> None:
        """Raise LearningError where another one does."""
        beside = path.with_name(f"{path.name}.lock")
        try:
            self._file = os.open(beside, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise LearningError(f"{beside}: cannot be written: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise LearningError(f"{path}: another scheduler, or another profile, learns into it") from None

    def release(self) -> None:
        """Let others learn into it."""
        os.close(self._file)
