"""A new user's day with pages: `python -m tests.soak.pages.first_day RESULT PAGE[#HEADING]...`, as root in a sandbox.

Nothing is prepared but the checkout and its environment, copied to the home of a user without rights. All blocks of the
pages, or of the named sections, are typed in order: those for a shell into a bash, `terminals` into further ones,
Python into a Python; only commands that begin with `sudo` are root's. What happened goes to RESULT as JSON.
`first:PAGE` ends with a page's first command; `root:` before the first name makes the user root, as some pages ask.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from dataplane.local.deadline import LocalDeadline
from tests.docs.shell_blocks import ROOT, File, ShellBlock, parts_of
from tests.docs.test_examples import Example, examples_of
from tests.soak.pages.sandbox import ROOM, close_off
from tests.soak.pages.shell import Command, commands_of, stays
from tests.soak.pages.typing_in import Bash, Done, Python, Terminals, User

Part = File | ShellBlock | Example
NAME: Final = "reader"
ID: Final = 4242
KERNELS: Final = "MILLRACE_FIRST_DAY_CACHE"
"""Environment variable with a folder for compiled kernels that several days share; without it all are compiled."""
WELL_S: Final = 60.0
FIRST: Final = "first:"
AS_ROOT: Final = "root:"
_STATUS: Final = re.compile(r"\bmillrace status\b")
_LEFT: Final = shutil.ignore_patterns(".git", ".venv*", ".*cache", ".hypothesis", "__pycache__", "site", "demo-out")


def make_user(environment: dict[str, str]) -> User:
    """Create a user without rights, with a home, a folder for sockets and a checkout."""
    subprocess.run(["mount", "-t", "tmpfs", "home", "/home"], check=True)
    home, runtime = Path("/home") / NAME, Path(f"/run/user/{ID}")
    subprocess.run(["useradd", "--uid", str(ID), "--home-dir", str(home), "--no-create-home", NAME], check=True)
    checkout = home / "millrace"
    shutil.copytree(ROOT, checkout, ignore=_LEFT, symlinks=True)
    for path in ROOT.glob(".venv*"):
        (checkout / path.name).symlink_to(path)
    runtime.mkdir(parents=True)
    for folder in (home, runtime):
        subprocess.run(["chown", "--recursive", "--no-dereference", f"{ID}:{ID}", str(folder)], check=True)
        folder.chmod(0o700)
    (ROOM / "tmp").chmod(0o1777)
    _open_python()
    own = {"HOME": str(home), "USER": NAME, "LOGNAME": NAME, "XDG_RUNTIME_DIR": str(runtime)}
    if (kernels := os.environ.get(KERNELS)) is not None:
        os.chown(kernels, ID, ID)
        own["MILLRACE_CACHE_DIR"] = kernels
    words = ("setpriv", f"--reuid={ID}", f"--regid={ID}", "--clear-groups", "--bounding-set=-all", "--no-new-privs")
    return User(words, checkout, environment | own)


def _open_python() -> None:
    """Let all users reach the Python of the environment, which may be in root's home."""
    for folder in reversed(Path(sys.base_prefix).parents):
        if not folder.stat().st_mode & 0o001:
            upper, work = ROOM / "python/upper", ROOM / "python/work"
            for path in (upper, work):
                path.mkdir(parents=True)
            layers = f"lowerdir={folder},upperdir={upper},workdir={work}"
            subprocess.run(["mount", "-t", "overlay", "python", "-o", layers, str(folder)], check=True)
            folder.chmod(0o755)


def parts_in(name: str) -> Iterator[Part]:
    """Yield blocks of a page, or of its section after `#`, in order: files, commands, Python that is run."""
    page, _, heading = name.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    pythons = [example for example in examples_of(text) if example.language == "python" and example.file is None]
    lines = text.splitlines()
    begin, end = 1, len(lines)
    if heading:
        begin = next(number for number, line in enumerate(lines, 1) if line.strip("# ") == heading and line[0] == "#")
        end = next((n for n in range(begin + 1, end + 1) if lines[n - 1].startswith("## ")), end)
    parts: list[Part] = [*parts_of(ROOT / page), *pythons]
    yield from sorted((part for part in parts if begin <= part.line <= end), key=lambda part: part.line)


class Reader:
    """A user who types what pages say."""

    def __init__(self, user: User, root: User) -> None:
        self._user, self._root = user, root
        self._bash = Bash(user)
        self._python: Python | None = None
        self.done: list[Done] = []

    def read(self, name: str) -> None:
        """Type all that a page or section has, or its blocks up to the first command."""
        is_first = name.startswith(FIRST)
        name = name.removeprefix(FIRST)
        page = ROOT / name.partition("#")[0]
        for part in parts_in(name):
            place = f"{page.relative_to(ROOT)}:{part.line}"
            if isinstance(part, File):
                self._write(part)
            elif isinstance(part, Example):
                self._python = self._python or Python(self._user, page)
                self._note(self._python.run(part, place, *self._bash.state()))
            elif part.way != "not run" or is_first:
                self._type(part, page, 1 if is_first else None)
                if is_first:
                    break
        if self._python is not None:
            self._python.close()
            self._python = None

    def close(self) -> None:
        """End the shell."""
        self._bash.close()

    def _write(self, file: File) -> None:
        path = Path(self._bash.state()[0]) / file.name
        path.write_text(file.text, encoding="utf-8")
        os.chown(path, ID, ID)

    def _type(self, block: ShellBlock, page: Path, most: int | None) -> None:
        terminals = Terminals(self._user, *self._bash.state())
        commands = list(islice(commands_of(block), most))
        for command in commands:
            if command.text.startswith(block.without or ("\n",)):
                continue
            place = f"{page.relative_to(ROOT)}:{command.line}"
            if command.text.startswith("sudo "):
                self._note(self._as_root(command, place))
            elif block.way == "terminals" or (block.way == "not run" and stays(command.text)):
                ends = block.is_in_turn and command is not commands[-1]
                self._note(_until_well(partial(terminals.run, command, place, ends=ends), command))
            else:
                self._note(self._bash.run(command, place))
        terminals.close()

    def _as_root(self, command: Command, place: str) -> Done:
        folder, _ = self._bash.state()
        bash = Bash(replace(self._root, folder=Path(folder)))
        try:
            return bash.run(command, place)
        finally:
            bash.close()

    def _note(self, done: Done) -> None:
        self.done.append(done)
        print(
            f"{done.place} [{done.status}; {done.took_s:.1f} s, silent {done.silent_s:.1f} s] $ {done.text}", flush=True
        )
        print(done.output, flush=True)
        if done.problem:
            print(f"!! {done.problem}", flush=True)


def _until_well(run: Callable[[], Done], command: Command) -> Done:
    """Run a command; repeat `millrace status`, of which pages say that it ends with 0 once all is well."""
    limit = LocalDeadline(WELL_S, "all is well")
    while (done := run()).status == 1 and _STATUS.search(command.text) and not limit.has_passed():
        time.sleep(1.0)
    return done


def main(words: Sequence[str]) -> None:
    """Spend a day with these pages, and write what was done."""
    environment = close_off()
    os.chdir(ROOT)
    user = make_user(environment)
    root = User((), user.folder, environment)
    names = words[1:]
    reader = Reader(root if names[0].startswith(AS_ROOT) else user, root)
    try:
        for name in names:
            reader.read(name.removeprefix(AS_ROOT))
    finally:
        reader.close()
        Path(words[0]).write_text(json.dumps([asdict(done) for done in reader.done]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
