"""The state folder of a node's manager: whose it is, and that one manager at a time has it."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controller.nodes.errors import NodeError

_OWNER = "node"


@dataclass(frozen=True, slots=True)
class NodeFolder:
    """A folder that only its user can enter, of one node."""

    path: Path
    node: str

    @property
    def lease(self) -> Path:
        """Until when pods may run."""
        return self.path / "lease"

    @property
    def guard_lock(self) -> Path:
        """What the guard holds."""
        return self.path / "guard.lock"

    @property
    def guard_log(self) -> Path:
        """What a guard says that cannot run."""
        return self.path / "guard.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for this process; raise NodeError where another one does, or that of another node."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NodeError(f"state: folder {self.path}: {error.strerror or error}") from None
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
            raise NodeError(f"state: folder {self.path}: a manager runs there already (process {owner})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def identity(self) -> str:
        """Return what distinguishes this folder's containers from those of other nodes of the same name.

        Once held, and once its settings are known to be right: with the first call the folder is this node's.
        """
        try:
            if not self._is_owned():
                self._owner.write_text(f"{self.node} {secrets.token_hex(4)}\n", encoding="utf-8")
        except OSError as error:
            raise NodeError(f"state: {self._owner}: {error.strerror or error}") from None
        return self._written()[1]

    @property
    def _owner(self) -> Path:
        return self.path / _OWNER

    def _is_owned(self) -> bool:
        return self._owner.exists() and self._owner.stat().st_size > 0

    def _check(self) -> None:
        """Raise NodeError for a folder of another node."""
        if self._is_owned() and (owner := self._written()[0]) != self.node:
            raise NodeError(f"state: folder {self.path} is of node {owner}, not of {self.node}")

    def _written(self) -> tuple[str, str]:
        file = self._owner
        try:
            words = file.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise NodeError(f"state: {file}: {getattr(error, 'strerror', None) or 'cannot be read'}") from None
        if len(words) != 2:
            raise NodeError(f"state: {file}: does not say whose folder this is")
        return words[0], words[1]
