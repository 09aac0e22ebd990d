"""Waiting pods: a bounded queue by priority, with a backoff for refused ones. It has no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from controller.scheduling.settings import QueueSettings


@dataclass(slots=True)
class _Waiting:
    account: str
    priority: int
    order: int
    due_ns: int
    tried_ns: int | None = None
    refusals: int = 0
    is_out: bool = False
    """True while it is being bound and must not be decided."""
    entry: int = 0
    """Number of its valid heap entry; earlier ones are stale."""


class PendingQueue:
    """Pods and groups by name. `refused_full` counts those rejected because the queue was full.

    Due ones are in their account's heap by priority and age, the others in one by time; a stale entry stays in its heap
    until it reaches the top.
    """

    def __init__(self, settings: QueueSettings, share_of: Callable[[str], float] = lambda _: 0.0) -> None:
        """`share_of` returns what an account holds: at equal priority, the account with the smallest share is next."""
        self.settings, self._share_of = settings, share_of
        self.refused_full = 0
        self.left_out = 0
        """Number rejected because the queue was full, since the start."""
        self._waiting: dict[str, _Waiting] = {}
        self._due: dict[str, list[tuple[int, int, str, int]]] = {}
        self._later: list[tuple[int, str, int]] = []
        self._refused: set[str] = set()
        """Refused entries that wait for their next try; `wake` brings that forward."""
        self._parked: dict[str, list[tuple[int, int, str]]] = {}
        """The same by account, in heaps by priority and age; stale entries stay until they reach the top."""
        self._in_parked: set[tuple[int, int, str]] = set()
        self._preferred_ns: dict[str, int] = {}
        """Time when an account's first pod was last preferred, if nothing of the account was bound since."""
        self._orders = 0
        self._entries = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    @property
    def has_room(self) -> bool:
        """True if there is room for one more."""
        return len(self._waiting) < self.settings.most

    def put(self, name: str, priority: int, now_ns: int, account: str = "") -> bool:
        """Add an entry that is due at once, or update its priority; if the queue is full, count it and return False."""
        if (existing := self._waiting.get(name)) is not None:
            if existing.priority != priority:
                existing.priority = priority
                if name in self._refused:
                    self._park(name, existing)
                self._enter(name, existing)
            return True
        if not self.has_room:
            self.refused_full += 1
            self.left_out += 1
            return False
        self._orders += 1
        self._waiting[name] = waiting = _Waiting(account, priority, self._orders, now_ns)
        self._enter(name, waiting)
        return True

    def first_due(self, now_ns: int) -> str | None:
        """Return the next name to decide: the due one with the highest priority.

        Among several, that of the account whose turn it is.
        """
        while self._later and self._later[0][0] <= now_ns:
            _, name, entry = heappop(self._later)
            # Heaps are not searched: stale entries are skipped when they come up.
            if (waiting := self._waiting.get(name)) is not None and waiting.entry == entry:
                self._refused.discard(name)
                heappush(self._due.setdefault(waiting.account, []), (-waiting.priority, waiting.order, name, entry))
        first: tuple[int, float, int, str] | None = None
        for account in tuple(self._due):
            head = self._first_of(account)
            if head is None:
                continue
            negated, order, name, _ = head
            turn = negated, self._share_of(account), order, name
            first = turn if first is None else min(first, turn)
        return None if first is None else first[3]

    def _first_of(self, account: str) -> tuple[int, int, str, int] | None:
        """Return the first valid entry of an account; if there is none, drop the account and return None."""
        due = self._due[account]
        while due:
            name, entry = due[0][2:]
            if (waiting := self._waiting.get(name)) is not None and waiting.entry == entry:
                return due[0]
            heappop(due)
        del self._due[account]
        return None

    def undecided(self, now_ns: int) -> tuple[int, int | None]:
        """Return how many are due, and for how long the oldest of them has been (ns; None if none is due)."""
        due = [waiting.due_ns for waiting in self._waiting.values() if not waiting.is_out and waiting.due_ns <= now_ns]
        return len(due), now_ns - min(due) if due else None

    def next_due_ns(self) -> int | None:
        """Return when the next one is due, None if none waits."""
        while self._later:
            name, entry = self._later[0][1:]
            if (waiting := self._waiting.get(name)) is not None and waiting.entry == entry:
                break
            heappop(self._later)
        entries = (entry for heap in self._due.values() for entry in heap)
        due = [
            waiting.due_ns
            for *_, name, entry in entries
            if (waiting := self._waiting.get(name)) and waiting.entry == entry
        ]
        return min((*due, *(later[0] for later in self._later[:1])), default=None)

    def take_out(self, name: str) -> None:
        """Suspend an entry until `refused`, `again` or `forget` reports the result."""
        if (waiting := self._waiting.get(name)) is not None:
            waiting.is_out = True
            self._enter(name, waiting)

    def refused(self, name: str, now_ns: int) -> None:
        """Record a refusal: each wait is longer than the last, unless `wake` is called."""
        if (waiting := self._waiting.get(name)) is not None:
            waiting.refusals += 1
            self._try_again(name, waiting, now_ns, self.settings.longest_wait_ns)

    def again(self, name: str, now_ns: int) -> None:
        """Record that another took its place: it is tried again after the shortest wait."""
        if (waiting := self._waiting.get(name)) is not None:
            self._try_again(name, waiting, now_ns, self.settings.first_wait_ns)

    def bound(self, name: str, now_ns: int) -> None:
        """Remove a bound entry, and try the next of its account: there may be room for it, too."""
        waiting = self._waiting.get(name)
        self.forget(name)
        if waiting is not None:
            self._preferred_ns.pop(waiting.account, None)
            self._wake_first(waiting.account, now_ns)

    def wake(self, now_ns: int) -> None:
        """Retry all, each once its wait is over, because something has changed.

        The wait of each account's first entry does not grow with refusals: otherwise the latest arrivals would get the
        room, regardless of turns. If several accounts wait, the first entry of the one whose turn it is does not wait
        at all.
        """
        for account in tuple(self._parked):
            self._wake_first(account, now_ns)
        self._prefer(now_ns)
        for name in tuple(self._refused):
            waiting = self._waiting[name]
            # Bound the shift, or days of refusals would make an enormous number.
            doubled = self.settings.first_wait_ns << min(max(waiting.refusals - 1, 0), 40)
            wait_ns = (waiting.tried_ns or 0) + min(doubled, self.settings.longest_wait_ns)
            self._advance(name, waiting, max(wait_ns, now_ns))

    def forget(self, name: str) -> None:
        """Remove an entry."""
        self._waiting.pop(name, None)
        self._refused.discard(name)

    def _first_refused(self, account: str) -> tuple[str, _Waiting] | None:
        """Return the first refused one of an account; if there is none, drop its entries and return None."""
        parked = self._parked.get(account, [])
        while parked:
            negated, order, name = parked[0]
            waiting = self._waiting.get(name)
            if name in self._refused and waiting is not None and (negated, order) == (-waiting.priority, waiting.order):
                return name, waiting
            self._in_parked.discard(heappop(parked))
        self._parked.pop(account, None)
        return None

    def _wake_first(self, account: str, now_ns: int) -> None:
        """Retry the first refused one of an account after the shortest wait."""
        if (first := self._first_refused(account)) is not None:
            name, waiting = first
            self._advance(name, waiting, max((waiting.tried_ns or 0) + self.settings.first_wait_ns, now_ns))

    def _prefer(self, now_ns: int) -> None:
        """Retry now the first one of the account whose turn it is, if several wait.

        Otherwise room would go to the pod whose wait happens to end first, or that arrives just then. An account that
        did not fit is passed over for the shortest wait, so that one with too large a request does not take every turn.
        """
        if len(self._parked) < 2:
            return
        first_ns = now_ns - self.settings.first_wait_ns
        self._preferred_ns = {account: at_ns for account, at_ns in self._preferred_ns.items() if at_ns > first_ns}
        turns = list[tuple[int, float, int, str]]()
        for account in [account for account in self._parked if account not in self._preferred_ns]:
            if (first := self._first_refused(account)) is not None:
                turns.append((-first[1].priority, self._share_of(account), first[1].order, first[0]))
        if turns:
            name = min(turns)[3]
            waiting = self._waiting[name]
            self._preferred_ns[waiting.account] = now_ns
            self._advance(name, waiting, now_ns)

    def _advance(self, name: str, waiting: _Waiting, due_ns: int) -> None:
        if due_ns < waiting.due_ns:
            waiting.due_ns = due_ns
            self._enter(name, waiting)

    def _try_again(self, name: str, waiting: _Waiting, now_ns: int, wait_ns: int) -> None:
        waiting.tried_ns, waiting.due_ns, waiting.is_out = now_ns, now_ns + wait_ns, False
        self._refused.add(name)
        self._park(name, waiting)
        self._enter(name, waiting)

    def _park(self, name: str, waiting: _Waiting) -> None:
        entry = -waiting.priority, waiting.order, name
        if entry not in self._in_parked:
            self._in_parked.add(entry)
            heappush(self._parked.setdefault(waiting.account, []), entry)

    def _enter(self, name: str, waiting: _Waiting) -> None:
        """Add an entry to the heap by time; earlier entries become stale."""
        self._entries += 1
        waiting.entry = self._entries
        if waiting.is_out:
            self._refused.discard(name)
        else:
            heappush(self._later, (waiting.due_ns, name, waiting.entry))
