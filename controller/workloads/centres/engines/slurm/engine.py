"""Engine that has Slurm run the jobs.

A job is one process of one node with the CPUs of all its units, or one task for each unit (`spans_nodes`). Slurm
decides whether it has ended, and with which exit code; its folder, in which all jobs may write, adds the reason and the
duration. Slurm forgets a job some minutes after its end, so its earlier answers are kept.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import structs

from controller.apiserver.resources.base import MAX_NAME
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.engines.base import JobOrder, JobPhase, JobState, Usage
from controller.workloads.centres.engines.jobs.engine import POLL_S, ClusterEngine
from controller.workloads.centres.engines.jobs.folders import OWN, keeper_command, unknown_job
from controller.workloads.centres.engines.jobs.keeping import Ended
from controller.workloads.centres.engines.jobs.users import named_user
from controller.workloads.centres.engines.slurm.answers import Label, Node, QueuedJob
from controller.workloads.centres.engines.slurm.commands import SlurmCommands, job_text_in
from controller.workloads.centres.engines.slurm.settings import SlurmSettings, SlurmUnit
from controller.workloads.centres.errors import EngineError
from dataplane.topology.values import DeviceKind

_MIB: Final = 1 << 20
_GRES: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.+-]+)(?::(?P<type>[A-Za-z_][\w.+-]*))?(?::(?P<count>\d+)(?P<k>[KMG]?))?"
)
_TIMES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEVICES: Final = {kind.value: kind for kind in DeviceKind}


def divided(settings: SlurmSettings, nodes: Sequence[Node]) -> dict[str, SlurmUnit]:
    """Return the unit types by name: those of the settings, or one for each sort of nodes in each partition."""
    if settings.units:
        return dict(settings.units)
    sorts: dict[tuple[str, str, tuple[str, ...]], list[Node]] = {}
    for node in nodes:
        for partition in node.partitions:
            kinds = tuple(sorted(generic_resources(node.gres)))
            sorts.setdefault((partition, node.features, kinds), []).append(node)
    named: dict[str, SlurmUnit] = {}
    alone = {key[0] for key in sorts if sum(other[0] == key[0] for other in sorts) == 1}
    for key in sorted(sorts):
        partition, features, kinds = key
        words = (partition,) if partition in alone else (partition, *_words(features), *kinds)
        name = _free_name(words, named)
        named[name] = _unit(partition, _words(features), kinds, sorts[key], settings.unit_cpus)
    return named


def unit_types(
    units: Mapping[str, SlurmUnit], nodes: Sequence[Node], own: Mapping[str, int] | None = None
) -> tuple[UnitType, ...]:
    """Return how many units of each type working nodes have; `own` are those that our own jobs run on, by type."""
    types = []
    for name, unit in units.items():
        rooms = [room(unit, node) for node in nodes]
        free = sum(room(unit, node, only_free=True) for node in nodes) + (own or {}).get(name, 0)
        types.append(
            UnitType(
                name=name, count=sum(rooms), free=min(free, sum(rooms)), unit=_request(unit, memory_mib(unit, nodes))
            )
        )
    return tuple(types)


def room(unit: SlurmUnit, node: Node, *, only_free: bool = False) -> int:
    """Return how many units of a type a node has; 0 if it does not work, or is of another sort."""
    if not node.works or unit.partition not in node.partitions or not set(unit.features) <= set(_words(node.features)):
        return 0
    fits = [(node.idle_cpus if only_free else node.cpus) // unit.cpus]
    if unit.memory_mib:
        free = node.real_memory - (node.alloc_memory if only_free else 0)
        fits.append(free // unit.memory_mib)
    has, used = generic_resources(node.gres), generic_resources(node.gres_used)
    for kind, count in unit.gres.items():
        fits.append((has.get(kind, 0) - (used.get(kind, 0) if only_free else 0)) // count)
    return max(0, min(fits))


def largest(unit: SlurmUnit, nodes: Iterable[Node]) -> int:
    """Return the most units of a type that one node has."""
    return max((room(unit, node) for node in nodes), default=0)


def memory_mib(unit: SlurmUnit, nodes: Iterable[Node]) -> int:
    """Return the memory of a unit: its own figure, or the least share that a node has for its number of CPUs."""
    if unit.memory_mib:
        return unit.memory_mib
    shares = [node.real_memory * unit.cpus // node.cpus for node in nodes if room(unit, node)]
    return min(shares, default=0)


def generic_resources(text: str) -> dict[str, int]:
    """Return the counts by kind in Slurm's notation `gpu:a100:2(S:0-1),npu:4`, adding up types of a kind."""
    counts: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        if (match := _GRES.fullmatch(part.strip())) is not None:
            count = int(match["count"] or 1) * _TIMES[match["k"] or ""]
            counts[match["name"]] = counts.get(match["name"], 0) + count
    return counts


