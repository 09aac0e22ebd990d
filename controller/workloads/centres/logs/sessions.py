"""The centre's end of logs of its tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from controller.apiserver.agents.answering import Answering
from controller.apiserver.client import ApiClient
from controller.apiserver.sessions.frames import Frame, Stream, data_frames, exit_frame
from controller.apiserver.sessions.values import Answerer, AnswererKind, TaskSessionRequest
from controller.workloads.centres.engines.base import ERRORS_FILE, OUTPUT_FILE
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.logs.reading import OutputReader

LOGGER: Final = logging.getLogger("millrace.centre")
POLL_S: Final = 0.5
_THREADS: Final = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a task, as its agent knows it.

    `folder` is its job's own folder, `kept` that with its kept output. While it `goes_on` its job may write more, or is
    yet to start, or its output is yet to be kept. `nothing_yet` says why it has no output yet, empty if it may have.
    """

    folder: Path
    kept: Path | None
    goes_on: bool
    nothing_yet: str = ""


class TaskLogs:
    """Answers sessions of one centre until cancelled.

    `most_bytes` returns the limit of an output to start with: jobs may have put anything in its place. Reading has
    threads of its own, so that a file system that hangs holds up nothing else.
    """

    def __init__(
        self,
        client: ApiClient,
        centre: str,
        attempt_of: Callable[[TaskSessionRequest], Attempt],
        most_bytes: Callable[[], int],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        self._centre, self._attempt_of, self._most_bytes, self._poll_s = centre, attempt_of, most_bytes, poll_s
        answerer = Answerer(AnswererKind.CENTRE, centre)
        self._answering = Answering(client, answerer, lambda: client.centre_sessions(centre), self.frames_of, LOGGER)
        self._threads = ThreadPoolExecutor(_THREADS, "task-logs")

    async def run(self) -> None:
        """Answer until cancelled."""
        try:
            await self._answering.run()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def frames_of(self, request: TaskSessionRequest) -> AsyncGenerator[Frame, None]:
        """Yield a task's output, and with `follow` what comes until its end; raise CentreError if there is none."""
        most = self._most_bytes()
        streams = {Stream.STDERR: ERRORS_FILE}
        if not request.errors_only:
            streams = {Stream.STDOUT: OUTPUT_FILE, **streams}
        readers = {stream: OutputReader(name, tail=request.tail, most=most) for stream, name in streams.items()}
        try:
            while True:
                # In this order: an ended job has written everything before its end is known.
                attempt = self._attempt_of(request)
                for reader in readers.values():
                    await self._in_thread(self._look, reader, attempt)
                self._check(request, attempt, is_there=any(reader.is_open for reader in readers.values()))
                for stream, reader in readers.items():
                    while data := await self._in_thread(reader.read):
                        for frame in data_frames(stream, data):
                            yield frame
                if not attempt.goes_on or not request.follow:
                    break
                await asyncio.sleep(self._poll_s)
            yield exit_frame(0)
        finally:
            for reader in readers.values():
                # In a thread, too: one that was cut off may still be reading.
                self._threads.submit(reader.close)

    def _look(self, reader: OutputReader, attempt: Attempt) -> None:
        reader.look(attempt.folder)
        # Never after its own folder: where that was longer, positions differ.
        if not reader.is_open and not attempt.goes_on and attempt.kept is not None:
            reader.look(attempt.kept)

    def _check(self, request: TaskSessionRequest, attempt: Attempt, *, is_there: bool) -> None:
        """Raise CentreError if there is no output, and none to wait for."""
        if is_there or (attempt.goes_on and (request.follow or not attempt.nothing_yet)):
            return
        if attempt.goes_on:
            raise CentreError(f"task {request.task}: {attempt.nothing_yet}")
        raise CentreError(
            f"task {request.task}: centre {self._centre} has no output of it: it never started, or its output is no"
            " longer kept"
        )

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)
