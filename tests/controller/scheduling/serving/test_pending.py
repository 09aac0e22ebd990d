"""The queue of pending subjects: order, backoff, waking, bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.serving.pending import PendingQueue
from controller.scheduling.settings import QueueSettings

SETTINGS = QueueSettings(most=3, first_wait_ns=10, longest_wait_ns=100)


def test_priority_then_age() -> None:
    queue = PendingQueue(SETTINGS)
    for name, priority in (("old", 0), ("young", 0), ("urgent", 5)):
        assert queue.put(name, priority, 0)
    order = []
    while (first := queue.first_due(0)) is not None:
        order.append(first)
        queue.forget(first)
    assert order == ["urgent", "old", "young"]


def test_full_queue_counts_rejected_pods() -> None:
    queue = PendingQueue(SETTINGS)
    assert [queue.put(f"p{n}", 0, 0) for n in range(5)] == [True, True, True, False, False]
    assert (len(queue), queue.refused_full, queue.has_room) == (3, 2, False)
    assert queue.put("p1", 9, 0)
    assert queue.first_due(0) == "p1"


def test_the_first_one_that_is_refused_waits_for_a_change() -> None:
    queue = PendingQueue(SETTINGS)
    queue.put("p", 0, 0)
    for now_ns in (0, 10, 20):
        queue.refused("p", now_ns)
        assert queue.next_due_ns() == now_ns + 100
        queue.wake(now_ns)
        assert queue.first_due(now_ns + 9) is None
        assert queue.first_due(now_ns + 10) == "p"


def test_the_others_wait_longer_each_time() -> None:
    queue = PendingQueue(SETTINGS)
    queue.put("first", 1, 0)
    queue.put("p", 0, 0)
    queue.refused("first", 0)
    waits, now_ns = [], 0
    for _ in range(6):
        queue.refused("p", now_ns)
        queue.wake(now_ns)
        due_ns = queue.next_due_ns() or 0
        while (name := queue.first_due(due_ns)) != "p":
            assert name == "first"
            queue.refused(name, due_ns)
            due_ns = queue.next_due_ns() or 0
        waits.append(due_ns - now_ns)
        now_ns = due_ns
    assert waits == [10, 20, 40, 80, 100, 100]


def test_loser_of_a_race_is_retried_soon() -> None:
    queue = PendingQueue(SETTINGS)
    queue.put("p", 0, 0)
    queue.again("p", 50)
    assert queue.next_due_ns() == 60


def test_a_change_much_later_wakes_at_once() -> None:
    queue = PendingQueue(SETTINGS)
    queue.put("p", 0, 0)
    queue.refused("p", 0)
    queue.wake(70)
    assert queue.first_due(70) == "p"


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "refused", "again", "wake", "forget"]), st.integers(0, 4), st.integers(0, 50))
    )
)
def test_every_waiting_pod_becomes_due(steps: list[tuple[str, int, int]]) -> None:
    queue, now_ns, wanted = PendingQueue(SETTINGS), 0, set[str]()
    for act, number, later_ns in steps:
        now_ns += later_ns
        name = f"p{number}"
        if act == "put":
            wanted |= {name} if queue.put(name, 0, now_ns) else set()
        elif act == "wake":
            queue.wake(now_ns)
        elif act == "forget":
            queue.forget(name)
            wanted.discard(name)
        else:
            getattr(queue, act)(name, now_ns)
        assert len(queue) == len(wanted) <= SETTINGS.most
        assert (queue.next_due_ns() is None) == (not wanted)
        if wanted:
            assert queue.first_due(now_ns + SETTINGS.longest_wait_ns) in wanted


def test_pod_being_bound_is_not_due_and_keeps_its_place() -> None:
    queue = PendingQueue(SETTINGS)
    for name in ("first", "second"):
        queue.put(name, 0, 0)
    queue.take_out("first")
    assert queue.first_due(0) == "second"
    queue.put("first", 0, 5)
    queue.wake(5)
    assert queue.first_due(5) == "second"
    queue.again("first", 5)
    assert (queue.first_due(14), queue.first_due(15)) == ("second", "first")


@dataclass
class PlainPod:
    account: str
    priority: int
    order: int
    due_ns: int
    tried_ns: int = 0
    refusals: int = 0
    is_refused: bool = False
    is_out: bool = False


@dataclass
class PlainQueue:
    """The queue's plain twin, which scans all entries each time."""

    pods: dict[str, PlainPod] = field(default_factory=dict)
    preferred_ns: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, priority: int, now_ns: int, account: str) -> None:
        if name in self.pods:
            self.pods[name].priority = priority
        elif len(self.pods) < SETTINGS.most:
            order = max((pod.order for pod in self.pods.values()), default=0) + 1
            self.pods[name] = PlainPod(account, priority, order, now_ns)

    def first_due(self, now_ns: int) -> str | None:
        due = {name: pod for name, pod in self.pods.items() if pod.due_ns <= now_ns and not pod.is_out}
        for pod in due.values():
            pod.is_refused = False
        # Within an account by priority, then age; between accounts by priority, then shares.
        firsts = dict[str, tuple[int, int, str]]()
        for name, pod in due.items():
            mine = -pod.priority, pod.order, name
            firsts[pod.account] = min(firsts.get(pod.account, mine), mine)
        turns = [(first[0], SHARES[account], *first[1:]) for account, first in firsts.items()]
        return min(turns)[-1] if turns else None

    def next_due_ns(self) -> int | None:
        return min((pod.due_ns for pod in self.pods.values() if not pod.is_out), default=None)

    def take_out(self, name: str) -> None:
        if name in self.pods:
            self.pods[name].is_out, self.pods[name].is_refused = True, False

    def refused(self, name: str, now_ns: int) -> None:
        if name in self.pods:
            self.pods[name].refusals += 1
            self._try_again(name, now_ns, SETTINGS.longest_wait_ns)

    def again(self, name: str, now_ns: int) -> None:
        if name in self.pods:
            self._try_again(name, now_ns, SETTINGS.first_wait_ns)

    def _try_again(self, name: str, now_ns: int, wait_ns: int) -> None:
        pod = self.pods[name]
        pod.tried_ns, pod.due_ns, pod.is_refused, pod.is_out = now_ns, now_ns + wait_ns, True, False

    def wake(self, now_ns: int) -> None:
        firsts = {account: first for account in SHARES if (first := self._first_refused(account)) is not None}
        for account in firsts:
            self._wake_first(account, now_ns)
        may = [name for name in firsts if now_ns - self.preferred_ns.get(name, -1000) >= SETTINGS.first_wait_ns]
        if len(firsts) >= 2 and may:
            account = min(may, key=lambda name: (-firsts[name].priority, SHARES[name], firsts[name].order))
            self.preferred_ns[account] = now_ns
            firsts[account].due_ns = min(firsts[account].due_ns, now_ns)
        for pod in self.pods.values():
            if pod.is_refused:
                wait_ns = min(SETTINGS.first_wait_ns << max(pod.refusals - 1, 0), SETTINGS.longest_wait_ns)
                pod.due_ns = min(pod.due_ns, max(pod.tried_ns + wait_ns, now_ns))

    def _first_refused(self, account: str) -> PlainPod | None:
        refused = [pod for pod in self.pods.values() if pod.is_refused and pod.account == account]
        return min(refused, key=lambda pod: (-pod.priority, pod.order), default=None)

    def _wake_first(self, account: str, now_ns: int) -> None:
        if (first := self._first_refused(account)) is not None:
            first.due_ns = min(first.due_ns, max(first.tried_ns + SETTINGS.first_wait_ns, now_ns))

    def bound(self, name: str, now_ns: int) -> None:
        if (pod := self.pods.pop(name, None)) is not None:
            self.preferred_ns.pop(pod.account, None)
            self._wake_first(pod.account, now_ns)

    def forget(self, name: str) -> None:
        self.pods.pop(name, None)


