"""Changes that users make from the page, on their behalf: each is checked by their rights, and in the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import grpc.aio
import msgspec
from litestar import Request, Response, delete, get, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from collectors.events.rules import Rule
from collectors.feed.client import FeedClient
from controller.apiserver.server.gate import WHAT
from controller.apiserver.view.changes.rules import checked_answer, rule_of, rules_answer, without
from controller.apiserver.view.state import NetworkView
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StaleError,
    UnavailableError,
)
from dataplane.config import Strict
from dataplane.errors import AccessError, MillraceError
from dataplane.rpc.access import Principal, Role
from dataplane.rpc.access.permissions import Permission, check, permissions_of
from dataplane.rpc.call_errors import reason_of

Asked = Request[Principal, None, Any]
Text = Annotated[str, msgspec.Meta(max_length=500)]
_RuleName = Annotated[str, QueryParameter(min_length=1, max_length=80, description="The rule's name.")]
_Version = Annotated[str, QueryParameter(max_length=64, description="Version of the rules that is to be changed.")]

_BY_PERMISSION: Final = {
    "acknowledge": Permission.CHANGE,
    "drain": Permission.CHANGE,
    "pin": Permission.CHANGE,
    "rules": Permission.OPERATE,
}
_WRITERS: Final = (Role.ADMIN, Role.SERVICE, Role.USER)
_REFUSALS: Final[dict[grpc.StatusCode, type[ApiError]]] = {
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.FAILED_PRECONDITION: StaleError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidError,
    grpc.StatusCode.PERMISSION_DENIED: ForbiddenError,
}


class NoteRequest(Strict, frozen=True):
    """An acknowledgement's words."""

    text: Text = ""


class RuleText(Strict, frozen=True):
    """A rule as a settings file has it, in YAML; `replaces` is the name of the rule that it takes the place of."""

    text: Annotated[str, msgspec.Meta(max_length=10_000)]
    version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    replaces: Annotated[str, msgspec.Meta(max_length=80)] = ""


def may_of(principal: Principal) -> tuple[str, ...]:
    """Return the changes that a caller may make from the page."""
    granted = permissions_of(principal)
    by_permission = [what for what, needed in _BY_PERMISSION.items() if needed in granted]
    return (*by_permission, *(("pods", "probes") if principal.role in _WRITERS else ()))


