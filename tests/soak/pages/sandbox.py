"""A page's blocks for a shell, run as they are written where nothing of them stays.

`python -m tests.soak.pages.sandbox PAGE...` as root: processes, mounts, devices and host's name are the page's own; the
checkout is seen through a layer in memory. Only pages with the scene `online` keep the machine's network.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.docs.shell_blocks import ROOT, File, parts_of, shell_blocks_of
from tests.soak.pages import scenes
from tests.soak.pages.shell import PageError, Shell, Terminals, commands_of

WAYS: Final = {"shell", "terminals"}
_ROOM: Final = Path("/run/pages")


def has_blocks(page: Path) -> bool:
    """Return whether a page has blocks that are run here."""
    return any(block.way in WAYS for block in shell_blocks_of(page))


def run_page(page: Path) -> subprocess.CompletedProcess[str]:
    """Run a page in namespaces of its own; its output is the page's transcript, its status 0 if all is as it says."""
    is_online = any("online" in block.scenes for block in shell_blocks_of(page))
    own = ["--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", *([] if is_online else ["--net"])]
    return subprocess.run(
        ["unshare", *own, sys.executable, "-m", "tests.soak.pages.sandbox", "--inside", str(page)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _call(*words: str) -> None:
    subprocess.run(words, check=True)


def _close_off() -> dict[str, str]:
    """Lay memory over what a page may write to; return its environment."""
    _call("mount", "--make-rprivate", "/")
    _call("mount", "-t", "tmpfs", "pages", "/run")
    for name in ("upper", "work", "home", "tmp", "bin"):
        (_ROOM / name).mkdir(parents=True)
    layers = f"lowerdir={ROOT},upperdir={_ROOM}/upper,workdir={_ROOM}/work"
    _call("mount", "-t", "overlay", "checkout", "-o", layers, str(ROOT))
    _call("ip", "link", "set", "lo", "up")
    # sudo's own PATH lacks the environment's folder, where a page has `millrace` installed for all.
    (_ROOM / "bin/sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (_ROOM / "bin/sudo").chmod(0o755)
    path = f"{_ROOM}/bin:{ROOT}/.venv/bin:{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "MILLRACE_", "PYTHON"))}
    return kept | {
        "HOME": str(_ROOM / "home"),
        "TMPDIR": str(_ROOM / "tmp"),
        "PATH": path,
        "COLUMNS": "160",
        "LC_ALL": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
    }


def _inside(page: Path) -> None:
    environment = _close_off()
    os.chdir(ROOT)  # as it is through the layer
    with ExitStack() as stack:
        place = scenes.Place(Path.cwd(), environment, stack)
        shell: Shell | None = None
        for part in parts_of(page):
            if isinstance(part, File):
                (place.folder / part.name).write_text(part.text, encoding="utf-8")
            elif part.way in WAYS:
                for name in part.scenes:
                    place.enter(name)
                print(f"== {part.place} ({part.way})", flush=True)
                if part.way == "terminals":
                    terminals = Terminals(place.folder, place.environment)
                    try:
                        for command in commands_of(part):
                            terminals.run(command, page.name)
                    finally:
                        terminals.close(page.name)
                        print(terminals.said, flush=True)
                    continue
                if shell is None:
                    shell = Shell(place.folder, place.environment)
                    stack.callback(shell.close)
                for command in commands_of(part):
                    print(f"$ {command.text}", flush=True)
                    before = len(shell.said)
                    try:
                        shell.run(command, page.name)
                    finally:
                        print(shell.said[before:], flush=True)


def main(words: Sequence[str]) -> int:
    """Run pages; return 1 where one says what is not so."""
    if words[:1] == ["--inside"]:
        try:
            _inside(Path(words[1]))
        except PageError as error:
            print(f"!! {error}", flush=True)
            return 1
        return 0
    status = 0
    for word in words:
        done = run_page(Path(word).resolve())
        print(done.stdout, "well" if done.returncode == 0 else f"status {done.returncode}", flush=True)
        status |= done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
