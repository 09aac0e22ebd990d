"""A kernel in a container: podman runs its image with this process's limits; both exchange lines of JSON.

The kernel reads from standard input and answers each line with one on standard output:

    {"make": {"sizes": {"n": 1024}, "seed": 1}}   {"ready": true}
    {"run": {"inputs": [2.5, [1.0, 2.0]]}}        {"output": 3.25}, or an array of numbers
    {"accuracy": {}}                              {"accuracy": 1e-15}: the relative error of the last output

or with {"problem": "one line"}. Its standard error is not read. It has no network, no privileges, and a read-only root.
Inputs of more than 65,536 numbers come as one number that stands for them (`base.fold`).
"""

from __future__ import annotations

import json
import math
import os
import resource
import secrets
import select
import shutil
import subprocess
import time
from typing import Any, Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import Array, Output, Sizes, Value, fold
from dataplane.cgroups import limits_of

_START_S: Final = 120.0
_ANSWER_S: Final = 600.0
_END_S: Final = 5.0
_MOST_LINE_BYTES: Final = 64 << 20
_MOST_NUMBERS: Final = 65_536
_LIFE_S: Final = 3600
"""Longest life of a container whose podman is gone."""
_SAFE: Final = (
    *("--network=none", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"),
    f"--timeout={_LIFE_S}",
)


class ContainerKernel:
    """A running container as a kernel; raises ProbeKernelError for any failure."""

    def __init__(self, name: str, image: str, sizes: Sizes, seed: int) -> None:
        self._owner = f"kernel {name}: image {image}"
        self._container = f"millrace-kernel-{secrets.token_hex(6)}"
        self._rest = b""
        if image.startswith("-") or not image:
            raise ProbeKernelError(f"{self._owner}: not an image name", at="entry")
        podman = shutil.which("podman")
        if podman is None:
            raise ProbeKernelError(f"{self._owner}: needs podman, which is not installed")
        self._podman = podman
        argv = [podman, "run", "--quiet", "--rm", "-i", f"--name={self._container}", *_SAFE, *_limits(), image]
        self._process = subprocess.Popen(  # noqa: S603 - podman, without a shell
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            answer = self._ask({"make": {"sizes": dict(sizes), "seed": seed}}, "make", _START_S)
            if answer.get("ready") is not True:
                raise ProbeKernelError(f"{self._owner}: make: it did not report ready")
        except ProbeKernelError:
            self.close()
            raise

    def run(self, inputs: tuple[Value, ...]) -> Output:
        """Have the container compute once."""
        output = self._ask({"run": {"inputs": [_plain(value) for value in inputs]}}, "run", _ANSWER_S).get("output")
        try:
            array: Array = np.array(output, dtype=np.float64)
        except (TypeError, ValueError):
            raise ProbeKernelError(f"{self._owner}: run: its output is neither a number nor an array") from None
        return array

    def accuracy(self, output: Output) -> float:  # noqa: ARG002 - it knows its last output
        """Return the error that the container reports."""
        error = self._ask({"accuracy": {}}, "accuracy", _ANSWER_S).get("accuracy")
        if isinstance(error, bool) or not isinstance(error, int | float):
            raise ProbeKernelError(f"{self._owner}: accuracy: its answer is not a number")
        return math.inf if math.isnan(error) else float(error)

    def close(self) -> None:
        """End the container: it exits when its input ends, and is removed if it does not."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            argv = [self._podman, "rm", "--force", "--ignore", "--time=0", self._container]
            subprocess.run(argv, check=False, capture_output=True, timeout=60)  # noqa: S603 - podman, without a shell
            self._process.kill()
            self._process.wait()

    def _ask(self, question: dict[str, Any], step: str, limit_s: float) -> dict[str, Any]:
        """Return the answer to a question; raise ProbeKernelError without one in time, and for a reported problem."""
        try:
            self._say(json.dumps(question).encode() + b"\n")
            line = self._line(limit_s)
        except OSError as error:
            words = "" if isinstance(error, TimeoutError) else self._last_words()
            raise ProbeKernelError(f"{self._owner}: {step}: {words or error.strerror}") from None
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ProbeKernelError(f"{self._owner}: {step}: its answer is not a JSON object: {line[:60]!r}")
        if "problem" in answer:
            raise ProbeKernelError(f"{self._owner}: {step}: {str(answer['problem']).splitlines()[0][:500]}")
        return answer

    def _say(self, line: bytes) -> None:
        stdin = self._process.stdin
        if stdin is None:
            raise BrokenPipeError
        stdin.write(line)
        stdin.flush()

    def _line(self, limit_s: float) -> bytes:
        """Return the next line; raise OSError if the container has ended, sent too much, or nothing in time."""
        stdout, ends_s = self._process.stdout, time.monotonic() + limit_s
        if stdout is None:
            raise BrokenPipeError
        while b"\n" not in self._rest:
            left_s = ends_s - time.monotonic()
            if left_s <= 0 or not select.select([stdout], [], [], left_s)[0]:
                raise TimeoutError(0, f"no answer in {limit_s:g} s")
            part = os.read(stdout.fileno(), 1 << 20)
            self._rest += part
            if not part:
                raise BrokenPipeError(0, "it has ended")
            if len(self._rest) > _MOST_LINE_BYTES:
                raise OSError(0, f"a line of more than {_MOST_LINE_BYTES} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _last_words(self) -> str:
        """Return the last line that podman, or the container, wrote to standard error."""
        stderr = self._process.stderr
        if stderr is None or not select.select([stderr], [], [], _END_S)[0]:
            return ""
        lines = os.read(stderr.fileno(), 1 << 16).decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else ""


def _limits() -> tuple[str, ...]:
    """Return podman's options for this process's own limits: a container has a control group of its own."""
    limits = limits_of()
    options = {
        "--cpus": None if limits.cpu_milli is None else f"{limits.cpu_milli / 1000:g}",
        "--memory": limits.memory_bytes,
        "--cpuset-cpus": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
    }
    # Podman's default may exceed what this process may grant; it lowers the number of processes to pid_max by itself.
    most = {"nofile": (resource.RLIMIT_NOFILE, 1 << 20), "nproc": (resource.RLIMIT_NPROC, 32_768)}
    least = {name: min(resource.getrlimit(kind)[1] % (1 << 62), limit) for name, (kind, limit) in most.items()}
    return (
        *(f"{option}={value}" for option, value in options.items() if value is not None),
        *(f"--ulimit={name}={value}:{value}" for name, value in least.items()),
    )


def _plain(value: Value) -> float | list[Any]:
    """Return an input as plain JSON data."""
    if not isinstance(value, np.ndarray):
        return float(value)
    if value.size > _MOST_NUMBERS or np.iscomplexobj(value):
        return fold((value,))
    plain: list[Any] = value.astype(np.float64).tolist()
    return plain
