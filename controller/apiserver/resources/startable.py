"""Words with which no program can start anywhere: refused with the request, not on the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.common.image_names import parse_reference


def image_problem(image: str) -> str | None:
    """Return why an image's name is invalid, None if it is valid."""
    if not image:
        return "is empty"
    try:
        parse_reference(image)
    except ValueError as error:
        return str(error)
    return None


def words_problem(words: Sequence[str]) -> str | None:
    """Return why a command cannot be executed, None if it can."""
    if words and not words[0]:
        return "begins with an empty word"
    if any("\0" in word for word in words):
        return "has a NUL, which no program can receive"
    return None


def environment_problem(environment: Mapping[str, str]) -> str | None:
    """Return why an environment cannot be given to a program, None if it can."""
    for name, value in environment.items():
        if not name or "=" in name:
            return f"{name!r} is not the name of a variable"
        if "\0" in name or "\0" in value:
            return f"{name!r} has a NUL, which no program can receive"
    return None
