"""Engine that has placement run the jobs in containers: one pod each, known only through the API.

The books are the Node resources' shares: a job holds its units' resources from its pod's binding to its release. A
job's results come back in its pod's log, as nodes and the agent share no folder. A pod belongs to a job if it has the
name and the uid in the agent's record; labels, which users write, prove nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import zlib
from collections.abc import Awaitable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from controller.apiserver.client import ApiClient, Place, find_place
from controller.apiserver.client.place import read_token
from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.sessions.frames import Stream
from controller.common.errors import ApiError, ForbiddenError, NotFoundError, StaleError
from controller.workloads.centres.engines.base import (
    ERRORS_FILE,
    JOB_ENDED,
    OUTPUT_FILE,
    JobOrder,
    JobPhase,
    JobState,
)
from controller.workloads.centres.engines.containers import units
from controller.workloads.centres.engines.containers.pods import (
    CENTRE,
    exit_code_of,
    is_on_a_node,
    phase_of,
    pod_name,
    pod_of,
    why_of,
)
from controller.workloads.centres.engines.containers.settings import ContainersSettings, ContainerUnit
from controller.workloads.centres.engines.jobs.engine import POLL_S, ClusterEngine
from controller.workloads.centres.engines.jobs.folders import ENDED_FILE, OWN, JobFolder, unknown_job
from controller.workloads.centres.engines.jobs.keeper import CANCELLED
from controller.workloads.centres.engines.jobs.keeping import Ended
from controller.workloads.centres.engines.jobs.limits import Watch
from controller.workloads.centres.errors import EngineError, OrderError
from dataplane.local.deadline import local_timeout

_BEGIN: Final = b"-----BEGIN MILLRACE JOB-----"
_END: Final = b"-----END MILLRACE JOB-----"
_PART: Final = 60_000
"""Characters of one variable: the API server accepts a few more."""
_MOST_PARTS: Final = 12
_MOST_FILES: Final = 4096
_MOST_EXPANSION: Final = 8
"""Size of results as base64 in JSON, compressed and in base64 again, at most, as a multiple of their limit."""


def environment_of(folder: Path, task: str) -> dict[str, str]:
    """Return a folder's files as variables; raise OrderError if they are too large."""
    files = {
        str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = base64.b64encode(zlib.compress(json.dumps(files).encode(), 9)).decode()
    parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
    if len(parts) > _MOST_PARTS:
        most = _MOST_PARTS * _PART
        raise OrderError("containers", f"task {task}: its files are {len(text)} bytes when packed, at most {most} fit")
    return {f"MILLRACE_JOB_{number}": part for number, part in enumerate(parts)} | {
        "MILLRACE_JOB_PARTS": str(len(parts))
    }


def is_whole(log: bytes) -> bool:
    """Return whether a log ends with a job's complete results."""
    return _END in log


def files_in(log: bytes, most_bytes: int) -> Mapping[str, bytes] | None:
    """Return the files in a log; None for a log without any. Names are checked, sizes bounded."""
    _, begin, rest = log.rpartition(_BEGIN)
    text, end, _ = rest.partition(_END)
    if not begin or not end:
        return None
    try:
        expander = zlib.decompressobj()
        packed = expander.decompress(base64.b64decode(text), most_bytes * _MOST_EXPANSION + (1 << 16))
        if not expander.eof:
            raise EngineError("containers", f"a job's results have more than {most_bytes} bytes")
        told = json.loads(packed)
        if len(told) > _MOST_FILES:
            raise EngineError("containers", f"a job's results are {len(told)} files, at most {_MOST_FILES} are kept")
        return {name: base64.b64decode(content) for name, content in told.items() if _is_inside(name)}
    except (ValueError, zlib.error, AttributeError, TypeError, RecursionError) as error:
        raise EngineError("containers", f"a job's results cannot be unpacked: {error}") from error


def _is_inside(name: str) -> bool:
    """Return whether a name stays below a job's folder; raise ValueError for an invalid file name."""
    os.fsencode(name)
    parts = PurePosixPath(name).parts
    is_own = parts[:1] == (OWN,) and parts != (OWN, ENDED_FILE)
    return bool(parts) and not name.startswith("/") and ".." not in parts and not is_own and "\0" not in name


T = TypeVar("T")

_KILLED: Final = 137
_MARGIN_S: Final = 30.0
_MOST_LOG_BYTES: Final = 96 << 20


class ContainersEngine(ClusterEngine[Pod]):
    """Jobs of a centre as pods; `records` is a private folder of the agent."""

    name = "containers"

    def __init__(self, settings: ContainersSettings, *, centre: str, records: Path) -> None:
        super().__init__(centre=centre, records=records, poll_s=settings.poll_s)
        self._settings = settings
        self._client: ApiClient | None = None
        self._limits = Watch()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._reasons: dict[str, str] = {}

    async def start(self) -> None:
        """Check that the API server answers; raise EngineError in one line if it does not."""
        await self._within("listing its nodes", self._api.of(Node).list())
        self._read_records()

    async def close(self) -> None:
        """Close connections; jobs run on."""
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        self._following.clear()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def resources(self) -> tuple[UnitType, ...]:
        """Return the unit types with their current working units."""
        nodes, pods = await self._nodes(), await self._reports()
        self.notes = tuple(units.why_not(node) for node in nodes if not units.works(node))
        return units.unit_types(self._settings.units, nodes, {pod.metadata.uid for pod in pods.values()})

    async def submit(self, order: JobOrder) -> str:
        """Create a job's pod; the same mark twice is one job."""
        before = self._folders.find(order.mark)
        there = None if before is None else await self._there(before)
        if before is not None and (before.id is not None or there is not None):
            return self._begin(before, there)
        if order.has_secrets:
            raise OrderError(
                self.name, f"task {order.mark.task}: a pod's environment shows secrets: use another engine"
            )
        unit = self._unit(order, self._settings.units)
        self._check_room(order, units.largest(unit, await self._nodes()))
        pod, folder = self._made(order, unit)
        return self._begin(folder, await self._within("creating a pod", self._api.of(Pod).create(pod)))

    def _begin(self, folder: JobFolder, pod: Pod | None) -> str:
        """Register a job by its pod's name and uid; None for one whose pod is gone."""
        name = folder.id or pod_name(folder.mark, folder.token)
        job = self._bind(folder, name, None if pod is None else pod.metadata.uid)
        if pod is not None:
            self._follow(job, self._known[job])
        return job

    async def _there(self, folder: JobFolder) -> Pod | None:
        """Return the pod of a job, even if its creation was never answered; None if there is none."""
        pod = await self._read(folder.id or pod_name(folder.mark, folder.token))
        return pod if pod is not None and folder.uid in (None, pod.metadata.uid) else None

    async def cancel(self, job: str, grace_s: float) -> None:
        """Remove its pod with the order's grace; keep its output until then."""
        pod, folder = await self._pod(job), self._known.get(job)
        if pod is not None and folder is not None and folder.ending is None and phase_of(pod) not in JOB_ENDED:
            await self._end(job, pod, folder, CANCELLED, grace_s)

    async def forget(self, job: str) -> None:
        """Remove its pod, and its record."""
        await self._delete(job)

        async def is_gone() -> bool:
            return await self._pod(job) is None

        problem = f"pod {job}: still there after {self._settings.deadline_s:g} s"
        await self._until(is_gone, self._settings.deadline_s, problem)
        self._limits.forget(job)
        self._reasons.pop(job, None)
        self._following.pop(job, None)
        self._forget(job)

    @property
    def _api(self) -> ApiClient:
        if self._client is None:
            server = find_place(self._settings.api)
            if self._settings.token_file is not None:
                server = Place(server.address, read_token(Path(self._settings.token_file)), server.ca)
            self._client = ApiClient(server, tries=1)
        return self._client

    async def _within(self, doing: str, asked: Awaitable[T]) -> T:
        """Return an answer in time; raise EngineError, NotFoundError or StaleError."""
        try:
            # The service usually runs on this machine; if not, this machine's load delays its answers, too.
            async with local_timeout(self._settings.deadline_s, f"engine {self.name}: {doing}"):
                return await asked
        except TimeoutError as error:
            raise EngineError(self.name, f"{doing}: no answer within {self._settings.deadline_s:g} s") from error
        except (NotFoundError, StaleError):
            raise
        except ApiError as error:
            raise EngineError(self.name, f"{doing}: {error}") from error

    async def _nodes(self) -> tuple[Node, ...]:
        listing = await self._within("listing its nodes", self._api.of(Node).list())
        return units.own_nodes(self._settings, listing.items)

    async def _reports(self) -> Mapping[str, Pod]:
        asked = self._api.of(Pod).list(labels=f"{CENTRE}={self._centre}")
        listing = await self._within("listing its pods", asked)
        return {pod.metadata.name: pod for pod in listing.items if self._is_ours(pod)}

    def _is_ours(self, pod: Pod) -> bool:
        folder = self._known.get(pod.metadata.name)
        return folder is not None and folder.uid == pod.metadata.uid

    def _fingerprint(self, told: Pod) -> object:
        return told.status.phase

    async def _pod(self, name: str) -> Pod | None:
        """Return the pod of a known job; None if there is none, or another pod has its name."""
        if name not in self._known:
            return None
        pod = await self._read(name)
        return pod if pod is not None and self._is_ours(pod) else None

    async def _read(self, name: str) -> Pod | None:
        """Return the pod with a name; None if there is none, or it belongs to another user."""

        async def read() -> Pod | None:
            # Once our pod is gone, anybody may take its name: that must not look like a failing engine.
            with suppress(NotFoundError, ForbiddenError):
                return await self._api.of(Pod).get(name)
            return None

        return await self._within("reading a pod", read())

    async def _delete(self, name: str) -> None:
        async def delete() -> None:
            with suppress(NotFoundError, ForbiddenError):
                await self._api.of(Pod).delete(name)

        if await self._pod(name) is not None:
            await self._within("removing a pod", delete())

    def _made(self, order: JobOrder, unit: ContainerUnit) -> tuple[Pod, JobFolder]:
        """Return a job's pod, and its folder with the files to send."""
        if order.image is not None:
            if order.files:
                raise OrderError(self.name, f"task {order.mark.task}: a task with its own image gets no files")
            named = replace(order, image=None, argv=order.argv or (order.image,))
            folder = self._folders.prepare(named, passes="", own_image=True)
            return pod_of(order, unit, self._settings, folder.token, None), folder
        if self._settings.image is None and self._settings.bundle is None:
            raise OrderError(
                self.name, f"task {order.mark.task}: it needs an image: the settings name neither image nor bundle"
            )
        folder = self._folders.prepare(order, passes="MILLRACE_NODE")
        packed = environment_of(folder.path, order.mark.task)
        return pod_of(order, unit, self._settings, folder.token, packed), folder

    async def _state(self, job: str, pod: Pod | None) -> JobState:
        """Return a job's state from its record and its pod, recording the pod's end first."""
        folder = self._known.get(job)
        if folder is None:
            return unknown_job(job, self._centre)
        if (ended := folder.ended_state) is not None:
            return ended
        if pod is None:
            return folder.state(JobPhase.LOST, "its pod is gone without a record of its end")
        phase = phase_of(pod)
        if phase is JobPhase.LOST:
            return folder.state(phase, why_of(pod))
        if phase in JOB_ENDED and not self._is_followed(job):
            self._write_end(pod, folder, (b"", b""), "")
            return folder.ended_state or folder.state(phase, why_of(pod), exit_code_of(pod))
        self._follow(job, folder)
        over_s = self._limits.over_s(job, folder.limit_s) if phase is JobPhase.RUNNING and folder.own_image else None
        if over_s is not None:
            await self._end(job, pod, folder, f"it exceeded its limit of {over_s:g} s", folder.grace_s)
            return folder.ended_state or folder.state(JobPhase.FAILED, "over its limit")
        waits = phase is JobPhase.QUEUED
        state = folder.state(JobPhase.QUEUED if waits else JobPhase.RUNNING, why_of(pod) if waits else "")
        return replace(state, output_comes_at_end=not folder.own_image)

    async def _end(self, job: str, pod: Pod, folder: JobFolder, reason: str, grace_s: float) -> None:
        """Remove a pod, and wait until it is gone; the reader of its log keeps the output until then."""
        most_s = max(grace_s, pod.spec.stop_grace_s) + _MARGIN_S
        self._reasons[job] = reason
        self._follow(job, folder)
        await self._delete(job)

        async def is_gone() -> bool:
            return await self._pod(job) is None and not self._is_followed(job)

        await self._until(is_gone, most_s, f"pod {job}: still there {most_s:g} s after its removal was requested")
        if folder.ending is None:
            self._write_end(pod, folder, (b"", b""), reason)

    def _is_followed(self, job: str) -> bool:
        task = self._following.get(job)
        return task is not None and not task.done()

    def _follow(self, job: str, folder: JobFolder) -> None:
        """Start reading a job's log from its beginning, because it disappears with its container."""
        if not self._is_followed(job):
            self._following[job] = asyncio.create_task(self._bring(job, folder))

    async def _bring(self, job: str, folder: JobFolder) -> None:
        """Wait for a job's end, record its results, then remove its pod."""
        while folder.ending is None:
            try:
                pod = await self._pod(job)
                if pod is None or phase_of(pod) in JOB_ENDED:
                    return  # the next call for its state records that its output is unknown
                if not is_on_a_node(pod):
                    await asyncio.sleep(POLL_S)
                    continue
                log = await self._log(job, folder)
                files = None if folder.own_image else files_in(log[0], self._settings.results_bytes)
                told = None if files is None else folder.write_results(files)
                if told is not None:
                    folder.settled(told)
                else:
                    self._write_end(await self._ended_pod(job, pod), folder, log, self._reasons.get(job, ""))
                await self._delete(job)
            except EngineError:  # the next call for its state reports it
                await asyncio.sleep(self._settings.poll_s)

    async def _ended_pod(self, job: str, pod: Pod) -> Pod:
        """Return a pod's last state, once its container has ended."""
        try:
            async with local_timeout(self._settings.deadline_s, f"engine {self.name}: the end of pod {job}"):
                while (current := await self._pod(job)) is not None:
                    pod = current
                    if phase_of(pod) in JOB_ENDED:
                        break
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            pass  # fall back to its last known status
        return pod

    def _write_end(self, pod: Pod, folder: JobFolder, log: tuple[bytes, bytes], reason: str) -> None:
        """Record the end of a pod that has brought back only its log."""
        code = exit_code_of(pod)
        if reason and code in (None, 0):
            code = _KILLED
        if any(log):  # otherwise keep what came while it ran
            folder.write_results({OUTPUT_FILE: folder.bounded(log[0]), ERRORS_FILE: folder.bounded(log[1])})
        why = reason or ("" if code == 0 else why_of(pod) or f"exit code {code}")
        folder.settled(Ended(code, why[:4096], pod.status.started_ns, pod.status.finished_ns))

    async def _log(self, job: str, folder: JobFolder) -> tuple[bytes, bytes]:
        """Return a container's output until it ends, or until all its results are there.

        The output of a user's image goes into its folder as it comes.
        """
        out, errors, whole = bytearray(), bytearray(), not folder.own_image
        shown = folder.begin_outputs((OUTPUT_FILE, ERRORS_FILE)) if folder.own_image else None
        names = {Stream.STDOUT: OUTPUT_FILE, Stream.STDERR: ERRORS_FILE}
        try:
            async with aclosing(self._api.logs(job, "job", follow=True)) as frames:
                async for frame in frames:
                    kept = {Stream.STDOUT: out, Stream.STDERR: errors}.get(frame.stream)
                    if kept is not None and len(kept) < _MOST_LOG_BYTES:
                        kept += frame.payload
                        if shown is not None:
                            shown.take(names[frame.stream], frame.payload)
                    if whole and is_whole(bytes(out[-512:])):
                        break
        except ApiError as error:
            raise EngineError(self.name, f"pod {job}: its log: {error}") from error
        return bytes(out), bytes(errors)
