"""Scenes that pages' marks name: the state of the machine when a reader comes to a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.soak.pages import (
    daemon_scenes,
    device_scenes,
    example_scenes,
    fabric_scenes,
    machine_scenes,
    program_scenes,
    service_scenes,
)
from tests.soak.pages.workspace import Workspace


def _as_it_is(workspace: Workspace) -> None:
    """Nothing is needed."""
    del workspace


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "checkout": _as_it_is,
    "online": _as_it_is,
    "quick": _as_it_is,
    **fabric_scenes.SCENES,
    **service_scenes.SCENES,
    **daemon_scenes.SCENES,
    **device_scenes.SCENES,
    **example_scenes.SCENES,
    **machine_scenes.SCENES,
    **program_scenes.SCENES,
}
