"""A page's shell blocks, run as written where they leave nothing behind.

`python -m tests.soak.pages.sandbox PAGE...` as root: processes, mounts, devices and host's name are the page's own; the
checkout is seen through a layer in memory. Only pages with the scene `online` keep the machine's network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.docs.shell_blocks import ROOT, File, ShellBlock, parts_of, shell_blocks_of
from tests.soak.pages.scenes import SCENES
from tests.soak.pages.shell import Command, PageError, Shell, Terminals, commands_of
from tests.soak.pages.workspace import LackingError, Workspace

WAYS: Final = {"shell", "terminals"}
LACKING: Final = 77
"""Status of a page with omitted blocks, because the machine lacks prerequisites."""
ROOM: Final = Path("/run/pages")


def has_blocks(page: Path) -> bool:
    """Return whether a page has blocks that are run here."""
    return any(block.way in WAYS for block in shell_blocks_of(page))


def run_page(page: Path) -> subprocess.CompletedProcess[str]:
    """Run a page in its own namespaces; its output is its transcript, its status 0 or `LACKING` if it is right."""
    is_online = any("online" in block.scenes for block in shell_blocks_of(page))
    return run_inside("tests.soak.pages.sandbox", "--inside", str(page), is_online=is_online)


def run_inside(module: str, *words: str, is_online: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a module in namespaces of its own; return its output and status."""
    own = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
    own += [] if is_online else ["--net"]
    return subprocess.run(
        ["unshare", *own, sys.executable, "-m", module, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _call(*words: str) -> None:
    subprocess.run(words, check=True)


def close_off() -> dict[str, str]:
    """Lay memory over what a page may write to; return its environment."""
    _call("mount", "--make-rprivate", "/")
    _call("mount", "-t", "tmpfs", "pages", "/run")
    for name in ("home", "tmp", "bin"):
        (ROOM / name).mkdir(parents=True)
    for number, folder in enumerate((ROOT, Path("/etc"), Path("/var/lib"))):
        upper, work = ROOM / f"upper{number}", ROOM / f"work{number}"
        upper.mkdir()
        work.mkdir()
        _call(
            "mount", "-t", "overlay", "pages", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", str(folder)
        )
    _call("ip", "link", "set", "lo", "up")
    # A machine has a default route. This one has none, so that nothing waits for the world outside, but one to the
    # addresses of topologies' hosts, to which sockets connect though nobody answers.
    _call("ip", "route", "add", "10.0.0.0/8", "dev", "lo")
    if (kernels := Path("~/.cache/millrace").expanduser()).is_dir():  # or each page would compile them again
        cache, upper, work = (ROOM / name for name in ("home/.cache/millrace", "kernels/upper", "kernels/work"))
        for folder in (cache, upper, work):
            folder.mkdir(parents=True)
        layers = f"lowerdir={kernels},upperdir={upper},workdir={work}"
        _call("mount", "-t", "overlay", "kernels", "-o", layers, str(cache))
    # sudo's own PATH lacks the environment's folder, where a page has `millrace` installed for all.
    (ROOM / "bin/sudo").write_text('#!/bin/sh\nexec env "$@"\n')
    (ROOM / "bin/sudo").chmod(0o755)
    path = f"{ROOM}/bin:{ROOT}/.venv/bin:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MILLRACE_", "PYTHON"))}
    return kept | {
        "HOME": str(ROOM / "home"),
        "TMPDIR": str(ROOM / "tmp"),
        "PATH": path,
        "COLUMNS": "140",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }


class _Reader:
    """A reader who goes through a page and follows its blocks."""

    def __init__(self, page: Path, workspace: Workspace) -> None:
        self._page, self._place = page, workspace
        self._stands: set[str] = set()
        self._shell: Shell | None = None
        self.lacks: list[str] = []

    def take(self, block: ShellBlock) -> None:
        """Run a block, or print its missing prerequisites."""
        print(f"== {block.place} ({block.way})", flush=True)
        self._place.line = block.line
        try:
            for name in block.scenes:
                if name not in self._stands:
                    SCENES[name](self._place)
                    self._stands.add(name)
        except LackingError as error:
            print(f"left out: it lacks {error}", flush=True)
            self.lacks.append(str(error))
            return
        commands = [command for command in commands_of(block) if not command.text.startswith(block.without or ("\n",))]
        if "quick" in block.scenes:
            commands = [quickly(command) for command in commands]
        if block.way == "terminals":
            self._in_terminals(commands, in_turn=block.is_in_turn)
        else:
            self._in_the_shell(commands)

    def _in_terminals(self, commands: Sequence[Command], *, in_turn: bool) -> None:
        terminals = Terminals(self._place.folder, self._place.environment)
        try:
            for command in commands:
                terminals.run(command, self._page.name, ends=in_turn and command is not commands[-1])
        finally:
            try:
                terminals.close(self._page.name)
            finally:
                print(terminals.said, flush=True)

    def _in_the_shell(self, commands: Sequence[Command]) -> None:
        if self._shell is None:
            self._shell = Shell(self._place.folder, self._place.environment)
            self._place.stack.callback(self._shell.close)
        for command in commands:
            print(f"$ {command.text}", flush=True)
            before = len(self._shell.said)
            try:
                self._shell.run(command, self._page.name)
            finally:
                print(self._shell.said[before:], flush=True)


def quickly(command: Command) -> Command:
    """Return a command with --quick, before its comment."""
    text = re.sub(r"(?P<comment>\s+#.*)?$", r" --quick\g<comment>", command.text, count=1)
    return replace(command, text=text)


def _inside(page: Path) -> list[str]:
    """Run a page's blocks; return the missing prerequisites of omitted ones."""
    environment = close_off()
    os.chdir(ROOT)  # as it is through the layer
    with ExitStack() as stack:
        workspace = Workspace(Path.cwd(), environment, stack, page)
        reader = _Reader(page, workspace)
        for part in parts_of(page):
            if isinstance(part, File):
                workspace.write(part.name, part.text)
            elif part.way in WAYS:
                reader.take(part)
    return reader.lacks


def main(words: Sequence[str]) -> int:
    """Run pages; return 1 if one is wrong, `LACKING` if blocks were omitted."""
    if words[:1] == ["--inside"]:
        try:
            lacks = _inside(Path(words[1]))
        except PageError as error:
            print(f"!! {error}", flush=True)
            return 1
        return LACKING if lacks else 0
    status = 0
    for word in words:
        done = run_page(Path(word).resolve())
        print(done.stdout, "well" if done.returncode == 0 else f"status {done.returncode}", flush=True)
        status |= done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
