"""Manifests pasted into the page: what they would change, and the change."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import msgspec
from litestar import Response, post
from litestar.params import JSONBody

from controller.apiserver.manifests import read_text
from controller.apiserver.manifests.planning import Action, Step, step_of
from controller.apiserver.resources import KINDS, Kind, Pod, PodGroup
from controller.apiserver.resources.pod import POD
from controller.apiserver.server.gate import WHAT
from controller.apiserver.service import Service
from controller.apiserver.view.changes.events import Asked, json_response, may_of
from controller.common.errors import ForbiddenError, InvalidError, NotFoundError, StaleError
from dataplane.config import Strict
from dataplane.errors import ConfigError
from dataplane.rpc.access import Principal


class ManifestText(Strict, frozen=True):
    """A manifest, ours or Kubernetes', in YAML or JSON; `dry`: only tell what it would change."""

    text: Annotated[str, msgspec.Meta(max_length=1 << 19)]
    dry: bool = False


def pod_changes(service: Service) -> list[Any]:
    """Return the route by which a manifest is applied."""

    @post("/apply", operation_id="applyManifest", status_code=200, summary="Create or update a manifest's resources.")
    async def apply(request: Asked, data: JSONBody[ManifestText]) -> Response[bytes]:
        principal = request.user
        if "pods" not in may_of(principal):
            raise ForbiddenError(f"{principal.name} ({principal.role.value}) may not apply a manifest")
        steps = await _planned(service, principal, data.text)
        what = ", ".join(f"{step.action.value} {step.scripted.name}" for step in steps)
        request.scope["state"][WHAT] = f"plan: {what}" if data.dry else what
        if not data.dry:
            for step in steps:
                await _write(service, principal, step)
        return json_response({"steps": [_value(step) for step in steps]})

    return [apply]


async def _planned(service: Service, principal: Principal, text: str) -> list[Step]:
    """Return a step for each resource, groups first; raise InvalidError with the line, StaleError."""
    try:
        scripted = read_text(text, "manifest")
    except ConfigError as error:
        raise InvalidError(str(error)) from None
    steps = list[Step]()
    for entry in sorted(scripted, key=lambda entry: _kind(entry.resource) is POD):
        current: Pod | PodGroup | None = None
        with suppress(NotFoundError):
            current, _ = await service.get(principal, _kind(entry.resource), entry.resource.metadata.name)
        steps.append(step_of(entry, current))
    refused = [
        f"line {step.scripted.line}: {step.scripted.name}: {step.reason}"
        for step in steps
        if step.action is Action.REFUSE
    ]
    if refused:
        raise StaleError(f"nothing was written: {'; '.join(refused)}")
    return steps


async def _write(service: Service, principal: Principal, step: Step) -> None:
    kind, resource = _kind(step.resource), step.resource
    if step.action is Action.CREATE:
        await service.create(principal, kind, resource)
    elif step.action is Action.CHANGE:
        await service.replace(principal, kind, resource.metadata.name, resource, expected=resource.metadata.revision)


def _kind(resource: Pod | PodGroup) -> Kind[Any]:
    return KINDS.of_type(type(resource))


def _value(step: Step) -> dict[str, Any]:
    return {"name": step.scripted.name, "action": step.action.value, "changes": list(step.changes)}
