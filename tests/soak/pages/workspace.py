"""The workspace of a page's blocks, and the actions of scenes there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import comes_true


class LackingError(Exception):
    """This machine lacks a prerequisite of a scene, which the message names."""


@dataclass(slots=True)
class Workspace:
    """Folder and environment of a page's blocks; scenes may change both before the page's first command."""

    folder: Path
    environment: dict[str, str]
    stack: ExitStack
    page: Path
    line: int = 0
    """Line of the block about to run."""

    @property
    def room(self) -> Path:
        """A folder of the page's own, outside of the checkout."""
        return Path(self.environment["TMPDIR"])

    @property
    def home(self) -> Path:
        """The reader's home."""
        return Path(self.environment["HOME"])

    def need(self, *programs: str) -> None:
        """Raise LackingError unless these programs are on the PATH."""
        path = self.environment["PATH"]
        if missing := [program for program in programs if shutil.which(program, path=path) is None]:
            raise LackingError(", ".join(missing))

    def call(self, command: str) -> str:
        """Run a command for a scene; it must succeed."""
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=600,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def until(self, command: str, wanted: str, within_s: float = 120.0) -> None:
        """Run a command until its output is exactly the wanted one; it may fail before."""

        def output() -> str:
            return self.call(f"{command} || true").strip()

        if not comes_true(lambda: output() == wanted, limit_s=within_s, poll_s=0.2):
            raise RuntimeError(f"{command}: still prints {output()}")

    def start(self, command: str, ready: str, within_s: float = 60.0) -> None:
        """Start a program that runs until the page ends; return once its output has `ready`."""
        log = self.room / f"scene-{len(list(self.room.glob('scene-*')))}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.stack.callback(_end, process)

        def is_ready() -> bool:
            return ready in log.read_text(errors="replace")

        comes_true(lambda: is_ready() or process.poll() is not None, limit_s=within_s)
        if not is_ready():
            raise RuntimeError(f"{command}: is not ready: {log.read_text(errors='replace')}")

    def write(self, name: str, text: str) -> None:
        """Write a file of the scene."""
        (self.folder / name).write_text(text, encoding="utf-8")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
