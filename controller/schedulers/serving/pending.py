"""Who waits to be placed: a bounded queue by priority, with a backoff for who was refused. It has no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.schedulers.settings import QueueSettings


@dataclass(slots=True)
class _Waiting:
    priority: int
    since_ns: int
    order: int
    due_ns: int
    tried_ns: int | None = None
    refusals: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return (-self.priority, self.order)


class PendingQueue:
    """Pods and groups by name. `refused_full` counts those that there was no room for."""

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.refused_full = 0
        self._waiting: dict[str, _Waiting] = {}
        self._orders = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    @property
    def has_room(self) -> bool:
        """Whether one more may wait."""
        return len(self._waiting) < self.settings.most

    def put(self, name: str, priority: int, now_ns: int) -> bool:
        """Let one wait that is due at once, or note its priority; return False, and count it, if there is no room."""
        if (known := self._waiting.get(name)) is not None:
            known.priority = priority
            return True
        if not self.has_room:
            self.refused_full += 1
            return False
        self._orders += 1
        self._waiting[name] = _Waiting(priority, now_ns, self._orders, now_ns)
        return True

    def first_due(self, now_ns: int) -> str | None:
        """Return who is to be decided about now: of those that are due the one with the highest priority."""
        due = ((one.key, name) for name, one in self._waiting.items() if one.due_ns <= now_ns)
        return min(due, default=(None, None))[1]

    def next_due_ns(self) -> int | None:
        """Return when the next one is due, None if nobody waits."""
        return min((one.due_ns for one in self._waiting.values()), default=None)

    def refused(self, name: str, now_ns: int) -> None:
        """Note that one was refused: it waits longer each time, unless `wake` comes."""
        if (one := self._waiting.get(name)) is not None:
            one.tried_ns = now_ns
            one.due_ns = now_ns + self.settings.longest_wait_ns
            one.refusals += 1

    def again(self, name: str, now_ns: int) -> None:
        """Note that what one was to get had gone to another: it is looked at again after the shortest wait."""
        if (one := self._waiting.get(name)) is not None:
            one.tried_ns = now_ns
            one.due_ns = now_ns + self.settings.first_wait_ns

    def wake(self, now_ns: int) -> None:
        """Have all looked at again, each once its wait is over: something has changed."""
        for one in self._waiting.values():
            wait_ns = 0
            if one.tried_ns is not None:
                doubled = self.settings.first_wait_ns << min(max(one.refusals - 1, 0), 40)
                wait_ns = one.tried_ns + min(doubled, self.settings.longest_wait_ns)
            one.due_ns = min(one.due_ns, max(wait_ns, now_ns))

    def forget(self, name: str) -> None:
        """Take one out."""
        self._waiting.pop(name, None)

    def keep(self, names: Iterable[str]) -> None:
        """Take out all but these."""
        kept = set(names)
        for name in [name for name in self._waiting if name not in kept]:
            del self._waiting[name]
