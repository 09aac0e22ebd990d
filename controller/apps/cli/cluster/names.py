"""Completion of kinds and names of resources from the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from dataplane.errors import MillraceError

_ANSWER_S: Final = 2.0
"""Longest wait for an answer: a shell that completes a word must not hang."""
_MOST: Final = 1000
"""Number of names offered at most."""


def complete_kind(incomplete: str) -> list[str]:
    """Return the kinds that begin with the typed text."""
    from controller.apiserver.resources import KINDS  # noqa: PLC0415

    return [kind.plural for kind in KINDS if kind.plural.startswith(incomplete.lower())]


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return names of resources of the kind before it on the command line."""
    return _names(str(context.params.get("kind") or ""), context, incomplete)


def complete_name_of(plural: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer of names of one kind."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        return _names(plural, context, incomplete)

    return complete


def _names(word: str, context: typer.Context, incomplete: str) -> list[str]:
    from controller.apiserver.client import SyncApiClient, find_place  # noqa: PLC0415
    from controller.apiserver.resources import KINDS  # noqa: PLC0415

    if (kind := KINDS.typed(word)) is None:
        return []
    try:
        with SyncApiClient(find_place(context.params.get("address")), tries=1, answer_s=_ANSWER_S) as client:
            resources = client.of(kind.type).list().items
    except (MillraceError, OSError):
        return []  # an error message would end up on the command line that is being typed
    names = (resource.metadata.name for resource in resources)
    return [name for name in names if name.startswith(incomplete)][:_MOST]
