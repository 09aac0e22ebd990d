"""Isolation of jobs: their users and their view of the machine; never the agent's user unless the settings say so."""

from __future__ import annotations

import os
import pwd
import secrets
import stat
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import controller
from controller.workloads.centres.engines.jobs.keeping import SANDBOXING, Sandbox
from controller.workloads.centres.engines.jobs.users import named_user
from controller.workloads.centres.errors import EngineError
from controller.workloads.centres.settings import LocalSettings
from dataplane.rpc.own_folder import own_folders

_DEFAULTS: Final = ((1_900_000_000, 4096), (60_600, 512))
"""Unused ranges according to systemd's UIDS-GIDS.md; the second for machines with at most 65,536 numbers."""
_ACCOUNTS: Final = (("etc/passwd", 2), ("etc/group", 2))
_RANGES: Final = ("etc/subuid", "etc/subgid")
_FIELDS: Final = 3


def uids_of(wanted: tuple[int, int] | None, root: Path = Path("/")) -> range:
    """Return the range of jobs' numbers: the wanted one, otherwise the first default that is free.

    Raises EngineError for a range in which the machine has an account, or lacks numbers.
    """
    problems = []
    for first, count in _DEFAULTS if wanted is None else (wanted,):
        uids = range(first, first + count)
        problem = _problem_of(uids, root)
        if problem is None:
            return uids
        problems.append(f"{first} to {uids[-1]}: {problem}")
    raise EngineError("local", f"local.uids: {'; '.join(problems)}")


def free_uid(uids: range, taken: Collection[int]) -> int:
    """Return a number without a job or process on this machine; raise EngineError if there is none.

    Another centre's agent may draw from the same range, so the search starts at a random number, not at the first.
    """
    taken = {*taken, *_running()}
    start = secrets.randbelow(len(uids))
    for offset in range(len(uids)):
        uid = uids[(start + offset) % len(uids)]
        if uid not in taken:
            return uid
    raise EngineError("local", f"local.uids: all {len(uids)} numbers are taken by jobs on record")


def _problem_of(uids: range, root: Path) -> str | None:
    for file, name, numbers in _taken(root):
        if numbers.start < uids.stop and uids.start < numbers.stop:
            return f"{name} of /{file} has {max(numbers.start, uids.start)}"
    for file in ("uid_map", "gid_map"):
        if not _is_mapped(uids, (root / "proc/self" / file).read_text(encoding="ascii")):
            return f"this machine lacks some of these numbers (/proc/self/{file})"
    return None


def _taken(root: Path) -> Iterator[tuple[str, str, range]]:
    """Yield file, name and numbers of accounts, and of ranges assigned to accounts."""
    for file, column in _ACCOUNTS:
        for fields in _lines(root / file):
            if len(fields) > column and fields[column].isdigit():
                yield file, fields[0], range(int(fields[column]), int(fields[column]) + 1)
    for file in _RANGES:
        for fields in _lines(root / file):
            if len(fields) == _FIELDS and fields[1].isdigit() and fields[2].isdigit():
                yield file, fields[0], range(int(fields[1]), int(fields[1]) + int(fields[2]))


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    yield from (line.split(":") for line in text.splitlines())


def _is_mapped(uids: range, text: str) -> bool:
    """Return whether one line of a uid_map has all of these numbers."""
    for line in text.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= uids.start and uids.stop <= first + count:
            return True
    return False


def _running() -> set[int]:
    """Return the users of all processes."""
    users = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError):  # it has ended
                    users.add(entry.stat().st_uid)
    return users


