"""The asyncio client."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx

from controller.apiserver.client import calls, sessions
from controller.apiserver.client.calls import Call
from controller.apiserver.client.place import Place, find_place
from controller.apiserver.client.resuming import WatchProgress
from controller.apiserver.client.values import Event, Listing
from controller.apiserver.registry.batches import BindingBatch, BindingOutcomes, DispatchBatch, DispatchOutcomes
from controller.apiserver.registry.completions import CompletionRequest
from controller.apiserver.registry.dispatches import DispatchRequest, Pick
from controller.apiserver.registry.evictions import EvictionRequest
from controller.apiserver.registry.placements import BindingRequest, NewDecision, PlacementAnswer, ReleaseRequest
from controller.apiserver.registry.pools.shares import UnitShares
from controller.apiserver.registry.task_state import DispatchAnswer
from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.base import R
from controller.apiserver.resources.nic import NicModeAnswer, NicModeRequest
from controller.apiserver.resources.unit_pool import HolderStatus, UnitHolding
from controller.apiserver.server.answers import CodeRequest, HealthAnswer, NewCode, ResourceList, TokenList
from controller.apiserver.sessions.frames import Frame
from controller.apiserver.sessions.values import (
    Answerer,
    AnswererKind,
    ExecAnswer,
    ExecRequest,
    NodeSessionRequest,
    TaskSessionRequest,
)
from controller.apiserver.storage.fences import HEADER as FENCE_HEADER
from controller.apiserver.tokens import NewToken, TokenRequest, TokenShown
from controller.common.errors import ApiError, GoneError, NotFoundError, TooManyError, UnavailableError
from dataplane.rpc.backoff import Backoff

T = TypeVar("T")


class ApiClient:
    """Client of the API server; use it as an async context manager. Raises ApiError, each with one line.

    Requests that cannot have had an effect are retried, up to `tries` times; `on_wait` is called before each wait of a
    watch.
    """

    def __init__(
        self,
        place: Place | None = None,
        *,
        tries: int = calls.TRIES,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
        fence: Callable[[], str] | None = None,
    ) -> None:
        """`fence`, of a caller in a pair, is asked before each write for its lease and token, and may raise."""
        self._fence = fence
        self.place = place or find_place()
        self._tries, self._rng, self.sleep = tries, rng or random.Random(), sleep
        self.on_wait = on_wait
        verify = calls.verify_of(self.place)
        transport = httpx.AsyncHTTPTransport(uds=self.place.socket, verify=verify, limits=calls.LIMITS)
        self._http = httpx.AsyncClient(transport=transport, **calls.options_of(self.place))

    def of(self, resource: type[R]) -> Resources[R]:
        """Return the resources of a type: `client.of(Pod)`."""
        return Resources(self, resource)

    async def bind(self, request: BindingRequest) -> PlacementAnswer:
        """Place pods, all or none; raise StaleError if something has changed or does not fit."""
        return await self.ask(calls.writing("POST", "/v1/bindings", request), PlacementAnswer)

    async def bind_each(self, requests: Sequence[BindingRequest]) -> list[PlacementAnswer | ApiError]:
        """Place the pods of each request, all or none; return an answer or a refusal per request, in order.

        At most `batches.MOST_REQUESTS`. If all requests have decisions, the batch is retried until it is answered.
        """
        call = calls.batch("/v1/batches/bindings", BindingBatch(requests=tuple(requests)), requests)
        return [calls.answer_of(outcome) for outcome in (await self.ask(call, BindingOutcomes)).outcomes]

    async def dispatch_each(self, requests: Sequence[DispatchRequest]) -> list[DispatchAnswer | ApiError]:
        """Dispatch the tasks of each request to centres, all or none; otherwise like `bind_each`."""
        call = calls.batch("/v1/batches/dispatches", DispatchBatch(requests=tuple(requests)), requests)
        return [calls.answer_of(outcome) for outcome in (await self.ask(call, DispatchOutcomes)).outcomes]

    async def release(self, request: ReleaseRequest) -> PlacementAnswer:
        """Release the resources that pods hold, all or none."""
        return await self.ask(calls.writing("POST", "/v1/releases", request), PlacementAnswer)

    async def evict(self, request: EvictionRequest) -> PlacementAnswer:
        """Evict pods, all or none; raise StaleError for a pod that was rebound."""
        return await self.ask(calls.writing("POST", "/v1/evictions", request), PlacementAnswer)

    async def dispatch(self, request: DispatchRequest) -> DispatchAnswer:
        """Dispatch tasks to centres, all or none; raise StaleError if something has changed or does not fit."""
        return await self.ask(calls.writing("POST", "/v1/dispatches", request), DispatchAnswer)

    async def pick(self, request: Pick) -> DispatchAnswer:
        """Pick the units for a task that left the choice to its centre; raise StaleError if they are not free."""
        return await self.ask(calls.writing("POST", "/v1/picks", request), DispatchAnswer)

    async def complete(self, request: CompletionRequest) -> DispatchAnswer:
        """Complete tasks and release their units, all or none; raise StaleError for a task that was redispatched."""
        return await self.ask(calls.writing("POST", "/v1/completions", request), DispatchAnswer)

    async def share_units(
        self,
        pool: str,
        shares: tuple[UnitHolding, ...],
        *,
        expected: int | None = None,
        shares_version: int | None = None,
        decision: NewDecision | None = None,
    ) -> UnitPool:
        """Set the holders of a pool's units, given the expected pool revision or shares version."""
        body = UnitShares(shares=shares, shares_version=shares_version, decision=decision)
        return await self.ask(
            calls.writing("PUT", f"/v1/unitpools/{calls.segment(pool)}/shares", body, expected), UnitPool
        )

    async def report_units(self, pool: str, status: HolderStatus) -> UnitPool:
        """Report on a holder's units; return the pool with the holder's current share."""
        path = f"/v1/unitpools/{calls.segment(pool)}/holders/{calls.segment(status.holder)}"
        return await self.ask(calls.writing("PUT", path, status), UnitPool)

    async def health(self) -> HealthAnswer:
        """Return the server's health and the state of its storage."""
        return await self.ask(Call("GET", "/healthz"), HealthAnswer)

    async def create_token(self, request: TokenRequest) -> NewToken:
        """Make a token."""
        return await self.ask(calls.writing("POST", "/v1/tokens", request), NewToken)

    async def new_code(self, *, viewer: bool = False) -> NewCode:
        """Make a code to open the operators' page with; `viewer`: for somebody who may only look."""
        return await self.ask(calls.writing("POST", "/v1/view/codes", CodeRequest(viewer)), NewCode)

    async def tokens(self) -> tuple[TokenShown, ...]:
        """Return all tokens, without their secrets."""
        return (await self.ask(Call("GET", "/v1/tokens"), TokenList)).items

    async def revoke_token(self, number: str) -> TokenShown:
        """Revoke a token."""
        return await self.ask(Call("DELETE", f"/v1/tokens/{calls.segment(number)}"), TokenShown)

    def logs(
        self, pod: str, container: str | None = None, *, follow: bool = False, tail: int | None = None
    ) -> AsyncGenerator[Frame, None]:
        """Yield a container's log, then the frame that ends it."""
        return sessions.frames_in(self.place, self._http, sessions.logs_call(pod, container, follow=follow, tail=tail))

    def task_logs(
        self, task: str, *, follow: bool = False, tail: int | None = None, errors_only: bool = False
    ) -> AsyncGenerator[Frame, None]:
        """Yield the output and errors of a task's current attempt, then the frame that ends them."""
        call = sessions.task_logs_call(task, follow=follow, tail=tail, errors_only=errors_only)
        return sessions.frames_in(self.place, self._http, call)

    async def exec(self, pod: str, request: ExecRequest) -> str:
        """Run a command in a container; return the number to read its output with, at once."""
        return (
            await self.ask(calls.writing("POST", f"/v1/pods/{calls.segment(pod)}/exec", request), ExecAnswer)
        ).number

    def exec_output(self, number: str) -> AsyncGenerator[Frame, None]:
        """Yield a command's output, then the frame that ends it."""
        return sessions.frames_in(self.place, self._http, Call("GET", f"/v1/execs/{number}/output"))

    async def write_input(self, number: str, frames: AsyncIterator[Frame]) -> None:
        """Write a command's input as it arrives; raise GoneError once the command has ended."""
        await sessions.send_frames(self.place, self._http, f"/v1/execs/{number}/input", frames)

    def node_sessions(self, node: str) -> AsyncGenerator[NodeSessionRequest, None]:
        """Yield the sessions for a node to answer, reconnecting as needed."""
        return self._session_requests(Answerer(AnswererKind.NODE, node), sessions.node_request_of)

    def centre_sessions(self, centre: str) -> AsyncGenerator[TaskSessionRequest, None]:
        """Yield the sessions for a centre to answer, reconnecting as needed."""
        return self._session_requests(Answerer(AnswererKind.CENTRE, centre), sessions.task_request_of)

    async def _session_requests(
        self, answerer: Answerer, read: Callable[[str], sessions.Requested | None]
    ) -> AsyncGenerator[sessions.Requested, None]:
        backoff, call = self.backoff(), Call("GET", sessions.path_of(answerer))
        while True:
            try:
                async with aclosing(self.lines(call)) as lines:
                    async for line in lines:
                        backoff.reset()
                        request = read(line)
                        if request is not None:
                            yield request
                # A stream that ends without an error is reopened after a wait, like one that fails.
                error: ApiError = UnavailableError(f"API at {self.place.address}: the server ended the session stream")
            except (UnavailableError, TooManyError, NotFoundError) as problem:
                error = problem
            await self.wait(error, backoff.next_s())

    async def answer_session(self, answerer: Answerer, number: str, frames: AsyncIterator[Frame]) -> None:
        """Write a node's or centre's answer up to its last frame; raise ApiError if the requester has gone."""
        path = f"{sessions.path_of(answerer)}/{calls.segment(number)}/output"
        await sessions.send_frames(self.place, self._http, path, frames)

    async def set_nic_mode(self, node: str, request: NicModeRequest) -> NicModeAnswer:
        """Change the mode of a polled queue on a node; return what is in force."""
        return await self.ask(sessions.nic_mode_call(node, request), NicModeAnswer)

    def session_input(self, node: str, number: str) -> AsyncGenerator[Frame, None]:
        """Yield a command's input; it ends, with or without an error frame, once nobody needs the command any more."""
        return sessions.frames_in(self.place, self._http, Call("GET", f"/v1/nodes/{node}/sessions/{number}/input"))

    async def ask(self, call: Call, schema: type[T]) -> T:
        """Return the decoded answer to a request."""
        return calls.answered(self.place, await self.answer(call), schema)

    async def answer(self, call: Call) -> httpx.Response:
        """Return the successful response to a request."""
        backoff = self.backoff()
        for left in range(self._tries - 1, -1, -1):
            cause: httpx.HTTPError | None = None
            try:
                headers = call.headers
                if self._fence is not None and call.method != "GET":
                    headers[FENCE_HEADER] = self._fence()
                response = await self._http.request(
                    call.method, call.path, params=call.parameters, content=call.body, headers=headers
                )
                calls.check(self.place, response)
            except httpx.HTTPError as problem:
                cause, error = problem, calls.unreachable(self.place, problem)
            except httpx.InvalidURL as problem:
                raise calls.unnameable(problem) from None
            except ApiError as problem:
                error = problem  # type: ignore[assignment]
            else:
                return response
            if not left or not calls.may_retry(call, error, cause):
                raise error from None
            # Never come back earlier than the server's Retry-After asks for.
            await self.sleep(max(backoff.next_s(), error.wait_s if isinstance(error, TooManyError) else 0))
        raise UnavailableError(f"API at {self.place.address}: retries are exhausted")

    async def lines(self, call: Call) -> AsyncGenerator[str, None]:
        """Yield the lines of one watch."""
        timeout = httpx.Timeout(calls.SILENCE_S, connect=calls.CONNECT_S)
        with calls.telling(self.place):
            async with self._http.stream(call.method, call.path, params=call.parameters, timeout=timeout) as response:
                if not response.is_success:
                    await response.aread()
                    calls.check(self.place, response)
                async for line in response.aiter_lines():
                    yield line

    def backoff(self) -> Backoff:
        """Return the delay between tries."""
        return Backoff(calls.FIRST_WAIT_NS, calls.LONGEST_WAIT_NS, self._rng)

    async def wait(self, error: ApiError, seconds: float) -> None:
        """Wait before retrying a watch, and report why."""
        if self.on_wait is not None:
            self.on_wait(f"waiting {seconds:.1f} s: {error}")
        await self.sleep(seconds)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Resources(Generic[R]):
    """The resources of one type; select with `labels="a=b,!c"`, `fields="node=h1"`."""

    def __init__(self, client: ApiClient, resource: type[R]) -> None:
        self._client, self.kind = client, calls.kind_of(resource)
        self._path = f"/v1/{self.kind.plural}"

    async def get(self, name: str) -> R:
        """Return a resource; raise NotFoundError."""
        return await self._client.ask(Call("GET", f"{self._path}/{calls.segment(name)}"), self.kind.type)

    async def list(self, *, labels: str = "", fields: str = "") -> Listing[R]:
        """Return all selected resources, as of one revision."""
        items: list[R] = []
        page: str | None = None
        schema: Any = ResourceList[self.kind.type]  # type: ignore[name-defined]
        while True:
            answer = await self._client.answer(calls.listing(self.kind, labels, fields, page))
            listed = calls.answered(self._client.place, answer, schema)
            items += listed.items
            page = listed.more
            if page is None:
                return Listing(tuple(items), listed.revision, calls.age_of(answer))

    async def create(self, resource: R) -> R:
        """Create a resource; raise StaleError if it exists."""
        return await self._client.ask(calls.writing("POST", self._path, resource), self.kind.type)

    async def replace(self, resource: R) -> R:
        """Write labels and spec if the resource is still at its `metadata.revision` (0: any revision)."""
        return await self._put(resource, "")

    async def replace_status(self, resource: R) -> R:
        """Write the status under the same condition as `replace`."""
        return await self._put(resource, "/status")

    async def delete(self, name: str, *, expected: int | None = None) -> R:
        """Delete a resource and return its last state."""
        return await self._client.ask(
            Call("DELETE", f"{self._path}/{calls.segment(name)}", expected=expected), self.kind.type
        )

    async def watch(
        self, after: int | None = None, *, labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Event[R], None]:
        """Yield events after a revision, reconnecting as needed; includes bookmarks.

        Raise GoneError if the revision was compacted: list again, or use `follow`.
        """
        backoff, progress = self._client.backoff(), WatchProgress(after)
        while True:
            try:
                call = calls.watching(self.kind, labels, fields, progress.after)
                async with aclosing(self._client.lines(call)) as lines:
                    async for line in lines:
                        event = calls.event_of(self.kind, line)
                        # Any line, even a bookmark, proves that the server answers.
                        backoff.reset()
                        if progress.is_new(event):
                            yield event
                error: ApiError = UnavailableError(f"API at {self._client.place.address}: the server ended the watch")
            except (UnavailableError, TooManyError) as problem:
                error = problem
            await self._client.wait(error, backoff.next_s())

    async def follow(self, *, labels: str = "", fields: str = "") -> AsyncGenerator[Listing[R] | Event[R], None]:
        """Yield all selected resources, then their events; list again if events were lost."""
        while True:
            listing = await self._listed(labels, fields)
            yield listing
            try:
                async with aclosing(self.watch(listing.revision, labels=labels, fields=fields)) as events:
                    async for event in events:
                        yield event
            except GoneError as error:
                await self._client.wait(error, 0)

    async def _listed(self, labels: str, fields: str) -> Listing[R]:
        """Return all selected resources, page by page, however long it takes."""
        backoff = self._client.backoff()
        while True:
            try:
                return await self.list(labels=labels, fields=fields)
            except (UnavailableError, TooManyError, GoneError) as error:
                await self._client.wait(error, backoff.next_s())

    async def _put(self, resource: R, part: str) -> R:
        path = f"{self._path}/{calls.segment(resource.metadata.name)}{part}"
        return await self._client.ask(calls.writing("PUT", path, resource), self.kind.type)
