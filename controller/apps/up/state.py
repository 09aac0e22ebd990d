"""The state folder of `millrace up`: settings, derived settings, logs, data, and the lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from controller.apps.up.errors import UpError
from controller.apps.up.places import default_state
from dataplane.fabric.live.settings import Time
from dataplane.rpc.own_folder import own_folders

SETTINGS: Final = "millrace.yaml"
_OWN: Final = {"generated", "logs", "tokens", "lock", "run"}
"""Entries of a state folder besides the settings."""
_OTHERS: Final = 0o077
_KEPT_STARTS: Final = 16
_TEMPLATE: Final = """\
# Settings of `millrace up`, written at its first start and never overwritten: edit them as you like.
# docs/start/up.md lists all keys; each daemon's own settings (generated/) are derived from these.
topology: {topology}
time: {time}                   # of the fabric that is started: virtual, or kernel (root)
{switches}  # P4Runtime addresses of switches that run already: then no fabric is started
# fabric: {{peak_utilisation: 0.3, demands: matrix.csv}}  # what hosts send; peak_utilisation: 0 is nothing
run: {run}
collector:
  address: unix:{run}/collector.sock
{port}paths:
  address: unix:{run}/paths.sock
controller:
  address: unix:{run}/controller.sock
api:
  address: unix:{run}/api.sock
"""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """Paths of one `millrace up` instance."""

    path: Path

    @property
    def settings(self) -> Path:
        """The file that users edit."""
        return self.path / SETTINGS

    @property
    def generated(self) -> Path:
        """Settings derived at every start."""
        return self.path / "generated"

    @property
    def logs(self) -> Path:
        """Current and rotated logs of each daemon."""
        return self.path / "logs"

    @property
    def starts(self) -> Path:
        """Output of `up --detach`, a file for each start; below the logs, which `millrace logs` merges."""
        return self.logs / "starts"

    def prepare(self) -> None:
        """Make the folders, for this user only; raise UpError if that fails."""
        for folder in (self.path, self.generated, self.logs, self.starts, self.path / "tokens"):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise UpError(f"state folder {folder}: {error.strerror or error}") from error
            if not os.access(folder, os.W_OK | os.X_OK):
                raise UpError(f"state folder {folder}: not writable")
            if folder == self.path:
                self._keep_private()

    def _keep_private(self) -> None:
        """Close the folder to other users, whatever the modes of history and logs in it.

        Raises UpError, leaving the mode unchanged, if it belongs to another user or has files of other origin.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            about = os.fstat(descriptor)
            if about.st_uid != os.geteuid():
                raise UpError(f"state folder {self.path}: belongs to user {about.st_uid}: use another with --state")
            if not about.st_mode & _OTHERS:
                return
            others = sorted({names.name for names in self.path.iterdir()} - _OWN)
            if others and not (self.path / SETTINGS).is_file():
                held = f"other users can enter it, and it holds {others[0]}, which is not of millrace up"
                raise UpError(f"state folder {self.path}: {held}: chmod 700 it, or use another with --state")
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; raise UpError if another one has. The kernel releases it at any death."""
        file = self.path / "lock"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = file.read_text(encoding="utf-8").strip() or "another process"
                raise UpError(f"`millrace up` is already running for {self.path} (process {owner})") from error
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            yield
        finally:
            os.close(descriptor)

    def start_log(self, now: datetime) -> Path:
        """Create an empty log for a start, and remove all but the newest ones; raise UpError.

        A supervisor writes to its own as long as it runs, so no other start may use it.
        """
        try:
            for old in sorted(self.starts.glob("*.log"))[: 1 - _KEPT_STARTS]:
                old.unlink(missing_ok=True)
            descriptor, name = tempfile.mkstemp(".log", f"{now:%Y%m%d-%H%M%S-%f}-", self.starts)
        except OSError as error:
            raise UpError(f"{self.starts}: {error.strerror or error}") from error
        os.close(descriptor)
        return Path(name)

    def note_run(self, run: Path) -> None:
        """Record the folder of the running daemons' sockets, since settings may be elsewhere, and change."""
        write_private(self.path / "run", f"{run.absolute()}\n")

    def noted_run(self) -> Path | None:
        """Return the socket folder that the last supervisor recorded, None if none has run."""
        try:
            return Path((self.path / "run").read_text(encoding="utf-8").removesuffix("\n"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UpError(f"state folder {self.path}: run: {error.strerror or error}") from error

    def write_settings(
        self,
        topology: str,
        time: Time,
        run: Path | None = None,
        *,
        udp_port: int | None = None,
        switches: str | None = None,
    ) -> None:
        """Write the first settings file; `run`, the sockets' folder, is private to the user by default.

        Reports arrive at `udp_port` of loopback, by default the topology's. `switches`, a pattern of addresses, are
        joined.
        """
        spec = str(Path(topology).resolve()) if Path(topology).is_file() else topology
        port = "" if udp_port is None else f"  udp_port: {udp_port}  # of reports, on loopback\n"
        joined = '# switches: {s1: "127.0.0.1:9559"}' if switches is None else f"switches: {_quoted(switches)}"
        text = _TEMPLATE.format(
            topology=_quoted(spec), time=time, run=run or default_run(self.path), port=port, switches=joined
        )
        write_private(self.settings, text)


def default_run(state: Path) -> Path:
    """Return a state folder's socket folder; that of the default one is where clients look by default."""
    own = own_folders()[0]
    try:
        is_default = state.resolve() == default_state().resolve()
    except UpError:
        is_default = False
    return own if is_default else own / f"up-{hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:8]}"


def free_port(wanted: int) -> int | None:
    """Return None if a UDP port of loopback is free, else a different free one."""
    for port in (wanted, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen: int = probe.getsockname()[1]
            return None if chosen == wanted else chosen
    return None


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its user; raise UpError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            # Before the rename, or a crash could leave an empty file under the name.
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UpError(f"{path}: {error.strerror or error}") from error


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