ACTS = ["put", "refused", "refused", "again", "wake", "wake", "forget", "take_out", "bound"]
SHARES = {"small": 0.1, "middle": 0.2, "large": 0.5}
STEPS = st.tuples(
    st.sampled_from(ACTS),
    st.integers(0, 3),
    st.sampled_from([0, 1, 4, 60]),
    st.integers(-1, 1),
    st.sampled_from(sorted(SHARES)),
)


@given(st.lists(STEPS, min_size=30, max_size=60))
def test_queue_equals_its_plain_twin(steps: list[tuple[str, int, int, int, str]]) -> None:
    queue, plain, now_ns = PendingQueue(SETTINGS, SHARES.__getitem__), PlainQueue(), 0
    for act, number, later_ns, priority, account in steps:
        now_ns += later_ns
        name = f"p{number}"
        for each in (queue, plain):
            if act == "put":
                each.put(name, priority, now_ns, account)
            elif act == "wake":
                each.wake(now_ns)
            elif act in {"forget", "take_out"}:
                getattr(each, act)(name)
            else:
                getattr(each, act)(name, now_ns)
        assert queue.next_due_ns() == plain.next_due_ns()
        assert queue.first_due(now_ns) == plain.first_due(now_ns)


def test_smallest_share_gets_room_before_the_shortest_wait() -> None:
    queue = PendingQueue(QueueSettings(most=4, first_wait_ns=10, longest_wait_ns=100), SHARES.__getitem__)
    for at_ns, account in enumerate(("large", "middle", "small")):
        queue.put(account, 0, at_ns, account)
        queue.refused(account, at_ns)
    # Room appears just when a newcomer with the largest share arrives, while the others' waits continue.
    queue.put("newcomer", 0, 5, "large")
    queue.wake(5)
    assert queue.first_due(5) == "small"


def test_a_share_with_no_room_is_passed_over_for_a_while() -> None:
    queue = PendingQueue(SETTINGS, SHARES.__getitem__)
    for account in ("large", "middle", "small"):
        queue.put(account, 0, 0, account)
        queue.refused(account, 0)
    order = list[str | None]()
    for now_ns in (2, 3, 4, 5, 12):
        queue.wake(now_ns)
        order.append(first := queue.first_due(now_ns))
        if first is not None:
            queue.refused(first, now_ns)
    assert order == ["small", "middle", "large", None, "small"]
