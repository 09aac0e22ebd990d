"""Folder of the sockets of a user's own services: no other user can enter it, and both sides find the same one.

It is `millrace` in $XDG_RUNTIME_DIR, else in /run/user/UID, else in /run for root and for the user that owns
/run/millrace, else in ~/.local/state; never in /tmp, where any user could have put one. A folder that belongs to
another user, is a link or is open to others is refused, and so is another user's socket.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from dataplane.rpc.peers import HasOptions, refusal_of_peer

_OTHERS = 0o077
_WRITABLE_BY_OTHERS = 0o022
_SYSTEM = Path("/run")


def own_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the candidate folders for this user's sockets, best first; they need not exist."""
    return tuple(_in_own_places(environ, os.geteuid())) or (_SYSTEM / "millrace",)


def default_address(name: str, folders: tuple[Path, ...] | None = None) -> str:
    """Return a service's default address, for the service and for its clients.

    A daemon and a login may have different folders: use the first that has the socket, else the best one.
    """
    folders = own_folders() if folders is None else folders
    sockets = [folder / f"{name}.sock" for folder in folders]
    # Path.exists raises for inaccessible folders, such as root's.
    return f"unix:{next((path for path in sockets if os.path.exists(path)), sockets[0])}"  # noqa: PTH110


def refusal(folder: Path) -> str | None:
    """Return why an existing folder cannot be a user's own; None if it can or does not exist."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"folder {folder}: {error.strerror or error}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is not a folder"
    if status.st_uid != os.geteuid():
        return f"folder {folder} belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & _OTHERS:
        return f"folder {folder} is open to others; chmod 700 {folder}"
    return None


def foreign_socket(path: Path) -> str | None:
    """Return why a client should not use a socket: another user made it; None if it is ours, or missing.

    Root may call other users' daemons if nobody else could have replaced their socket.
    """
    own = os.geteuid()
    try:
        owner = path.lstat().st_uid
        folder = path.parent.stat()
    except OSError:
        return None  # nothing listens, which a call will report
    is_theirs = own == 0 and folder.st_uid in {owner, 0} and not folder.st_mode & _WRITABLE_BY_OTHERS
    if owner in {own, 0} or is_theirs:
        return None
    return f"it belongs to user {owner}, not to user {own}"


def is_own_peer(connection: HasOptions) -> bool:
    """Return whether the peer of a UNIX socket is our user, or root, and neither a job nor a container."""
    return refusal_of_peer(connection) is None


def prepare(folder: Path) -> str | None:
    """Create a user's own folder if it is missing; return why it cannot be used, None if it can."""
    parent = folder.parent
    if parent in own_folders() and (problem := prepare(parent)) is not None:
        return problem
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return refusal(folder) or f"folder {folder} cannot be created: {error.strerror or error}"
    return refusal(folder)


def _in_own_places(environ: Mapping[str, str], uid: int) -> Iterator[Path]:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    for base in (Path(runtime), Path(f"/run/user/{uid}")):
        if base.is_absolute() and _is_own(base, uid):
            yield base / "millrace"
    if _is_own(_SYSTEM / "millrace", uid) or (uid == 0 and not (_SYSTEM / "millrace").exists()):
        yield _SYSTEM / "millrace"
    try:
        home = Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return
    if home.is_absolute() and _is_own(home, uid):
        yield home / ".local" / "state" / "millrace"


def _is_own(folder: Path, uid: int) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid
