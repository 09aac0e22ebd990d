"""State folder of a node manager or centre agent: one owner, and one process at a time."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from controller.common.errors import ControllerError


@dataclass(frozen=True, slots=True)
class StateFolder:
    """A folder for one owner that only its user can enter; subclasses define the owner and the error."""

    path: Path
    owner: str

    kind: ClassVar[str]
    """Kind of the owner, in one word; also the name of the file that records the owner."""
    holder: ClassVar[str]
    """Program that holds the folder, with its article."""
    error: ClassVar[type[ControllerError]]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this process; raise `error` if another process or another owner has it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkdir leaves the mode of a folder that exists already as it is.
            self.path.chmod(0o700)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self.error(f"state: folder {self.path}: {error.strerror or error}") from None
        try:
            self._lock(descriptor)
            self._check()
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "another process"
            problem = f"{self.holder} already runs there (process {owner})"
            raise self.error(f"state: folder {self.path}: {problem}") from None
        # Only with the lock held: the content names the process that holds it.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def identity(self) -> str:
        """Return an identity that distinguishes this folder from others of the same name.

        Call it once the folder is held and its settings are validated: the first call assigns the folder to this owner.
        """
        try:
            if not self._is_owned():
                self._file.write_text(f"{self.owner} {secrets.token_hex(4)}\n", encoding="utf-8")
        except OSError as error:
            raise self.error(f"state: {self._file}: {error.strerror or error}") from None
        return self._written()[1]

    @property
    def _file(self) -> Path:
        return self.path / self.kind

    def _is_owned(self) -> bool:
        return self._file.exists() and self._file.stat().st_size > 0

    def _check(self) -> None:
        """Raise `error` if the folder belongs to another owner."""
        if self._is_owned() and (owner := self._written()[0]) != self.owner:
            raise self.error(f"state: folder {self.path} belongs to {self.kind} {owner}, not to {self.owner}")

    def _written(self) -> tuple[str, str]:
        file = self._file
        try:
            words = file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(f"state: {file}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
        if len(words) != 2:
            raise self.error(f"state: {file}: does not say whose folder this is")
        return words[0], words[1]