_TRYING_S: Final = 120.0
_HIDDEN: Final = (Path("/run"), Path("/var/run"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - they are not used
"""/run has the sockets of the machine's daemons; jobs get their own versions of the others."""
_PREFIX: Final = ("bin", "include", "lib", "lib64", "share", "pyvenv.cfg")
"""Parts of an interpreter's folder that jobs need, should that folder be the user's home."""
_PACKAGES: Final = ("controller", "collectors", "dataplane")
_SHOWN_BELOW_RUN: Final = (Path("/run/current-system"), Path("/run/opengl-driver"))
"""Programs and libraries of NixOS."""


class Isolation:
    """Isolation of jobs from the agent, and from one another.

    `hidden` are the agent's own files and folders; `interpreter` runs jobs' Python, `paths` are its module search path.
    """

    def __init__(
        self, settings: LocalSettings, hidden: Sequence[Path], interpreter: Path, paths: Sequence[Path] = ()
    ) -> None:
        self._settings, self._own = settings, tuple(hidden)
        self._interpreter, self._paths = interpreter, tuple(paths)
        self._user: tuple[int, int] | None = None
        self._uids = range(0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Missing protections."""
        if not self._settings.unsafe_same_user:
            return ()
        return ("unsafe_same_user: jobs run as the agent's user, with all its rights",)

    def prepare(self) -> None:
        """Check that jobs can be isolated here; raise EngineError, naming the setting to change, if not."""
        settings = self._settings
        self._user = None if settings.user is None else named_user("local", "local.user", settings.user)
        if settings.unsafe_same_user:
            return
        if os.geteuid() == 0 and self._user is None:
            self._uids = uids_of(settings.uids)
        if (problem := problem_of_sandboxes()) is not None:
            raise EngineError(
                "local", f"jobs cannot have namespaces of their own here ({problem}): set local.unsafe_same_user: true"
            )

    def user(self, taken: Collection[int]) -> tuple[int, int] | None:
        """Return the user and group of a new job, apart from the `taken` ones of others; None: the agent's."""
        if self._user is not None or not self._uids:
            return self._user
        uid = free_uid(self._uids, taken)
        return uid, uid

    def resource_limits(self, group: str | None) -> dict[str, int]:
        """Return the limits of a job whose user has no other processes, for use without a control group."""
        return {"RLIMIT_NPROC": self._settings.processes} if group is None and self._uids else {}

    def sandbox(self, folder: Path, user: tuple[int, int] | None) -> Sandbox | None:
        """Return the sandbox of a job's folder; None if the settings expose everything. Raises PermissionError."""
        if self._settings.unsafe_same_user:
            return None
        if user is None and os.geteuid() == 0:
            raise PermissionError(0, "an agent of another version ordered it without a user of its own")
        own = (*_HIDDEN, *self._own, folder.parent, *own_folders(), *_homes(), *map(Path, self._settings.hidden))
        writable = [_real(path) for path in (folder, *map(Path, self._settings.writable))]
        shown = {path for path in map(_real, self._shown()) if path.exists()}
        # The job's user could not pass through a folder closed to others: an open one is mounted over it.
        hidden = {_real(path) for path in own} | _closed_above([*writable, *shown])
        return Sandbox(
            maps_user=user is None,
            user=user,
            hidden=_sorted(hidden),
            shown=_sorted({path for path in shown if _is_below(path, hidden)}),
            writable=_sorted(writable),
            scratch_bytes=self._settings.scratch_bytes,
        )

    def _shown(self) -> tuple[Path, ...]:
        """Return paths that jobs need and hidden folders may contain: interpreter, our packages, resolver file."""
        packages = [Path(path).parent / name for path in controller.__path__ for name in _PACKAGES]
        resolver = Path(os.path.realpath("/etc/resolv.conf")).parent
        # The interpreter's own folder, and that of the one from which its environment was made.
        prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
        prefixes += [path.parent.parent for path in (self._interpreter, _real(self._interpreter))]
        parts = [prefix / name for prefix in prefixes for name in _PREFIX]
        return (*parts, *packages, resolver, *self._paths, *_SHOWN_BELOW_RUN, *map(Path, self._settings.shown))


def problem_of_sandboxes() -> str | None:
    """Return in one line why this process can make no sandboxes, None if it can; makes one to find out."""
    try:
        ended = subprocess.run(  # noqa: S603 - a program of our own
            [sys.executable, "-I", "-S", str(SANDBOXING)],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_TRYING_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())
    if ended.returncode == 0:
        return None
    lines = (ended.stdout or ended.stderr).decode("utf-8", "replace").split("\n")
    return next((line.strip()[:200] for line in lines if line.strip()), f"exit code {ended.returncode}")


def _homes() -> tuple[Path, ...]:
    """Return this user's home, most of which jobs should not see."""
    try:
        home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return ()
    return (home,) if home.is_absolute() and len(home.parts) > 1 else ()


def _closed_above(paths: Iterable[Path]) -> set[Path]:
    """Return the folders above paths that only their owners may pass through."""
    return {parent for path in paths for parent in path.parents if not parent.stat().st_mode & stat.S_IXOTH}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_below(path: Path, folders: Collection[Path]) -> bool:
    return any(folder in path.parents for folder in folders)


def _sorted(paths: Collection[Path]) -> tuple[str, ...]:
    return tuple(sorted({str(path) for path in paths}))
