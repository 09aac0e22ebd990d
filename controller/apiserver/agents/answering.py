"""An agent's end of sessions: requested by the API server, answered over connections made from here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from controller.apiserver.client import ApiClient
from controller.apiserver.sessions.frames import Frame, error_frame
from controller.apiserver.sessions.values import Answerer, SessionRequest
from controller.common.errors import ApiError, reason_of

_MOST: Final = 64
_AGAIN_S: Final = 1.0

Requested = TypeVar("Requested", bound=SessionRequest)


class Answering(Generic[Requested]):
    """Answers the sessions of a node or centre until cancelled; a failing session ends with one line, and no other.

    `requests` yields them without end, `frames_of` the frames of one, the last of which ends it.
    """

    def __init__(
        self,
        client: ApiClient,
        answerer: Answerer,
        requests: Callable[[], AsyncGenerator[Requested, None]],
        frames_of: Callable[[Requested], AsyncGenerator[Frame, None]],
        logger: logging.Logger,
    ) -> None:
        self._client, self._answerer, self._requests, self._frames_of = client, answerer, requests, frames_of
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until cancelled."""
        try:
            while True:
                try:
                    async with aclosing(self._requests()) as requests:
                        async for request in requests:
                            self._begin(request)
                except ApiError as error:
                    self._logger.warning("sessions: %s", error)
                await asyncio.sleep(_AGAIN_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, request: Requested) -> None:
        if len(self._tasks) >= _MOST:
            self._logger.warning("%s: session refused: %d are open", request.subject, _MOST)
            return
        task = asyncio.create_task(self._answer(request), name=f"session of {request.subject}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: Requested) -> None:
        try:
            async with aclosing(_with_errors(self._frames_of(request))) as frames:
                await self._client.answer_session(self._answerer, request.number, frames)
        except ApiError as error:
            self._logger.debug("%s: its session ended: %s", request.subject, error)  # the user has gone
        except Exception as error:  # noqa: BLE001 - one session's
            self._logger.warning("%s: its session ended: %s", request.subject, reason_of(error))


async def _with_errors(frames: AsyncGenerator[Frame, None]) -> AsyncGenerator[Frame, None]:
    """Yield frames; an error becomes the last one."""
    async with aclosing(frames):
        try:
            async for frame in frames:
                yield frame
        except Exception as error:  # noqa: BLE001 - one session's
            yield error_frame(reason_of(error))
