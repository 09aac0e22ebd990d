"""Slurm's commands, each with a deadline; answers as values, failures as errors of one line.

Nothing of the agent's environment reaches jobs or options: no SBATCH_ variable, no secret. The batch file that sbatch
reads contains no text of a task.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.workloads.centres.engines.base import Usage
from controller.workloads.centres.engines.jobs.places import read_end
from controller.workloads.centres.engines.slurm.answers import Node, QueuedJob, jobs_in, nodes_in
from controller.workloads.centres.engines.slurm.settings import SlurmSettings
from controller.workloads.centres.errors import CentreError, EngineError, OrderError
from dataplane.local import programs

_LONGEST: Final = 400
_NEVER: Final = re.compile(r"invalid|not available|not permitted|denied|exceed|violates", re.IGNORECASE)
"""Words in sbatch's error for a job that it will never accept."""
_GONE: Final = re.compile(r"invalid job id|already completing or completed|not pending or running", re.IGNORECASE)
_PASSED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SLURM_CONF")
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class SlurmCommands:
    """Client of a cluster, by its commands."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._environment = {name: os.environ[name] for name in _PASSED if name in os.environ} | {"LC_ALL": "C"}
        if settings.configuration is not None:
            self._environment["SLURM_CONF"] = str(settings.configuration)

    def path(self, command: str) -> str:
        """Return a command's path, here and on the nodes."""
        return command if self._settings.commands is None else str(self._settings.commands / command)

    async def nodes(self) -> tuple[Node, ...]:
        """Return all nodes."""
        return nodes_in(await self._run("listing its nodes", "sinfo", "--json"))

    async def queue(self) -> tuple[QueuedJob, ...]:
        """Return all jobs of all users: with --json squeue has no filters."""
        return jobs_in(await self._run("listing its jobs", "squeue", "--json"))

    async def submit(self, options: Sequence[str], command: Sequence[str]) -> str:
        """Queue a job that runs a command; return its number."""
        script = f"#!/bin/sh\nexec {shlex.join(command)}\n".encode()
        answer = await self._run("queueing a job", "sbatch", "--parsable", *options, sent=script)
        number = answer.decode("ascii", "replace").partition(";")[0].strip()
        if not number.isdigit():
            raise EngineError("slurm", f"sbatch: {number!r} is not a job number")
        return number

    async def ask_to_end(self, job: str) -> None:
        """Dequeue a job, or send SIGTERM to its keeper; an ended one is fine."""
        await self._cancel("--state=PENDING", job)
        await self._cancel("--signal=TERM", "--batch", job)

    async def kill(self, job: str) -> None:
        """Have Slurm end a job; an ended one is fine."""
        await self._cancel("--signal=KILL", "--full", job)
        await self._cancel(job)

    async def usage(self, job: str) -> Usage | None:
        """Return the resources used by a running job; None if the cluster does not count, or it has ended."""
        try:
            output = await self._run(
                "asking for usage", "sstat", "-n", "-P", "-a", "-o", "AveCPU,NTasks,MaxRSS", "-j", job
            )
        except EngineError:
            return None
        return usage_in(output.decode("ascii", "replace"))

    async def _cancel(self, *options: str) -> None:
        try:
            await self._run("ending a job", "scancel", *options)
        except EngineError as error:
            if not _GONE.search(error.problem):
                raise

    async def _run(self, doing: str, command: str, *options: str, sent: bytes | None = None) -> bytes:
        deadline_s = self._settings.deadline_s
        try:
            ended = await programs.run(
                (self.path(command), *options),
                deadline_s=deadline_s,
                doing=f"slurm: {doing}: {command}",
                environment=self._environment,
                sent=sent,
            )
        except TimeoutError as error:  # an OSError, too
            raise EngineError("slurm", f"{doing}: no answer from {command} within {deadline_s:g} s") from error
        except OSError as error:
            problem = (error.strerror or "").lower()
            raise EngineError("slurm", f"{doing}: {command} cannot be started: {problem}") from error
        if ended.exit_code:
            problem = f"{doing}: {_said(ended.said) or f'{command} failed with exit code {ended.exit_code}'}"
            never = command == "sbatch" and _NEVER.search(problem)
            raise (OrderError if never else EngineError)("slurm", problem)
        return ended.output


def job_text_in(folder: Path, name: str, most_bytes: int = 4096) -> str:
    """Return the last line that Slurm or a job's keeper wrote into a file; empty without one."""
    try:
        lines = read_end(folder, name, most_bytes).decode("utf-8", "replace").split("\n")
    except CentreError:
        return ""
    return next((line.strip()[:_LONGEST] for line in reversed(lines) if line.strip()), "")


def usage_in(text: str) -> Usage | None:
    """Return the sum of sstat's figures of a job's steps, as `AveCPU|NTasks|MaxRSS`; None without any."""
    cpu_s, memory, rows = 0.0, 0, 0
    for line in text.splitlines():
        time, _, rest = line.partition("|")
        tasks, _, resident = rest.partition("|")
        duration = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)(?:\.(\d+))?", time)
        size = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", resident)
        if duration is None or size is None:
            continue
        days, hours, minutes, seconds = (int(part or 0) for part in duration.groups()[:4])
        cpu_s += (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * int(tasks or 1)
        memory, rows = max(memory, int(float(size[1]) * _UNITS[size[2]])), rows + 1
    return Usage(cpu_s, memory) if rows else None


def _said(text: bytes) -> str:
    """Return a command's message as one line."""
    lines = (
        re.sub(r"^\w+: (error|fatal): ", "", line.strip()) for line in text.decode("utf-8", "replace").splitlines()
    )
    return "; ".join(line for line in lines if line)[:_LONGEST]
