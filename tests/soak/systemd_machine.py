"""A machine with systemd as process 1: this one's files under a layer in memory, in separate namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.soak.environments import ROOT, build_wheel
from tests.waiting import wait_until

SYSTEMD: Final = Path("/lib/systemd/systemd")
PYTHON: Final = Path("/usr/bin/python3")
"""Units see no home folders, so no Python installed in one."""
_GROUPS: Final = (("systemd", "cgroup", "none,name=systemd"), ("unified", "cgroup2", ""))
_IN_MEMORY: Final = ("run", "tmp", "var/tmp", "var/lib/containers", "sys/fs/cgroup")
"""Containers' layers cannot be in one of this kind."""
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")


def lacking() -> str | None:
    """Return the missing prerequisites of this machine."""
    if os.geteuid() != 0:
        return "root"
    if not SYSTEMD.exists():
        return "systemd"
    version = [str(PYTHON), "-c", "import sys, venv; assert sys.version_info >= (3, 11)"]
    if not PYTHON.exists() or subprocess.run(version, check=False, capture_output=True).returncode != 0:
        return f"{PYTHON} of 3.11 or later"
    if not all(Path("/sys/fs/cgroup", name).is_dir() for name, _, _ in _GROUPS):
        return "control groups of systemd's in /sys/fs/cgroup"
    return None


class SystemdMachine:
    """The machine while the `with` block lasts, with the wheel in /opt/millrace as docs/start/production.md says."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._root = folder, folder / "root"
        self._groups = [Path("/sys/fs/cgroup", name, f"millrace-tests-{os.getpid()}") for name, _, _ in _GROUPS]
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SystemdMachine:
        with ExitStack() as stack:
            wheel = build_wheel(self._folder / "dist")
            self._mount(stack)
            self._install(wheel)
            self._boot(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, *command: str, as_user: str = "root", is_checked: bool = True) -> str:
        """Run a command on the machine, in the checkout; return its output; raise AssertionError if it fails."""
        process = self._process
        assert process is not None
        inside = ["nsenter", f"--target={self._first()}", "--all", "--root", f"--wd={self._root}{ROOT}"]
        user = [] if as_user == "root" else ["runuser", "-u", as_user, "--"]
        done = subprocess.run(
            [*inside, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "COLUMNS=160", *user, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0 or not is_checked, f"{command}: {done.returncode}: {done.stdout}"
        return done.stdout

    def until(self, *command: str, says: str, within_s: float = 180.0, as_user: str = "root") -> str:
        """Run a command again and again until its output has a text; return that output."""
        output = ""

        def has_text() -> bool:
            nonlocal output
            output = self.run(*command, as_user=as_user, is_checked=False)
            return says in output

        wait_until(
            has_text,
            lambda: f"{command} does not print {says!r}:\n{output}\n{self.log()}",
            limit_s=within_s,
            poll_s=0.5,
        )
        return output

    def log(self) -> str:
        """Return the end of the journal of our units."""
        return self.run("journalctl", "--no-pager", "--lines=60", "--unit=millrace*", is_checked=False)

    def _mount(self, stack: ExitStack) -> None:
        memory = self._folder / "memory"
        for path in (memory, self._root):
            path.mkdir()
        _mount(stack, memory, "tmpfs")
        for name in ("upper", "work"):
            (memory / name).mkdir()
        _mount(stack, self._root, "overlay", f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work")

    def _install(self, wheel: Path) -> None:
        """Create /opt/millrace; the machine still has this host's network."""
        there = Path("/opt") / wheel.name
        shutil.copy(wheel, f"{self._root}{there}")
        uv = f"{ROOT}/.ci/uv"
        # Bytecode like pip's: a unit's user cannot write there.
        options = f"--compile-bytecode --python /opt/millrace --constraint {ROOT}/requirements/base.txt"
        lines = [
            *(f"mount --rbind /{name} {self._root}/{name}" for name in ("proc", "dev")),
            f"chroot {self._root} {uv} venv --clear --python {PYTHON} /opt/millrace",
            f"chroot {self._root} {uv} pip install {options} {there}[demo]",
        ]
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-ec", "\n".join(lines)],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def _boot(self, stack: ExitStack) -> None:
        for group in self._groups:
            group.mkdir()
            stack.callback(_remove, group)
        script = [f"echo $$ > {group}/cgroup.procs" for group in self._groups]
        script.append(f"exec unshare --pid --mount --uts --ipc --net --cgroup --fork bash -ec '{self._inside()}'")
        self._process = subprocess.Popen(
            ["bash", "-ec", "\n".join(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stack.callback(self._power_off)
        self.until("systemctl", "is-system-running", says="ing")  # starting, running
        for state in ("running", "degraded"):  # units of this machine that a namespace cannot start do not count
            if state in self.run("systemctl", "is-system-running", "--wait", is_checked=False):
                return
        raise AssertionError(self.run("systemctl", "--failed", is_checked=False))

    def _inside(self) -> str:
        root = self._root
        lines = [
            "mount --make-rprivate /",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /sys {root}/sys",
            f"mount -t tmpfs dev {root}/dev",
            f"mkdir {root}/dev/pts {root}/dev/shm",
            *(f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}" for name in _DEVICES),
            f"mount -t devpts -o newinstance,ptmxmode=0666 devpts {root}/dev/pts",
            f"ln -s pts/ptmx {root}/dev/ptmx; ln -s /proc/self/fd {root}/dev/fd",
            *(f"mkdir -p {root}/{name}; mount -t tmpfs memory {root}/{name}" for name in _IN_MEMORY),
        ]
        for name, kind, options in _GROUPS:
            where = f"{root}/sys/fs/cgroup/{name}"
            lines.append(f"mkdir {where}; mount -t {kind} {f'-o {options}' if options else ''} groups {where}")
        boot = f"chroot {root} {SYSTEMD} --system systemd.unit=basic.target"
        lines.append(f"ip link set lo up; exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin {boot}")
        return "\n".join(lines)

    def _first(self) -> int:
        """Return the id of its process 1 on this host."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        wait_until(lambda: children.read_text().split() != [], "process 1 does not start")
        return int(children.read_text().split()[0])

    def _power_off(self) -> None:
        """Kill process 1, and with it all others of the machine."""
        assert self._process is not None
        os.kill(self._first(), signal.SIGKILL)
        self._process.wait()


def _remove(group: Path) -> None:
    """Remove a control group and its children, once the last of its processes has gone."""

    def is_removed(path: Path) -> bool:
        with suppress(OSError):
            path.rmdir()
        return not path.exists()

    for path in (*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group):
        wait_until(partial(is_removed, path), f"{path} cannot be removed")


def _mount(stack: ExitStack, where: Path, kind: str, options: str = "") -> None:
    words: Sequence[str] = ("-o", options) if options else ()
    subprocess.run(["mount", "-t", kind, *words, "tests", str(where)], check=True)
    stack.callback(subprocess.run, ["umount", "--recursive", "--lazy", str(where)], check=True)
