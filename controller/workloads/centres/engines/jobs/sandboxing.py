"""The kernel's side of a sandbox: the keeper loads this file for jobs with their own namespaces.

The job sees the machine read-only, without the hidden parts, and with its own /tmp, /dev, /proc and /dev/shm. Its first
process has no capability and cannot get one; the process above it, which reaps orphans, has none either. It uses only
the standard library, like keeper.py.

Sources: namespaces(7), user_namespaces(7), pid_namespaces(7), mount_setattr(2), capset(2), runc's defaults.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Sandbox = dict[str, Any]
    """The record Sandbox of keeping.py."""

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
"""The same number on all architectures (Linux 5.12)."""
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "s390x": 280, "riscv64": 219}
_JOIN_SESSION_KEYRING = 1
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ACCELERATORS = ("nvidia", "kfd", "dri", "accel", "infiniband", "davinci")
"""Prefixes of additional device files that jobs see; their modes decide who may open them."""
_SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108 - of the job's own
_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def separate(sandbox: Sandbox) -> None:
    """Make the next child of this process the first one of a pid namespace; raise OSError.

    Without root, this process enters a user namespace in which it may do so.
    """
    user, group = os.geteuid(), os.getegid()
    _unshare(_NEWPID | (_NEWUSER if sandbox["maps_user"] else 0))
    if sandbox["maps_user"]:
        for name, text in (("setgroups", "deny"), ("gid_map", f"{group} {group} 1"), ("uid_map", f"{user} {user} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(text)


def enter(sandbox: Sandbox) -> None:
    """Create the sandbox around this process, the first one of its pid namespace, irreversibly; raise OSError."""
    os.umask(0o022)
    _unshare(_NEWNS | _NEWIPC)
    _mount("none", "/", None, _REC | _PRIVATE)
    _arrange(sandbox)
    _set_attributes("/", set_=_RDONLY | _NOSUID, recursive=True)
    for path in (*_SCRATCH, *sandbox["writable"]):
        if os.path.isdir(path):  # noqa: PTH112
            _set_attributes(path, clear=_RDONLY)
    # After all is read-only, as these are the job's own.
    _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _mount("devpts", "/dev/pts", "devpts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    _mount("mqueue", "/dev/mqueue", "mqueue", _NOSUID | _NODEV | _NOEXEC)
    _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID | _NODEV | _NOEXEC, f"mode=1777,size={sandbox['scratch_bytes']}")  # noqa: S108
    _drop_privileges(sandbox)


def attend(child: int, status: int) -> NoReturn:
    """Reap processes of this pid namespace until the job's first one has ended; write its status. Never returns.

    The kernel kills the rest of the namespace when this process ends.
    """
    ended, wait_status = 0, 0
    while ended != child:
        ended, wait_status = os.waitpid(-1, 0)
    os.write(status, b"%d" % wait_status)
    os._exit(0)


def _arrange(sandbox: Sandbox) -> None:
    """Hide the hidden paths, and restore the visible ones below them; the deeper path comes later."""
    # Open visible paths before anything is mounted over them.
    shown = {path: _opened(path) for path in (*sandbox["shown"], *sandbox["writable"])}
    nothing, devices = _opened("/dev/null"), _devices()
    hidden = {*sandbox["hidden"], *_SCRATCH}
    for path in sorted(hidden | shown.keys(), key=lambda path: (path.count("/"), path)):
        if path in shown:
            _show(path, shown[path])
        elif os.path.isdir(path):  # noqa: PTH112
            mode = "1777" if path in _SCRATCH else "0755"
            _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"mode={mode},size={sandbox['scratch_bytes']}")
        elif os.path.lexists(path) and nothing is not None:
            _bind(nothing, path)
    _mount("tmpfs", "/dev", "tmpfs", _NOSUID | _NOEXEC, "mode=0755,size=64k")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"/dev/{name}")  # noqa: PTH102
    links = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211
    for path, descriptor in devices.items():
        _show(path, descriptor)


def _devices() -> dict[str, int | None]:
    names = [name for name in os.listdir("/dev") if name in _DEVICES or name.startswith(_ACCELERATORS)]  # noqa: PTH208
    return {f"/dev/{name}": _opened(f"/dev/{name}") for name in names}


def _opened(path: str) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    return None


def _show(path: str, descriptor: int | None) -> None:
    """Restore a file or folder below a hidden one."""
    if descriptor is None:
        return
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    if not is_folder and not os.path.lexists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    _bind(descriptor, path)


def _bind(descriptor: int, path: str) -> None:
    _mount(f"/proc/self/fd/{descriptor}", path, None, _BIND | _REC)


def _drop_privileges(sandbox: Sandbox) -> None:
    """Become the job's user without any capability, irreversibly."""
    keyctl = _KEYCTL.get(os.uname().machine)
    if keyctl is not None:  # hide the agent's keys; a kernel may lack them
        _libc.syscall(keyctl, _JOIN_SESSION_KEYRING, None)
    for number in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails beyond the kernel's last one
    if sandbox["user"] is not None:
        user, group = sandbox["user"]
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing), "capset")
    # The job has the same user: it must not read this process's memory, nor trace it.
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")


def _unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "namespaces")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def _set_attributes(path: str, *, set_: int = 0, clear: int = 0, recursive: bool = False) -> None:
    wanted = _MountAttributes(set_, clear, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _check(
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, ctypes.byref(wanted), size),
        f"mount_setattr {path}",
    )


def _check(answer: int, what: str) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def main() -> int:
    """Print in one line why no sandbox can be created here; print nothing and return 0 if one can."""
    user = None if os.geteuid() else (65_534, 65_534)
    sandbox: Sandbox = {"maps_user": bool(os.geteuid()), "user": user, "hidden": [], "shown": [], "writable": []}
    sandbox["scratch_bytes"] = 1 << 20
    try:
        separate(sandbox)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            enter(sandbox)
            os._exit(0)
        code = os.waitpid(child, 0)[1]
    except OSError as error:
        sys.stdout.write(f"{error.filename}: {error.strerror}\n")
        sys.stdout.flush()
        os._exit(1)  # of the child as well
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
