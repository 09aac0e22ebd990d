"""Who waits to be placed: a bounded queue by priority, with a backoff for who was refused. It has no clock."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from controller.schedulers.settings import QueueSettings


@dataclass(slots=True)
class _Waiting:
    priority: int
    order: int
    due_ns: int
    tried_ns: int | None = None
    refusals: int = 0
    is_out: bool = False
    """It is being bound, and not to be decided about meanwhile."""
    entry: int = 0
    """Which of its entries in a heap counts: the others are of before."""


class PendingQueue:
    """Pods and groups by name. `refused_full` counts those that there was no room for.

    Those that are due are in a heap by priority and age, the others in one by time; an entry that no longer holds stays
    in its heap until it comes to the top.
    """

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self.refused_full = 0
        self.left_out = 0
        """All that there was no room for, since the beginning."""
        self._waiting: dict[str, _Waiting] = {}
        self._due: list[tuple[int, int, str, int]] = []
        self._later: list[tuple[int, str, int]] = []
        self._refused: set[str] = set()
        """Those that were decided about and wait for a time to come: who is woken."""
        self._orders = 0
        self._entries = 0

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
            if known.priority != priority:
                known.priority = priority
                self._enter(name, known)
            return True
        if not self.has_room:
            self.refused_full += 1
            self.left_out += 1
            return False
        self._orders += 1
        self._waiting[name] = one = _Waiting(priority, self._orders, now_ns)
        self._enter(name, one)
        return True

    def first_due(self, now_ns: int) -> str | None:
        """Return who is to be decided about now: of those that are due the one with the highest priority."""
        while self._later and self._later[0][0] <= now_ns:
            _, name, entry = heappop(self._later)
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                self._refused.discard(name)
                heappush(self._due, (-one.priority, one.order, name, entry))
        while self._due:
            name, entry = self._due[0][2:]
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                return name
            heappop(self._due)
        return None

    def undecided(self, now_ns: int) -> tuple[int, int | None]:
        """Return how many are due, and for how long the one that is due for longest has been (ns; None: nobody is)."""
        due = [one.due_ns for one in self._waiting.values() if not one.is_out and one.due_ns <= now_ns]
        return len(due), now_ns - min(due) if due else None

    def next_due_ns(self) -> int | None:
        """Return when the next one is due, None if nobody waits."""
        while self._later:
            name, entry = self._later[0][1:]
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                break
            heappop(self._later)
        due = [one.due_ns for *_, name, entry in self._due if (one := self._waiting.get(name)) and one.entry == entry]
        return min((*due, *(later[0] for later in self._later[:1])), default=None)

    def take_out(self, name: str) -> None:
        """Have one not be due until `refused`, `again` or `forget` says what came of it."""
        if (one := self._waiting.get(name)) is not None:
            one.is_out = True
            self._enter(name, one)

    def refused(self, name: str, now_ns: int) -> None:
        """Note that one was refused: it waits longer each time, unless `wake` comes."""
        if (one := self._waiting.get(name)) is not None:
            one.refusals += 1
            self._try_again(name, one, now_ns, self.settings.longest_wait_ns)

    def again(self, name: str, now_ns: int) -> None:
        """Note that what one was to get had gone to another: it is looked at again after the shortest wait."""
        if (one := self._waiting.get(name)) is not None:
            self._try_again(name, one, now_ns, self.settings.first_wait_ns)

    def wake(self, now_ns: int) -> None:
        """Have all looked at again, each once its wait is over: something has changed."""
        for name in tuple(self._refused):
            one = self._waiting[name]
            doubled = self.settings.first_wait_ns << min(max(one.refusals - 1, 0), 40)
            wait_ns = (one.tried_ns or 0) + min(doubled, self.settings.longest_wait_ns)
            if (due_ns := max(wait_ns, now_ns)) < one.due_ns:
                one.due_ns = due_ns
                self._enter(name, one)

    def forget(self, name: str) -> None:
        """Take one out."""
        self._waiting.pop(name, None)
        self._refused.discard(name)

    def _try_again(self, name: str, one: _Waiting, now_ns: int, wait_ns: int) -> None:
        one.tried_ns, one.due_ns, one.is_out = now_ns, now_ns + wait_ns, False
        self._refused.add(name)
        self._enter(name, one)

    def _enter(self, name: str, one: _Waiting) -> None:
        """Have an entry for one in the heap by time; entries of before no longer hold."""
        self._entries += 1
        one.entry = self._entries
        if one.is_out:
            self._refused.discard(name)
        else:
            heappush(self._later, (one.due_ns, name, one.entry))