def check_may(principal: Principal, what: str, doing: str) -> None:
    """Raise ForbiddenError unless a caller may make a change."""
    try:
        check(principal, _BY_PERMISSION[what], doing)
    except AccessError as error:
        raise ForbiddenError(str(error)) from None


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the refusal of a gRPC service into that of this server."""
    try:
        yield
    except MillraceError as error:
        cause = error.__cause__
        refusal = _REFUSALS.get(cause.code()) if isinstance(cause, grpc.aio.AioRpcError) else None
        if refusal is None or not isinstance(cause, grpc.aio.AioRpcError):
            raise UnavailableError(str(error)) from None
        raise refusal(reason_of(cause)) from None


def event_changes(view: NetworkView, feed: FeedClient) -> list[Any]:
    """Return the routes by which events are acknowledged."""

    @post("/events/{event:str}/note", operation_id="acknowledgeEvent", status_code=200, summary="Acknowledge an event.")
    async def acknowledge(request: Asked, event: FromPath[str], data: JSONBody[NoteRequest]) -> Response[bytes]:
        check_may(request.user, "acknowledge", "Acknowledge")
        rule, subject = view.open_event(event)
        request.scope["state"][WHAT] = f"acknowledge {rule} on {subject}: {data.text}"
        with refusals():
            noted = await feed.acknowledge(rule, subject, data.text, by=request.user.name)
        view.take_note(rule, subject, noted.note)
        return json_response(view.event(rule, subject))

    @delete("/events/{event:str}/note", operation_id="withdrawNote", status_code=200, summary="Withdraw it.")
    async def withdraw(request: Asked, event: FromPath[str]) -> Response[bytes]:
        check_may(request.user, "acknowledge", "Acknowledge")
        rule, subject = view.open_event(event)
        request.scope["state"][WHAT] = f"withdraw the note on {rule} on {subject}"
        with refusals():
            await feed.acknowledge(rule, subject, "", by=request.user.name, withdraw=True)
        view.take_note(rule, subject, None)
        return json_response(view.event(rule, subject))

    return [acknowledge, withdraw]


def rule_changes(view: NetworkView, feed: FeedClient) -> list[Any]:
    """Return the routes by which rules of events are read and changed."""

    @get("/rules", operation_id="viewRules", summary="The rules of events, and how they differ from the settings.")
    async def rules() -> Response[bytes]:
        with refusals():
            return json_response(rules_answer(await feed.rule_state()))

    @post("/rules/check", operation_id="checkRule", status_code=200, summary="Check a rule; nothing changes.")
    async def check_rule(request: Asked, data: JSONBody[RuleText]) -> Response[bytes]:
        check_may(request.user, "rules", "SetRules")
        with refusals():
            state = await feed.rule_state()
        rule = rule_of(data.text)
        replaced(state.rules, rule, data.replaces)
        return json_response(checked_answer(rule, view.snapshot))

    @put("/rules", operation_id="putRule", summary="Add or replace a rule.")
    async def put_rule(request: Asked, data: JSONBody[RuleText]) -> Response[bytes]:
        check_may(request.user, "rules", "SetRules")
        rule = rule_of(data.text)
        request.scope["state"][WHAT] = f"rule {data.replaces or rule.name}: {data.text}"
        with refusals():
            state = await feed.rule_state()
        wanted = replaced(state.rules, rule, data.replaces)
        with refusals():
            state = await feed.set_rules(wanted, by=request.user.name, version=data.version or state.version)
        return json_response(rules_answer(state))

    @delete("/rules", operation_id="deleteRule", status_code=200, summary="Remove a rule.")
    async def delete_rule(request: Asked, name: _RuleName, version: _Version = "") -> Response[bytes]:
        check_may(request.user, "rules", "SetRules")
        request.scope["state"][WHAT] = f"remove rule {name}"
        with refusals():
            state = await feed.rule_state()
        wanted = without(state.rules, name)
        with refusals():
            state = await feed.set_rules(wanted, by=request.user.name, version=version or state.version)
        return json_response(rules_answer(state))

    @post("/rules/restore", operation_id="restoreRule", status_code=200, summary="Take a rule from the settings again.")
    async def restore(request: Asked, name: _RuleName, version: _Version = "") -> Response[bytes]:
        check_may(request.user, "rules", "SetRules")
        request.scope["state"][WHAT] = f"rule {name} as in the settings"
        with refusals():
            state = await feed.rule_state()
        change = next((change for change in state.changes if change.name == name), None)
        if change is None:
            raise NotFoundError(f"rule {name} does not differ from the settings")
        wanted = [rule for rule in state.rules if rule.name != name]
        if change.settings_rule is not None:
            wanted.append(change.settings_rule)
        with refusals():
            state = await feed.set_rules(wanted, by=request.user.name, version=version or state.version)
        return json_response(rules_answer(state))

    return [rules, check_rule, put_rule, delete_rule, restore]


def replaced(rules: tuple[Rule, ...], rule: Rule, replaces: str) -> list[Rule]:
    """Return rules with one in the place of another, or added; raise NotFoundError, StaleError."""
    names = [old.name for old in rules]
    if replaces and replaces not in names:
        raise NotFoundError(f"no rule is named {replaces}: somebody has removed it")
    if rule.name != replaces and rule.name in names:
        raise StaleError(f"a rule named {rule.name} exists: edit that one, or choose another name")
    return [rule if old.name == replaces else old for old in rules] + ([] if replaces else [rule])


def json_response(value: Any) -> Response[bytes]:  # noqa: ANN401 - whatever JSON has
    """Return an answer that no cache keeps."""
    return Response(msgspec.json.encode(value), media_type="application/json", headers={"Cache-Control": "no-store"})
