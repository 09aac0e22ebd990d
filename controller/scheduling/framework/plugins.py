"""Policies by name: entry points of installed packages, including this one's (pyproject.toml)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from controller.common.errors import SchedulerError
from dataplane.config.reading import warn_of_renamed
from dataplane.config.written import plain_numbers

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of subject: what it and its candidates are called, and the entry-point group of its policies.

    An entry's name is the policy's, its object the class.
    """

    noun: str
    candidate: str
    profile: str
    group: str

    @property
    def plural(self) -> str:
        """Several subjects."""
        return f"{self.noun}s"


PODS: Final = Kind("pod", "node", "profile", "millrace.policies.pods")
TASKS: Final = Kind("task", "option", "task profile", "millrace.policies.tasks")
KINDS: Final = (PODS, TASKS)
_OLD_GROUP: Final = "millrace.schedulers.policies"
"""Entry-point group before 0.3, whose policies may be for pods or for tasks."""


def make_policy(kind: Kind, name: str, settings: Mapping[str, object], methods: tuple[str, ...]) -> Any:  # noqa: ANN401 - a policy
    """Return a policy for a kind of subject that has these methods, constructed with its settings.

    Raise SchedulerError, in one line, for an unknown name, a plug-in that does not load or lacks something, and for
    invalid settings.
    """
    policy_class = _load(kind, name)
    settings_kind = getattr(policy_class, "Settings", None)
    if not (isinstance(settings_kind, type) and issubclass(settings_kind, msgspec.Struct)):
        raise SchedulerError(f"policy {name}: has no Settings")
    where = f"policy {name}: settings"

    def refuse(problem: str, path: str) -> SchedulerError:
        return SchedulerError(f"{where}: {problem} - at `{path}`")

    renamed: dict[str, str] = {}
    plain = plain_numbers(dict(settings), settings_kind, refuse, renamed)
    try:
        policy = policy_class(msgspec.convert(plain, settings_kind))
    except msgspec.ValidationError as error:
        raise SchedulerError(f"{where}: {error}") from None
    except Exception as error:  # a plug-in may raise anything
        raise SchedulerError(f"policy {name}: cannot be built: {_line(error)}") from error
    warn_of_renamed(where, renamed)
    if missing := [method for method in methods if not hasattr(policy, method)]:
        raise SchedulerError(f"policy {name}: has no {', '.join(missing)}, so it cannot be used here")
    return policy


def known_policies() -> tuple[str, ...]:
    """Return the names of all policies."""
    groups = (*(kind.group for kind in KINDS), _OLD_GROUP)
    return tuple(sorted({entry.name for group in groups for entry in _entries(group)}))


def _load(kind: Kind, name: str) -> Callable[..., Any]:
    """Return the class registered under a name for a kind of subject."""
    entries = [entry for entry in _entries(kind.group) if entry.name == name]
    old = [entry for entry in _entries(_OLD_GROUP) if entry.name == name]
    if not entries + old:
        mine = (*_entries(kind.group), *_entries(_OLD_GROUP))
        names = ", ".join(sorted(entry.name for entry in mine)) or "none, as no package with entry points is installed"
        for other in KINDS:
            if other != kind and any(entry.name == name for entry in _entries(other.group)):
                raise SchedulerError(f"policy {name} is for {other.plural}; those for {kind.plural} are {names}")
        raise SchedulerError(f"unknown policy {name!r}; known: {names}")
    if len(entries + old) > 1:
        values = " and ".join(sorted(entry.value for entry in entries + old))
        raise SchedulerError(f"policy {name}: registered by {values}")
    (entry,) = entries + old
    if old:
        _warn(entry)
    try:
        loaded: Callable[..., Any] = entry.load()
    except Exception as error:  # a plug-in may raise anything
        raise SchedulerError(f"policy {name}: {entry.value} does not load: {_line(error)}") from error
    return loaded


def _entries(group: str) -> tuple[EntryPoint, ...]:
    return _entries_on(group, tuple(sys.path))


@cache
def _entries_on(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001 - part of the key
    """Return the entry points of a group; a scan of all installed packages takes some 20 ms."""
    return tuple(entry_points(group=group))


@cache
def _warn(entry: EntryPoint) -> None:
    LOGGER.warning(
        "policy %s: the entry-point group %s is now %s or %s",
        entry.name,
        _OLD_GROUP,
        PODS.group,
        TASKS.group,
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
