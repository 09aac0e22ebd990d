"""Jobs as processes of this machine: each has its own units, and queues while none is free."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.apiserver.resources.centre import UnitType
from controller.workloads.centres.engines.base import EXIT_FILE, JOB_ENDED, JobOrder, JobPhase, JobState, Usage
from controller.workloads.centres.engines.jobs.keeping import KEEPER, START_FILE, Ended, Start
from controller.workloads.centres.engines.jobs.places import make_folder, remove
from controller.workloads.centres.engines.local.isolation import Isolation
from controller.workloads.centres.engines.local.limits import Groups
from controller.workloads.centres.engines.local.processes import Watched, end_all_of
from controller.workloads.centres.engines.local.records import Order, Record
from controller.workloads.centres.errors import EngineError, OrderError
from controller.workloads.centres.settings import LocalSettings, UnitSettings
from controller.workloads.centres.units import MILLI, Division, Found, Unit, divide

LOGGER: Final = logging.getLogger("millrace.centre")
NAME: Final = "local"
_SHARE_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_SLICES: Final = "parts of devices are admitted, and enforced only where CUDA's MPS serves the jobs"
MARKER: Final = "MILLRACE_JOB"
"""Variable of all of a job's processes, by which those of a killed keeper are found."""
_BEYOND_GRACE_S: Final = 15.0
_POLL_S: Final = 0.02
_CANCELLED: Final = "it was cancelled before it started"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LocalEngine:
    """See the module; `look` returns the machine's current resources, and takes some ms."""

    def __init__(
        self,
        settings: LocalSettings,
        units: Sequence[UnitSettings],
        folder: Path,
        group: str,
        look: Callable[[LocalSettings], Found],
        *,
        isolation: Callable[[LocalSettings], Isolation] | None = None,
        network_namespace: Path | None = None,
    ) -> None:
        self._isolation_of = isolation or (lambda now: Isolation(now, (folder,), Path(sys.executable)))
        self._isolation = self._isolation_of(settings)
        self._settings, self._units, self._folder, self._look = settings, tuple(units), folder, look
        self._namespace = network_namespace
        self._groups = Groups(group, settings)
        self._found = Found((), 0)
        self._division = Division((), (), None, ())
        self._changed = asyncio.Event()
        self._keepers: dict[str, Watched] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)

    @property
    def name(self) -> str:
        """Name for CentreStatus.engine."""
        return NAME

    @property
    def notes(self) -> tuple[str, ...]:
        """Resources in no unit, missing ones, and limits that do not hold."""
        sliced = any(unit.device_milli < MILLI for each in self._division.types for unit in each.units)
        slices = (_SLICES,) if sliced else ()
        return (*self._division.notes, *slices, *self._gone(), *self._groups.notes, *self._isolation.notes)

    async def start(self) -> None:
        """Look at the machine, find the existing jobs; raise EngineError."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(self._isolation.prepare)
            self._groups.prepare()
        except OSError as error:
            raise EngineError(NAME, f"{error.filename or self._folder}: {error.strerror or error}") from None
        if self._namespace is not None and not self._namespace.exists():
            raise EngineError(NAME, f"network namespace {self._namespace} does not exist")
        # Before anything waits for units: running jobs hold theirs.
        for record in self._records():
            self._adopt(record)
        last = max((order.number for record in self._records() if (order := record.order) is not None), default=0)
        self._numbers = itertools.count(last + 1)
        await self.resources()

    async def reload(self, settings: LocalSettings, units: Sequence[UnitSettings]) -> None:
        """Apply new settings; running jobs keep what they have. Raise EngineError for impossible settings."""
        divide(Found((), 0), units)
        isolation = self._isolation_of(settings)
        await asyncio.to_thread(isolation.prepare)
        self._groups.reload(settings)
        self._isolation = isolation
        self._settings, self._units, self._found = settings, tuple(units), Found((), 0)
        await self.resources()

    async def close(self) -> None:
        """Detach from the jobs; they run on."""
        await asyncio.gather(*self._ending.values(), return_exceptions=True)
        if not self._keepers:
            self._groups.remove_all()
        for keeper in self._keepers.values():
            keeper.close()
        self._keepers.clear()

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the current unit types."""
        available = await asyncio.to_thread(self._look, self._settings)
        if available != self._found:
            self._found, self._division = available, divide(available, self._units)
            self._start_waiting()
        return tuple(each.unit_type() for each in self._division.types)

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever a job has ended, or the machine has changed."""
        while True:
            try:
                async with asyncio.timeout(self._settings.look_s):
                    await self._changed.wait()
            except TimeoutError:
                before = self._found
                await self.resources()
                if before == self._found:
                    continue
            self._changed.clear()
            yield

    async def submit(self, order: JobOrder) -> str:
        """Start a job, or queue it for units; the same mark twice is one job."""
        record = self._record(order.mark.job_name)
        if record.order is not None:
            return record.id
        self._check(order)
        try:
            record.path.mkdir(mode=0o700, exist_ok=True)
            user = self._isolation.user(self._taken_uids())
            make_folder(order.folder, order.files, user)
            record.write("order.json", Order.of(order, next(self._numbers), user))
        except OSError as error:
            raise EngineError(NAME, f"{record.id}: {error.filename}: {error.strerror or error}") from None
        self._start_waiting()
        return record.id

    async def states(self, ids: Collection[str]) -> Mapping[str, JobState]:
        """Return the jobs with these ids that were ordered here."""
        by_id = {each: self._record(each).state() for each in ids}
        return {each: state for each, state in by_id.items() if state is not None}

    async def jobs(self) -> tuple[JobState, ...]:
        """Return all jobs on record."""
        return tuple(state for record in self._records() if (state := record.state()) is not None)

    async def cancel(self, job: str, grace_s: float) -> None:
        """End a job, and return once it has ended."""
        record = self._record(job)
        state = record.state()
        if state is None or state.phase in JOB_ENDED:
            return
        if state.phase is JobPhase.QUEUED and job not in self._keepers:
            record.write(EXIT_FILE, Ended(reason=_CANCELLED))
            self._changed.set()
            return
        record.grace_file.write_text(f"{grace_s:g}", encoding="ascii")
        due_s = time.monotonic() + grace_s + _BEYOND_GRACE_S
        asked = False
        while time.monotonic() < due_s:
            keeper = record.keeper()
            if keeper is None and (record.ended is not None or job not in self._keepers):
                return
            if keeper and not asked:
                _signal(keeper, signal.SIGTERM)
                asked = True
            await asyncio.sleep(_POLL_S)
        LOGGER.warning("job %s does not end: killing its keeper, too", job)
        keeper = record.keeper()
        if keeper:
            _signal(keeper, signal.SIGKILL)
        else:
            await self._end_rest(record)

    async def forget(self, job: str) -> None:
        """Drop an ended job, and its folders."""
        record = self._record(job)
        state = record.state()
        if state is not None and state.phase not in JOB_ENDED:
            raise EngineError(NAME, f"{job}: is {state.phase.value} and cannot be forgotten")
        self._groups.remove(job)
        if state is not None and state.folder is not None:
            await asyncio.to_thread(remove, state.folder)
        shutil.rmtree(record.path, ignore_errors=True)

    async def usage(self, job: str) -> Usage | None:
        """Return the resources that a job has used."""
        ended = self._record(job).ended
        if ended is not None and ended.started_ns is not None:
            return Usage(ended.cpu_s or 0.0, ended.memory_peak_bytes)
        return self._groups.usage(job)

    def _check(self, order: JobOrder) -> None:
        """Raise OrderError for an order that can never run here."""
        if order.image is not None:
            raise OrderError(NAME, f"task {order.mark.task}: this engine cannot run containers ({order.image})")
        units = self._division.of(order.unit)
        if units is None:
            names = ", ".join(each.name for each in self._division.types)
            raise OrderError(NAME, f"task {order.mark.task}: no unit type {order.unit}; known: {names}")
        if not 1 <= order.units <= len(units.units):
            has = len(units.units)
            raise OrderError(
                NAME, f"task {order.mark.task}: wants {order.units} units of type {order.unit}, not 1 to {has}"
            )
        if not order.argv:
            raise OrderError(NAME, f"task {order.mark.task}: has no command")
        for name in order.files:
            if "/" in name or name in ("", ".", ".."):
                raise OrderError(NAME, f"task {order.mark.task}: {name!r} is not a file name")

    def _taken_uids(self) -> set[int]:
        """Return the users of all jobs on record: an ended job's user still owns its folder."""
        return {order.user[0] for each in self._records() if (order := each.order) is not None and order.user}

    def _start_waiting(self) -> None:
        """Start waiting jobs, oldest first; one without enough units blocks its type for later ones."""
        waiting = [(order.number, record, order) for record in self._records() if (order := self._waits(record))]
        blocked: set[str] = set()
        for _, record, order in sorted(waiting, key=lambda each: each[0]):
            units = () if order.unit in blocked else self._free(order.unit)
            if len(units) < order.units:
                blocked.add(order.unit)
                continue
            try:
                self._begin(record, order, units[: order.units])
            except OSError as error:
                problem = f"it cannot be started: {error.filename or record.path}: {error.strerror or error}"
                record.write(EXIT_FILE, Ended(reason=problem))
                self._changed.set()

    def _waits(self, record: Record) -> Order | None:
        if record.id in self._keepers or record.was_kept or record.ended is not None:
            return None
        return record.order

    def _free(self, name: str) -> tuple[Unit, ...]:
        """Return the units of a type without a core or device of a running job."""
        units = self._division.of(name)
        starts = self._starts()
        cores = {core for start in starts.values() for core in start.cores}
        held = Counter[str]()
        for start in starts.values():
            held.update(start.device_shares)
        free = []
        for unit in units.units if units is not None else ():
            shares = self._shares((unit,))
            fits = all(held[handle] + milli <= MILLI for handle, milli in shares.items())
            if cores.isdisjoint(unit.cores) and fits:
                held.update(shares)
                free.append(unit)
        return tuple(free)

    def _starts(self) -> dict[str, Start]:
        """Return how the running jobs were started, by job."""
        jobs = dict.fromkeys((*self._keepers, *self._ending))
        return {job: start for job in jobs if (start := self._record(job).start) is not None}

    def _shares(self, units: Sequence[Unit]) -> dict[str, int]:
        """Return the thousandths of devices that units have together, by the devices' names."""
        handles = {device.number: device.handle for device in self._found.devices}
        shares = Counter[str]()
        for unit in units:
            shares.update({handles.get(number) or str(number): unit.device_milli for number in unit.devices})
        return dict(shares)

    def _gone(self) -> tuple[str, ...]:
        """Return a line for each running job of whose devices one is not there any more."""
        here = {device.handle or str(device.number) for device in self._found.devices}
        return tuple(
            f"job {job}: its device {handle} is gone"
            for job, start in self._starts().items()
            for handle in start.device_shares
            if handle not in here
        )

    def _begin(self, record: Record, order: Order, units: Sequence[Unit]) -> None:
        cores = tuple(sorted(core for unit in units for core in unit.cores))
        devices = tuple(sorted({device for unit in units for device in unit.devices}))
        shares = self._shares(units)
        milli, memory = sum(unit.cpu_milli for unit in units), sum(unit.memory_bytes for unit in units)
        limits = self._groups.make(record.id, milli if milli < len(cores) * MILLI else None, memory or None)
        environment = {"PATH": _PATH, "LANG": "C.UTF-8", "HOME": order.folder, "TMPDIR": order.folder}
        environment |= dict(order.environment)
        environment |= {
            MARKER: record.id,
            "MILLRACE_CORES": ",".join(map(str, cores)),
            "CUDA_VISIBLE_DEVICES": ",".join(shares),
        }
        if len(set(shares.values())) == 1 and (part := next(iter(shares.values()))) < MILLI:
            environment[_SHARE_VARIABLE] = f"{part / 10:g}"
        start = Start(
            argv=order.argv,
            environment=environment,
            folder=order.folder,
            cores=cores,
            devices=devices,
            device_shares=shares,
            group=limits.group,
            group_files=limits.group_files,
            oom_files=limits.oom_files,
            network_namespace=None if self._namespace is None else str(self._namespace),
            user=order.user,
            sandbox=self._isolation.sandbox(Path(order.folder), order.user),
            resource_limits=dict(limits.resource_limits) | self._isolation.resource_limits(limits.group),
            limit_s=order.limit_s,
            grace_s=order.grace_s,
            output_limit_bytes=order.output_limit_bytes,
            ended_file=EXIT_FILE,
            takes_lock=True,
        )
        record.write(START_FILE, start)
        self._spawn(record)

    def _spawn(self, record: Record) -> None:
        """Start a keeper, which outlives us, for a job that has its units."""
        words = [sys.executable, "-I", "-S", str(KEEPER), str(record.path)]
        log = str(record.path / "keeper.log")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        keeper = os.posix_spawn(sys.executable, words, {}, file_actions=actions, setsid=True)
        self._watch(record, keeper)

    def _adopt(self, record: Record) -> None:
        """Find the keeper of a job that an earlier agent has started."""
        keeper = record.keeper()
        while keeper == 0:  # it has yet to write its number
            time.sleep(_POLL_S)
            keeper = record.keeper()
        if keeper is not None:
            self._watch(record, keeper)
        elif record.was_kept and record.ended is None:
            self._end_soon(record)
        elif record.start is not None and record.ended is None:
            self._spawn(record)  # one may be starting in parallel: the first to take the lock runs the job

    def _watch(self, record: Record, keeper: int) -> None:
        self._keepers[record.id] = Watched(keeper, lambda: self._kept(record))

    def _kept(self, record: Record) -> None:
        """Handle a keeper's end."""
        self._keepers.pop(record.id).close()
        if record.keeper() is not None:
            self._adopt(record)  # another one was faster
            return
        if record.ended is None and record.order is not None:
            if not record.was_kept:
                log = record.path / "keeper.log"
                last_line = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
                record.write(EXIT_FILE, Ended(reason=f"its keeper did not start: {''.join(last_line)[:500]}"))
            self._end_soon(record)
        else:
            self._free_units(record)

    def _free_units(self, record: Record) -> None:
        """Release the units of a job without remaining processes."""
        self._groups.remove(record.id)
        self._start_waiting()
        self._changed.set()

    def _end_soon(self, record: Record) -> None:
        """Kill the processes left by a job with a killed keeper; it holds its units until then."""
        self._ending[record.id] = asyncio.create_task(self._end_rest(record))

    async def _end_rest(self, record: Record) -> None:
        marker, group = f"{MARKER}={record.id}", self._groups.path(record.id)
        if not await asyncio.to_thread(end_all_of, marker, group):
            LOGGER.warning("job %s: some of its processes do not end", record.id)
        self._ending.pop(record.id, None)
        self._free_units(record)

    def _records(self) -> tuple[Record, ...]:
        with suppress(FileNotFoundError):
            return tuple(Record(path) for path in sorted(self._folder.iterdir()) if path.is_dir())
        return ()

    def _record(self, job: str) -> Record:
        if "/" in job or job in ("", ".", ".."):
            raise EngineError(NAME, f"{job[:100]!r} is not a job id")
        return Record(self._folder / job)


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)
