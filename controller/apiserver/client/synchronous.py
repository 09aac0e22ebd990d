"""The client for programs without asyncio; the twin of `asynchronous`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator, Sequence
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
from controller.apiserver.sessions.values import ExecAnswer, ExecRequest
from controller.apiserver.tokens import NewToken, TokenRequest, TokenShown
from controller.common.errors import ApiError, TooManyError, UnavailableError
from dataplane.rpc.backoff import Backoff

T = TypeVar("T")


class SyncApiClient:
    """Client of the API server; use it as a context manager. Raises ApiError, each with one line."""

    def __init__(
        self,
        place: Place | None = None,
        *,
        tries: int = calls.TRIES,
        rng: random.Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
        answer_s: float = calls.ANSWER_S,
    ) -> None:
        self.place = place or find_place()
        self._tries, self._rng, self.sleep = tries, rng or random.Random(), sleep
        transport = httpx.HTTPTransport(uds=self.place.socket, verify=calls.verify_of(self.place))
        self._http = httpx.Client(transport=transport, **calls.options_of(self.place, answer_s))

    def of(self, resource: type[R]) -> SyncResources[R]:
        """Return the resources of a type: `client.of(Pod)`."""
        return SyncResources(self, resource)

    def bind(self, request: BindingRequest) -> PlacementAnswer:
        """Place pods, all or none; raise StaleError if something has changed or does not fit."""
        return self.ask(calls.writing("POST", "/v1/bindings", request), PlacementAnswer)

    def bind_each(self, requests: Sequence[BindingRequest]) -> list[PlacementAnswer | ApiError]:
        """Place the pods of each request, all or none; return an answer or a refusal per request, in order.

        At most `batches.MOST_REQUESTS`. If all requests have decisions, the batch is retried until it is answered.
        """
        call = calls.batch("/v1/batches/bindings", BindingBatch(requests=tuple(requests)), requests)
        return [calls.answer_of(outcome) for outcome in (self.ask(call, BindingOutcomes)).outcomes]

    def dispatch_each(self, requests: Sequence[DispatchRequest]) -> list[DispatchAnswer | ApiError]:
        """Dispatch the tasks of each request to centres, all or none; otherwise like `bind_each`."""
        call = calls.batch("/v1/batches/dispatches", DispatchBatch(requests=tuple(requests)), requests)
        return [calls.answer_of(outcome) for outcome in (self.ask(call, DispatchOutcomes)).outcomes]

    def release(self, request: ReleaseRequest) -> PlacementAnswer:
        """Release the resources that pods hold, all or none."""
        return self.ask(calls.writing("POST", "/v1/releases", request), PlacementAnswer)

    def evict(self, request: EvictionRequest) -> PlacementAnswer:
        """Evict pods, all or none; raise StaleError for a pod that was rebound."""
        return self.ask(calls.writing("POST", "/v1/evictions", request), PlacementAnswer)

    def dispatch(self, request: DispatchRequest) -> DispatchAnswer:
        """Dispatch tasks to centres, all or none; raise StaleError if something has changed or does not fit."""
        return self.ask(calls.writing("POST", "/v1/dispatches", request), DispatchAnswer)

    def pick(self, request: Pick) -> DispatchAnswer:
        """Pick the units for a task that left the choice to its centre; raise StaleError if they are not free."""
        return self.ask(calls.writing("POST", "/v1/picks", request), DispatchAnswer)

    def complete(self, request: CompletionRequest) -> DispatchAnswer:
        """Complete tasks and release their units, all or none; raise StaleError for a task that was redispatched."""
        return self.ask(calls.writing("POST", "/v1/completions", request), DispatchAnswer)

    def share_units(
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
        return self.ask(calls.writing("PUT", f"/v1/unitpools/{calls.segment(pool)}/shares", body, expected), UnitPool)

    def report_units(self, pool: str, status: HolderStatus) -> UnitPool:
        """Report on a holder's units; return the pool with the holder's current share."""
        path = f"/v1/unitpools/{calls.segment(pool)}/holders/{calls.segment(status.holder)}"
        return self.ask(calls.writing("PUT", path, status), UnitPool)

    def health(self) -> HealthAnswer:
        """Return the server's health and the state of its storage."""
        return self.ask(Call("GET", "/healthz"), HealthAnswer)

    def create_token(self, request: TokenRequest) -> NewToken:
        """Make a token."""
        return self.ask(calls.writing("POST", "/v1/tokens", request), NewToken)

    def new_code(self, *, viewer: bool = False) -> NewCode:
        """Make a code to open the operators' page with; `viewer`: for somebody who may only look."""
        return self.ask(calls.writing("POST", "/v1/view/codes", CodeRequest(viewer)), NewCode)

    def tokens(self) -> tuple[TokenShown, ...]:
        """Return all tokens, without their secrets."""
        return self.ask(Call("GET", "/v1/tokens"), TokenList).items

    def revoke_token(self, number: str) -> TokenShown:
        """Revoke a token."""
        return self.ask(Call("DELETE", f"/v1/tokens/{calls.segment(number)}"), TokenShown)

    def logs(
        self, pod: str, container: str | None = None, *, follow: bool = False, tail: int | None = None
    ) -> Generator[Frame, None, None]:
        """Yield a container's log with keep-alives, then the frame that ends it."""
        return sessions.sync_frames_in(
            self.place, self._http, sessions.logs_call(pod, container, follow=follow, tail=tail)
        )

    def task_logs(
        self, task: str, *, follow: bool = False, tail: int | None = None, errors_only: bool = False
    ) -> Generator[Frame, None, None]:
        """Yield the output and errors of a task's current attempt with keep-alives, then the frame that ends them."""
        call = sessions.task_logs_call(task, follow=follow, tail=tail, errors_only=errors_only)
        return sessions.sync_frames_in(self.place, self._http, call)

    def exec(self, pod: str, request: ExecRequest) -> str:
        """Run a command in a container; return the number to read its output with, at once."""
        return self.ask(calls.writing("POST", f"/v1/pods/{calls.segment(pod)}/exec", request), ExecAnswer).number

    def exec_output(self, number: str) -> Generator[Frame, None, None]:
        """Yield a command's output with keep-alives, then the frame that ends it."""
        return sessions.sync_frames_in(self.place, self._http, Call("GET", f"/v1/execs/{number}/output"))

    def write_input(self, number: str, frames: Iterator[Frame]) -> None:
        """Write a command's input, with keep-alives; raise GoneError once the command has ended."""
        sessions.sync_send_frames(self.place, self._http, f"/v1/execs/{number}/input", frames)

    def set_nic_mode(self, node: str, request: NicModeRequest) -> NicModeAnswer:
        """Change the mode of a polled queue on a node; return what is in force."""
        return self.ask(sessions.nic_mode_call(node, request), NicModeAnswer)

    def ask(self, call: Call, schema: type[T]) -> T:
        """Return the decoded answer to a request."""
        return calls.answered(self.place, self.answer(call), schema)

    def answer(self, call: Call) -> httpx.Response:
        """Return the successful response to a request."""
        backoff = self.backoff()
        for left in range(self._tries - 1, -1, -1):
            cause: httpx.HTTPError | None = None
            try:
                response = self._http.request(
                    call.method, call.path, params=call.parameters, content=call.body, headers=call.headers
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
            self.sleep(max(backoff.next_s(), error.wait_s if isinstance(error, TooManyError) else 0))
        raise UnavailableError(f"API at {self.place.address}: retries are exhausted")

    def lines(self, call: Call) -> Generator[str, None, None]:
        """Yield the lines of one watch."""
        timeout = httpx.Timeout(calls.SILENCE_S, connect=calls.CONNECT_S)
        asked = self._http.stream(call.method, call.path, params=call.parameters, timeout=timeout)
        with calls.telling(self.place), asked as response:
            if not response.is_success:
                response.read()
                calls.check(self.place, response)
            yield from response.iter_lines()

    def backoff(self) -> Backoff:
        """Return the delay between tries."""
        return Backoff(calls.FIRST_WAIT_NS, calls.LONGEST_WAIT_NS, self._rng)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncResources(Generic[R]):
    """The resources of one type."""

    def __init__(self, client: SyncApiClient, resource: type[R]) -> None:
        self._client, self.kind = client, calls.kind_of(resource)
        self._path = f"/v1/{self.kind.plural}"

    def get(self, name: str) -> R:
        """Return a resource; raise NotFoundError."""
        return self._client.ask(Call("GET", f"{self._path}/{calls.segment(name)}"), self.kind.type)

    def list(self, *, labels: str = "", fields: str = "") -> Listing[R]:
        """Return all selected resources, as of one revision."""
        items: list[R] = []
        page: str | None = None
        schema: Any = ResourceList[self.kind.type]  # type: ignore[name-defined]
        while True:
            answer = self._client.answer(calls.listing(self.kind, labels, fields, page))
            listed = calls.answered(self._client.place, answer, schema)
            items += listed.items
            page = listed.more
            if page is None:
                return Listing(tuple(items), listed.revision, calls.age_of(answer))

    def create(self, resource: R) -> R:
        """Create a resource; raise StaleError if it exists."""
        return self._client.ask(calls.writing("POST", self._path, resource), self.kind.type)

    def replace(self, resource: R) -> R:
        """Write labels and spec if the resource is still at its `metadata.revision` (0: any revision)."""
        return self._put(resource, "")

    def replace_status(self, resource: R) -> R:
        """Write the status under the same condition as `replace`."""
        return self._put(resource, "/status")

    def delete(self, name: str, *, expected: int | None = None) -> R:
        """Delete a resource and return its last state."""
        return self._client.ask(
            Call("DELETE", f"{self._path}/{calls.segment(name)}", expected=expected), self.kind.type
        )

    def watch(self, after: int | None = None, *, labels: str = "", fields: str = "") -> Generator[Event[R], None, None]:
        """Yield events after a revision, reconnecting as needed; includes bookmarks.

        Raise GoneError if the revision was compacted.
        """
        backoff, progress = self._client.backoff(), WatchProgress(after)
        while True:
            try:
                for line in self._client.lines(calls.watching(self.kind, labels, fields, progress.after)):
                    event = calls.event_of(self.kind, line)
                    # Any line, even a bookmark, proves that the server answers.
                    backoff.reset()
                    if progress.is_new(event):
                        yield event
            except (UnavailableError, TooManyError):
                pass
            self._client.sleep(backoff.next_s())

    def _put(self, resource: R, part: str) -> R:
        path = f"{self._path}/{calls.segment(resource.metadata.name)}{part}"
        return self._client.ask(calls.writing("PUT", path, resource), self.kind.type)