def _unit(
    partition: str, features: tuple[str, ...], kinds: Sequence[str], nodes: Sequence[Node], cpus: int
) -> SlurmUnit:
    """Return the unit of a sort of nodes: one of each generic resource, and the CPUs that belong to it."""
    if kinds:
        cpus = max(1, min(node.cpus // max(generic_resources(node.gres).values()) for node in nodes))
    memory = min(node.real_memory * cpus // max(node.cpus, 1) for node in nodes)
    return SlurmUnit(partition=partition, features=features, cpus=cpus, memory_mib=memory, gres=dict.fromkeys(kinds, 1))


def _request(unit: SlurmUnit, memory: int) -> Request:
    devices = tuple(
        DeviceNeed(kind=_DEVICES[kind], count=min(count, 256)) for kind, count in unit.gres.items() if kind in _DEVICES
    )
    return Request(cpu_milli=unit.cpus * 1000, memory_bytes=memory * _MIB, devices=devices)


def _words(features: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in features.split(",") if word))


def _free_name(words: Sequence[str], taken: Mapping[str, object]) -> str:
    """Return an unused resource name made of Slurm's words."""
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[: MAX_NAME - 4] or "unit"
    if name not in taken:
        return name
    return next(each for each in (f"{name}-{number}" for number in range(2, 1000)) if each not in taken)


_OUTPUT: Final = "engine"
"""File in a job's own folder for messages of Slurm and of the job's keeper."""
_MARGIN_S: Final = 30.0
"""Slurm's own limit comes after ours, which gives the reason."""
_LONGEST: Final = 4096
_RANKED: Final = 'MILLRACE_RANK="$SLURM_PROCID" MILLRACE_WORLD_SIZE="$SLURM_NTASKS" exec "$@"'


class SlurmEngine(ClusterEngine[QueuedJob]):
    """Jobs of a centre on a cluster; `records` is a private folder of the agent."""

    name = "slurm"

    def __init__(self, settings: SlurmSettings, *, centre: str, records: Path) -> None:
        trusts = settings.unsafe_trust_folders
        super().__init__(centre=centre, records=records, poll_s=settings.poll_s, trusts_folders=trusts)
        self._settings, self._commands = settings, SlurmCommands(settings)
        self._owner: tuple[int, int] | None = None

    async def start(self) -> None:
        """Check that the cluster answers; raise EngineError in one line if it does not, or jobs would run as root."""
        self._owner = self._user()
        await self._commands.nodes()
        self._read_records()

    async def close(self) -> None:
        """Do nothing: jobs run on."""

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with their current working units."""
        nodes, queue = await self._commands.nodes(), await self._commands.queue()
        self.notes = tuple(f"node {node.name} {node.why_not}" for node in nodes if not node.works)
        own: dict[str, int] = {}
        for number, job in self._ours(queue).items():
            if job.phase is JobPhase.RUNNING:
                folder = self._known[number]
                own[folder.unit] = own.get(folder.unit, 0) + folder.units
        return unit_types(divided(self._settings, nodes), nodes, own)

    async def submit(self, order: JobOrder) -> str:
        """Queue a job; the same mark twice is one job."""
        before = self._folders.find(order.mark)
        if before is not None:
            number = before.id or await self._queued_as(before.token)
            if number is not None:
                return self._bind(before, number)
        nodes = await self._commands.nodes()
        unit = self._unit(order, divided(self._settings, nodes))
        # Refuse only orders that the cluster never has room for, whichever of its nodes work now.
        all_up = [_up(node) for node in nodes]
        if unit.spans_nodes:
            self._check_room(order, sum(room(unit, node) for node in all_up), "the cluster has")
        else:
            self._check_room(order, largest(unit, all_up))
        folder = self._folders.prepare(self._spread(order, unit), passes="SLURM_", owner=self._owner)
        command = keeper_command(str(self._settings.python), folder.path)
        options = self._options(order, unit, nodes, folder.token)
        return self._bind(folder, await self._commands.submit(options, command))

    async def cancel(self, job: str, grace_s: float) -> None:
        """Ask, wait for the grace, kill; a waiting job is dequeued at once."""
        folder = self._known.get(job)
        if folder is None:
            return  # the job of that number is not ours
        folder.say_grace(grace_s)
        await self._commands.ask_to_end(job)
        if not await self._ends(job, grace_s + _MARGIN_S / 10):
            await self._commands.kill(job)

    async def forget(self, job: str) -> None:
        """Drop its record once Slurm has noticed its end, a little later: otherwise it would be reported again."""

        async def has_noticed() -> bool:
            return not any(str(each.job_id) == job and each.phase in _GOING for each in await self._commands.queue())

        await self._until(has_noticed, self._settings.deadline_s, f"job {job}: Slurm has not noticed its end")
        self._forget(job)

    async def usage(self, job: str) -> Usage | None:
        """Return the resources used: by a running job if the cluster counts them, by an ended one always."""
        return await super().usage(job) or await self._commands.usage(job)

    def _user(self) -> tuple[int, int] | None:
        """Return user and group of jobs, None for the agent's; raise EngineError if they would be root's."""
        name = self._settings.user
        if name is None:
            if os.geteuid() == 0 and not self._settings.unsafe_same_user:
                problem = "jobs would run as root: run the agent as another user, or set slurm.user"
                raise EngineError(self.name, f"{problem} (slurm.unsafe_same_user: true has them run as root)")
            return None
        return named_user(self.name, "slurm.user", name)

    def _ours(self, queue: Collection[QueuedJob]) -> dict[str, QueuedJob]:
        """Return the jobs of a queue that were submitted here; a number may have been reused for another job."""
        told = {str(job.job_id): job for job in queue}
        ours = {number: job for number in self._known if (job := told.get(number)) is not None}
        return {number: job for number, job in ours.items() if job.token == self._known[number].token}

    async def _queued_as(self, token: str) -> str | None:
        """Return the number of a job with a token: sbatch may have succeeded without time to answer.

        The first one: anyone who has seen the token in the queue may queue others with it.
        """
        numbers = [job.job_id for job in await self._commands.queue() if job.token == token]
        return str(min(numbers)) if numbers else None

    async def _reports(self) -> Mapping[str, QueuedJob]:
        return self._ours(await self._commands.queue())

    def _fingerprint(self, told: QueuedJob) -> object:
        return told.job_state

    async def _state(self, number: str, job: QueuedJob | None) -> JobState:
        """Return a job's state from its record and Slurm's answer."""
        folder = self._known.get(number)
        if folder is None:
            return unknown_job(number, self._centre)
        if (ended := folder.ended_state) is not None:
            return ended
        if job is None:
            return self._forgotten(folder, "Slurm")
        if job.phase in _GOING:
            return folder.state(job.phase, "" if job.phase is JobPhase.RUNNING else job.why)
        reason = ": ".join(part for part in (job.why, job_text_in(folder.path, f"{OWN}/{_OUTPUT}")) if part)
        if job.phase is JobPhase.LOST:
            return folder.state(JobPhase.LOST, reason)
        return folder.settled(_ended(job, folder.told, reason))

    def _spread(self, order: JobOrder, unit: SlurmUnit) -> JobOrder:
        """Return the order with its program started once for each unit, if the type says so."""
        if not unit.spans_nodes or not order.argv:
            return order
        options = ("--kill-on-bad-exit=1", "--export=ALL", f"--cpus-per-task={unit.cpus}", f"--ntasks={order.units}")
        ranked = ("/bin/sh", "-c", _RANKED, "sh", *order.argv)
        return replace(order, argv=(self._commands.path("srun"), *options, "--", *ranked))

    def _options(self, order: JobOrder, unit: SlurmUnit, nodes: Collection[Node], token: str) -> list[str]:
        """Return sbatch's options for a job."""
        settings = self._settings
        memory = memory_mib(unit, [_up(node) for node in nodes])
        label = Label(order.mark.labels, order.unit, order.units, token)
        options = [
            f"--job-name={order.mark.job_name}",
            f"--comment={label.text}",
            f"--chdir={order.folder}",
            f"--output={str(order.folder / OWN / _OUTPUT).replace('%', '%%')}",
            "--export=ALL",  # of the agent's environment, sbatch gets only Slurm's location
            "--no-requeue",
            f"--partition={unit.partition}",
        ]
        if self._owner is not None:
            options += [f"--uid={self._owner[0]}", f"--gid={self._owner[1]}"]
        if unit.spans_nodes:
            options += [f"--ntasks={order.units}", f"--cpus-per-task={unit.cpus}"]
            options += [f"--mem-per-cpu={memory // unit.cpus}M"] if memory else []
        else:
            options += ["--nodes=1", "--ntasks=1", f"--cpus-per-task={unit.cpus * order.units}"]
            options += [f"--mem={memory * order.units}M"] if memory else []
        if unit.features:
            options.append(f"--constraint={'&'.join(unit.features)}")
        if unit.gres:
            options.append(f"--gres={','.join(f'{kind}:{count * order.units}' for kind, count in unit.gres.items())}")
        if order.limit_s is not None:
            options.append(f"--time={math.ceil((order.limit_s + order.grace_s + _MARGIN_S) / 60)}")
        chosen = {"account": settings.account, "qos": settings.qos, "reservation": settings.reservation}
        return options + [f"--{name}={value}" for name, value in chosen.items() if value is not None]

    async def _ends(self, job: str, within_s: float) -> bool:
        """Wait for a job's end; return whether it has ended."""
        try:
            async with asyncio.timeout(within_s):
                while (await self.states((job,)))[job].phase in _GOING:
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True


_GOING: Final = (JobPhase.QUEUED, JobPhase.RUNNING)


def _up(node: Node) -> Node:
    """Return a node as it would be if it worked."""
    return Node(
        name=node.name,
        state="idle",
        cpus=node.cpus,
        idle_cpus=node.cpus,
        real_memory=node.real_memory,
        alloc_memory=0,
        partitions=node.partitions,
        features=node.features,
        gres=node.gres,
    )


def _ended(job: QueuedJob, told: Ended | None, reported: str) -> Ended:
    """Return how a job has ended: by Slurm's answer, and by its folder unless that contradicts Slurm."""
    ended_by_itself = job.job_state in ("COMPLETED", "FAILED")
    if told is None or (ended_by_itself and told.exit_code != job.code):
        return Ended(job.code, "" if job.phase is JobPhase.SUCCEEDED else reported[:_LONGEST])
    if ended_by_itself:
        return told
    reason = f"{told.why} ({job.why})" if told.why else job.why
    return structs.replace(told, reason=reason[:_LONGEST])
