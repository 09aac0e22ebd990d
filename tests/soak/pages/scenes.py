"""What stands when a reader comes to a block: the scenes that pages' marks name."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final


@dataclass(slots=True)
class Place:
    """Where a page's blocks run; scenes may change folder and environment before the page's first command."""

    folder: Path
    environment: dict[str, str]
    stack: ExitStack
    entered: set[str] = field(default_factory=set)

    def enter(self, name: str) -> None:
        """Make a scene stand, until the page ends."""
        if name not in self.entered:
            self.entered.add(name)
            SCENES[name](self)

    def call(self, command: str) -> str:
        """Run a command that a scene needs; it has to succeed."""
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

    def start(self, command: str, ready: str, within_s: float = 60.0) -> None:
        """Start what goes on until the page ends; return once it has said `ready`."""
        log = self.folder / f".scene-{len(list(self.folder.glob('.scene-*')))}"
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
        until_s = time.monotonic() + within_s
        while ready not in (said := log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"{command}: is not ready: {said}")
            time.sleep(0.05)

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


def _as_it_is(place: Place) -> None:
    """Nothing is needed but what every page has."""
    del place


SCENES: Final[dict[str, Callable[[Place], None]]] = {
    "checkout": _as_it_is,
    "online": _as_it_is,
}
