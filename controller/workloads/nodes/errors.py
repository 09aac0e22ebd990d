"""Errors of a node's manager, and any error in one line."""

from __future__ import annotations

from typing import Final

from controller.common.errors import ControllerError

_LONGEST: Final = 400


class NodeError(ControllerError):
    """A node's manager cannot run with its settings; one line that names the node, the file or the key."""


def reason_of(error: BaseException) -> str:
    """Return an error as one printable line, preceded by its type if the error was unforeseen."""
    text = str(error) if isinstance(error, ControllerError) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:_LONGEST]
