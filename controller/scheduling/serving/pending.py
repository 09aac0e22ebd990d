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
    """It is being bound and must not be decided meanwhile."""
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
        """Refused ones that wait for their next try; `wake` brings that forward."""
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
        """Add one that is due at once, or update its priority; return False, and count it, if the queue is full."""
        if (known := self._waiting.get(name)) is not None:
            if known.priority != priority:
                known.priority = priority
                if name in self._refused:
                    self._park(name, known)
                self._enter(name, known)
            return True
        if not self.has_room:
            self.refused_full += 1
            self.left_out += 1
            return False
        self._orders += 1
        self._waiting[name] = one = _Waiting(account, priority, self._orders, now_ns)
        self._enter(name, one)
        return True

    def first_due(self, now_ns: int) -> str | None:
        """Return the next one to decide: the due one with the highest priority.

        Among several, the one of the account whose turn it is.
        """
        while self._later and self._later[0][0] <= now_ns:
            _, name, entry = heappop(self._later)
            # Heaps are not searched: entries that are outdated are skipped when they come up.
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                self._refused.discard(name)
                heappush(self._due.setdefault(one.account, []), (-one.priority, one.order, name, entry))
        first: tuple[int, float, int, str] | None = None
        for account in tuple(self._due):
            found = self._first_of(account)
            if found is None:
                continue
            negated, order, name, _ = found
            turn = negated, self._share_of(account), order, name
            first = turn if first is None else min(first, turn)
        return None if first is None else first[3]

    def _first_of(self, account: str) -> tuple[int, int, str, int] | None:
        """Return the first valid entry of an account; if there is none, drop the account and return None."""
        due = self._due[account]
        while due:
            name, entry = due[0][2:]
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                return due[0]
            heappop(due)
        del self._due[account]
        return None

    def undecided(self, now_ns: int) -> tuple[int, int | None]:
        """Return how many are due, and for how long the oldest of them has been (ns; None if none is due)."""
        due = [one.due_ns for one in self._waiting.values() if not one.is_out and one.due_ns <= now_ns]
        return len(due), now_ns - min(due) if due else None

    def next_due_ns(self) -> int | None:
        """Return when the next one is due, None if none waits."""
        while self._later:
            name, entry = self._later[0][1:]
            if (one := self._waiting.get(name)) is not None and one.entry == entry:
                break
            heappop(self._later)
        entries = (entry for heap in self._due.values() for entry in heap)
        due = [one.due_ns for *_, name, entry in entries if (one := self._waiting.get(name)) and one.entry == entry]
        return min((*due, *(later[0] for later in self._later[:1])), default=None)

    def take_out(self, name: str) -> None:
        """Take one out of the due ones until `refused`, `again` or `forget` reports the result."""
        if (one := self._waiting.get(name)) is not None:
            one.is_out = True
            self._enter(name, one)

    def refused(self, name: str, now_ns: int) -> None:
        """Record a refusal: each wait is longer than the last, unless `wake` is called."""
        if (one := self._waiting.get(name)) is not None:
            one.refusals += 1
            self._try_again(name, one, now_ns, self.settings.longest_wait_ns)

    def again(self, name: str, now_ns: int) -> None:
        """Record that its place went to another: it is tried again after the shortest wait."""
        if (one := self._waiting.get(name)) is not None:
            self._try_again(name, one, now_ns, self.settings.first_wait_ns)

    def bound(self, name: str, now_ns: int) -> None:
        """Remove a bound one; the next one of its account is tried, as there may be room for it, too."""
        one = self._waiting.get(name)
        self.forget(name)
        if one is not None:
            self._preferred_ns.pop(one.account, None)
            self._wake_first(one.account, now_ns)

    def wake(self, now_ns: int) -> None:
        """Retry all, each once its wait is over: something has changed.

        The first one of each account does not wait longer with each refusal: otherwise the latest arrivals would get
        the room, regardless of turns. Among several accounts, the first one of the account whose turn it is does not
        wait at all.
        """
        for account in tuple(self._parked):
            self._wake_first(account, now_ns)
        self._prefer(now_ns)
        for name in tuple(self._refused):
            one = self._waiting[name]
            # Bound the shift, or days of refusals would make an enormous number.
            doubled = self.settings.first_wait_ns << min(max(one.refusals - 1, 0), 40)
            wait_ns = (one.tried_ns or 0) + min(doubled, self.settings.longest_wait_ns)
            self._advance(name, one, max(wait_ns, now_ns))

    def forget(self, name: str) -> None:
        """Remove one."""
        self._waiting.pop(name, None)
        self._refused.discard(name)

    def _first_refused(self, account: str) -> tuple[str, _Waiting] | None:
        """Return the first refused one of an account; if there is none, drop its entries and return None."""
        parked = self._parked.get(account, [])
        while parked:
            negated, order, name = parked[0]
            one = self._waiting.get(name)
            if name in self._refused and one is not None and (negated, order) == (-one.priority, one.order):
                return name, one
            self._in_parked.discard(heappop(parked))
        self._parked.pop(account, None)
        return None

    def _wake_first(self, account: str, now_ns: int) -> None:
        """Retry the first refused one of an account after the shortest wait."""
        if (found := self._first_refused(account)) is not None:
            name, one = found
            self._advance(name, one, max((one.tried_ns or 0) + self.settings.first_wait_ns, now_ns))

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
        for account in [one for one in self._parked if one not in self._preferred_ns]:
            if (found := self._first_refused(account)) is not None:
                turns.append((-found[1].priority, self._share_of(account), found[1].order, found[0]))
        if turns:
            name = min(turns)[3]
            one = self._waiting[name]
            self._preferred_ns[one.account] = now_ns
            self._advance(name, one, now_ns)

    def _advance(self, name: str, one: _Waiting, due_ns: int) -> None:
        if due_ns < one.due_ns:
            one.due_ns = due_ns
            self._enter(name, one)

    def _try_again(self, name: str, one: _Waiting, now_ns: int, wait_ns: int) -> None:
        one.tried_ns, one.due_ns, one.is_out = now_ns, now_ns + wait_ns, False
        self._refused.add(name)
        self._park(name, one)
        self._enter(name, one)

    def _park(self, name: str, one: _Waiting) -> None:
        entry = -one.priority, one.order, name
        if entry not in self._in_parked:
            self._in_parked.add(entry)
            heappush(self._parked.setdefault(one.account, []), entry)

    def _enter(self, name: str, one: _Waiting) -> None:
        """Add an entry to the heap by time; earlier entries become stale."""
        self._entries += 1
        one.entry = self._entries
        if one.is_out:
            self._refused.discard(name)
        else:
            heappush(self._later, (one.due_ns, name, one.entry))
