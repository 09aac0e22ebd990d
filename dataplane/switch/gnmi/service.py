"""The gNMI core behind gRPC: hands each call over, and turns its error into a gRPC status."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

import grpc
import grpc.aio
from finsy.proto import gnmi, gnmi_grpc

from dataplane.clock import NS_PER_S
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.errors import CallError
from dataplane.rpc.limits import Limits
from dataplane.rpc.service import in_time
from dataplane.switch.gnmi.core import GnmiCore
from dataplane.switch.gnmi.errors import GnmiError, exhausted, invalid
from dataplane.switch.gnmi.subscriptions import Subscription

MAX_QUEUED: Final = 1_024
"""Maximum changes waiting for a subscriber; one that falls further behind is ended."""

LONGEST_WRITE_S: Final = 10.0
"""Longest time a client may leave a message unread once the connection's buffers are full."""

MAX_WAITING: Final = 64
"""Maximum Gets and Sets waiting for their turn."""

SHORTEST_WAIT_S: Final = 0.001
"""Shortest wait of a subscription before it checks again for due work: a clock may stand still."""

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]


class Changes:
    """A bounded queue of changes on their way to one subscriber: filled from any thread, emptied by its task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready, self.lost = asyncio.Event(), asyncio.Event()
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[gnmi.SubscribeResponse] = deque()
        self._is_lost = False

    def put(self, message: gnmi.SubscribeResponse) -> None:
        """Queue a message; one too many discards all waiting ones, as the subscription must end."""
        with self._lock:
            if self._is_lost:
                return
            self._waiting.append(message)
            if len(self._waiting) > MAX_QUEUED:
                self._is_lost = True
                self._waiting.clear()
            event = self.lost if self._is_lost else self.ready
        with suppress(RuntimeError):  # the loop is closed: this server has stopped
            self._loop.call_soon_threadsafe(event.set)

    def take(self) -> list[gnmi.SubscribeResponse]:
        """Return waiting messages, oldest first."""
        self.ready.clear()
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken


class GnmiService(gnmi_grpc.gNMIServicer):
    """Serves gnmi.gNMI on the event loop of another service's server; port reads and writes run in a thread."""

    def __init__(
        self, core: GnmiCore, in_order: Executor | None = None, *, first_message_ns: int = Limits().first_message_ns
    ) -> None:
        """Read and set ports one request at a time by `in_order`; by default in a thread.

        A subscriber that does not send its request within `first_message_ns` is disconnected.
        """
        self._core, self._first_message_ns = core, first_message_ns
        self._stopping = asyncio.Event()
        self._threads = in_order or ThreadPoolExecutor(1, "gnmi-requests")
        self._waiting = 0

    needs: ClassVar[Mapping[str, Permission]] = {
        "/gnmi.gNMI/Capabilities": Permission.READ,
        "/gnmi.gNMI/Get": Permission.READ,
        "/gnmi.gNMI/Set": Permission.OPERATE,
        "/gnmi.gNMI/Subscribe": Permission.READ,
    }

    def register(self, server: grpc.aio.Server) -> str:
        """Register with a server, on the running loop; return the service's name."""
        self._stopping = asyncio.Event()
        gnmi_grpc.add_gNMIServicer_to_server(self, server)
        return "gnmi.gNMI"

    def end_streams(self) -> None:
        """End every subscription with UNAVAILABLE, so that a stopping server need not cancel them."""
        self._stopping.set()

    def close(self) -> None:
        """Wait for running calls; take no more."""
        self._threads.shutdown()

    async def Capabilities(  # noqa: N802
        self,
        request: gnmi.CapabilityRequest,
        context: Context,  # noqa: ARG002
    ) -> gnmi.CapabilityResponse:
        """Return models, encodings and version."""
        return self._core.capabilities(request)

    async def Get(self, request: gnmi.GetRequest, context: Context) -> gnmi.GetResponse:  # noqa: N802
        """Return the selected values."""
        return await self._answer(lambda: self._core.get(request), context)

    async def Set(self, request: gnmi.SetRequest, context: Context) -> gnmi.SetResponse:  # noqa: N802
        """Change ports."""
        return await self._answer(lambda: self._core.set(request, context.peer()), context)

    async def Subscribe(  # type: ignore[override]  # noqa: N802 - the stubs know generators only
        self, requests: AsyncIterator[gnmi.SubscribeRequest], context: Context
    ) -> None:
        """Send subscribed values until the client ends the call, breaks a rule or does not read."""
        changes = Changes(asyncio.get_running_loop())
        subscription = None
        try:
            messages = in_time(requests, self._first_message_ns)
            first = await anext(messages, None)
            if first is None or first.WhichOneof("request") != "subscribe":
                raise invalid("a Subscribe begins with a SubscriptionList")
            subscription = self._core.subscribe(first.subscribe, changes.put)
            await self._serve(_Stream(subscription, changes, context, self._core.now_ns), messages)
        except GnmiError as error:
            await context.abort(error.code, error.message)
        except CallError as error:
            await context.abort(error.code, str(error))
        finally:
            if subscription is not None:
                self._core.close(subscription)

    async def _serve(self, stream: _Stream, requests: AsyncIterator[gnmi.SubscribeRequest]) -> None:
        """Write until the client has everything it requested; raise GnmiError for what ends the stream before."""
        writing = asyncio.create_task(stream.write(requests))
        lost = asyncio.create_task(stream.changes.lost.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        tasks = (writing, lost, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            elif stopping.done():
                raise GnmiError(grpc.StatusCode.UNAVAILABLE, "the switch is stopping")
            else:
                raise exhausted(f"the subscriber is more than {MAX_QUEUED} changes behind")
        except GnmiError as error:
            if error.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self._core.count_slow()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, call: Callable[[], Answer], context: Context) -> Answer:
        try:
            return await self._call(call)
        except GnmiError as error:
            await context.abort(error.code, error.message)
            raise

    async def _call(self, call: Callable[[], Answer]) -> Answer:
        """Run a call to its end in a thread, even if the client gives up."""
        if self._waiting >= MAX_WAITING:
            raise exhausted(f"{MAX_WAITING} requests are already waiting")
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        running.add_done_callback(self._note_done)
        return await asyncio.shield(running)

    def _note_done(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # the client received it, unless it gave up


class _Stream:
    """One Subscribe: writes its subscription's messages to its client."""

    def __init__(
        self, subscription: Subscription, changes: Changes, context: Context, now_ns: Callable[[], int]
    ) -> None:
        self.changes = changes
        self._subscription, self._context, self._now_ns = subscription, context, now_ns

    async def write(self, requests: AsyncIterator[gnmi.SubscribeRequest]) -> None:
        """Write the messages of the subscription's mode; raise GnmiError for a client that breaks a rule."""
        await self._send(self._subscription.initial())
        match self._subscription.mode:
            case gnmi.SubscriptionList.STREAM:
                await self._follow(requests)
            case gnmi.SubscriptionList.POLL:
                async for request in requests:
                    _check_later(request)
                    await self._send(self._subscription.poll())

    async def _follow(self, requests: AsyncIterator[gnmi.SubscribeRequest]) -> None:
        """Write changes as they come and samples as they become due, until cancelled."""
        reading = asyncio.create_task(_refuse(requests))
        try:
            while not (reading.done() and reading.exception() is not None):
                await self._send(self.changes.take())
                await self._send(self._subscription.due())
                await self._wait(reading)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _wait(self, reading: asyncio.Task[None]) -> None:
        """Wait for a change, for due work, or for a client that breaks a rule."""
        due_ns = self._subscription.next_due_ns()
        wait_s = None if due_ns is None else max((due_ns - self._now_ns()) / NS_PER_S, SHORTEST_WAIT_S)
        ready = asyncio.create_task(self.changes.ready.wait())
        waited = (ready,) if reading.done() else (ready, reading)
        try:
            await asyncio.wait(waited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()

    async def _send(self, messages: Iterable[gnmi.SubscribeResponse]) -> None:
        for message in messages:
            try:
                async with asyncio.timeout(LONGEST_WRITE_S):
                    await self._context.write(message)
            except TimeoutError as error:
                raise exhausted(f"the subscriber has read nothing for {LONGEST_WRITE_S:g} s") from error


async def _refuse(requests: AsyncIterator[gnmi.SubscribeRequest]) -> None:
    """Return when a client properly ends its side; raise GnmiError if it sends anything else."""
    async for request in requests:
        _check_later(request)
        raise invalid("Poll on a subscription that is not in mode POLL")


def _check_later(request: gnmi.SubscribeRequest) -> None:
    if request.WhichOneof("request") != "poll":
        raise invalid("a subscription cannot be changed: open another one")
