"""Wait until pods run, or are gone; changes are printed on stderr."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.apps.cli.shared.amounts import in_seconds

if TYPE_CHECKING:
    from controller.apiserver.resources import Pod, PodGroup

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is done.")]
Timeout = Annotated[float, typer.Option(parser=in_seconds(0.1, 86_400), help="Maximum time to wait.")]

_GOOD: Final = ("running", "succeeded")


async def until_running(address: str | None, resources: Sequence[Pod | PodGroup], timeout_s: float) -> None:
    """Return once all pods, including those of groups, run or have succeeded; raise ApiError for a failed one."""
    from controller.common.errors import StaleError  # noqa: PLC0415

    names = {resource.metadata.name for resource in resources if resource.kind == "Pod"}
    groups: dict[str, int] = {
        resource.metadata.name: resource.spec.size for resource in resources if resource.kind == "PodGroup"
    }

    def is_done(pods: dict[str, Pod]) -> bool:
        of_groups = {name: [pod for pod in pods.values() if pod.spec.group == name] for name in groups}
        mine = [pods[name] for name in names if name in pods] + [pod for some in of_groups.values() for pod in some]
        failed = next((pod for pod in mine if pod.status.phase.value == "failed"), None)
        if failed is not None:
            why = "; ".join(failed.status.reasons)
            raise StaleError(f"pod {failed.metadata.name} has failed{f': {why}' if why else ''}")
        good = {pod.metadata.name for pod in mine if pod.status.phase.value in _GOOD}
        return names <= good and all(
            sum(pod.metadata.name in good for pod in of_groups[name]) >= size for name, size in groups.items()
        )

    def is_mine(pod: Pod) -> bool:
        return pod.metadata.name in names or pod.spec.group in groups

    await _until(address, is_mine, is_done, timeout_s, "running")


async def until_gone(address: str | None, names: Sequence[str], timeout_s: float) -> None:
    """Return once these pods no longer exist."""
    await _until(
        address,
        lambda pod: pod.metadata.name in names,
        lambda pods: not any(name in pods for name in names),
        timeout_s,
        "gone",
    )


async def _until(
    address: str | None,
    is_mine: Callable[[Pod], bool],
    is_done: Callable[[dict[str, Pod]], bool],
    timeout_s: float,
    what: str,
) -> None:
    """Follow pods until they reach the desired state; raise UnavailableError after `timeout_s`."""
    from controller.apiserver.client import ApiClient, Listing, find_place  # noqa: PLC0415
    from controller.apiserver.resources import Pod  # noqa: PLC0415
    from controller.common.errors import UnavailableError  # noqa: PLC0415

    pods: dict[str, Any] = {}
    printed: dict[str, str] = {}
    try:
        async with (
            asyncio.timeout(timeout_s),
            ApiClient(find_place(address)) as client,
            aclosing(client.of(Pod).follow()) as told,
        ):
            async for event in told:
                if isinstance(event, Listing):
                    pods = {pod.metadata.name: pod for pod in event.items if is_mine(pod)}
                elif event.type.value == "DELETE":
                    pods.pop(event.name, None)
                elif event.resource is not None and is_mine(event.resource):
                    pods[event.name] = event.resource
                _print_changes(pods, printed)
                if is_done(pods):
                    return
    except TimeoutError:
        waiting = ", ".join(sorted(f"{name} is {text}" for name, text in printed.items()))
        raise UnavailableError(f"not {what} after {timeout_s:g} s: {waiting or 'no pods'}") from None


def _print_changes(pods: dict[str, Pod], printed: dict[str, str]) -> None:
    """Print each pod's changes."""
    for name, pod in pods.items():
        where = "" if pod.status.node is None else f" on {pod.status.node}"
        why = f": {'; '.join(pod.status.reasons[:2])}" if pod.status.reasons else ""
        text = f"{'being deleted' if pod.metadata.deleting_ns else pod.status.phase.value}{where}{why}"
        if printed.get(name) != text:
            printed[name] = text
            typer.echo(f"pod {name}: {text}", err=True)
