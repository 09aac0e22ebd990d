"""A star of hosts around one switch, and processes in their namespaces to talk with by lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dataplane.errors import FabricError
from dataplane.local.deadline import LocalDeadline, wait_readable
from dataplane.topology.file import loads
from dataplane.topology.values import Topology

SWITCH: Final = "s1"
WAIT_S: Final = 60.0


def star(workers: int, rate_bps: int, *, queue_frames: int = 256, collector: str | None = None) -> Topology:
    """Return hosts h1, h2, ... on one switch, and one for a collector if that has a name."""
    names = [f"h{place + 1}" for place in range(workers)] + ([] if collector is None else [collector])
    hosts = "\n".join(f"  - {{name: {name}, switch: {SWITCH}}}" for name in names)
    watched = "" if collector is None else f"collector: {{host: {collector}}}"
    return loads(f"""
millrace: 1
name: star-{workers}
{watched}
defaults: {{access: {{rate: {rate_bps} bit/s, delay: 0 us, queue_frames: {queue_frames}}}}}
switches: [{{name: {SWITCH}}}]
hosts:
{hosts}
""")


class Agent:
    """A process in a host's namespace that talks in lines of JSON; errors name one that does not answer in time."""

    def __init__(self, host: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.host, self.process, self.log = host, process, log
        self._buffer = b""

    def tell(self, **words: object) -> None:
        """Say something."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(words).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self._failure("has ended") from None

    def answer(self, timeout_s: float = WAIT_S) -> dict[str, Any]:
        """Return what it says next; raise FabricError, with the last line of its log, if it does not."""
        assert self.process.stdout is not None
        deadline = LocalDeadline(timeout_s, f"an answer of host {self.host}")
        while b"\n" not in self._buffer:
            if not wait_readable(self.process.stdout, deadline):
                raise self._failure(f"has said nothing for {timeout_s:g} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise self._failure("has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, timeout_s: float = WAIT_S, **words: object) -> dict[str, Any]:
        """Say something and return the answer."""
        self.tell(**words)
        return self.answer(timeout_s)

    def close(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _failure(self, what: str) -> FabricError:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return FabricError(f"{self.host}: the agent {what}: {lines[-1] if lines else 'it left no words'}")
