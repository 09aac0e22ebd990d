"""The queue of who waits: order, backoff, waking, bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controller.schedulers.serving.pending import PendingQueue
from controller.schedulers.settings import QueueSettings

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


def test_a_full_queue_counts_who_it_turns_away() -> None:
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


def test_who_lost_a_race_is_looked_at_soon() -> None:
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
def test_whoever_waits_is_due_some_day(steps: list[tuple[str, int, int]]) -> None:
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


def test_who_is_being_bound_is_not_due_and_keeps_its_place() -> None:
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
class PlainQueue:
    """The queue's plain twin: it looks at everybody each time."""

    known: dict[str, list[int]] = field(default_factory=dict)
    """By name: priority, order, due, tried (-1: never), refusals, whether it is out."""
    asked_ns: int = 0

    def put(self, name: str, priority: int, now_ns: int) -> None:
        if name in self.known:
            self.known[name][0] = priority
        elif len(self.known) < SETTINGS.most:
            self.known[name] = [priority, max((one[1] for one in self.known.values()), default=0) + 1, now_ns, -1, 0, 0]

    def first_due(self, now_ns: int) -> str | None:
        self.asked_ns = now_ns
        due = [(-one[0], one[1], name) for name, one in self.known.items() if one[2] <= now_ns and not one[5]]
        return min(due)[2] if due else None

    def next_due_ns(self) -> int | None:
        return min((one[2] for one in self.known.values() if not one[5]), default=None)

    def take_out(self, name: str) -> None:
        if name in self.known:
            self.known[name][5] = 1

    def refused(self, name: str, now_ns: int) -> None:
        if name in self.known:
            self.known[name][2:] = [now_ns + SETTINGS.longest_wait_ns, now_ns, self.known[name][4] + 1, 0]

    def again(self, name: str, now_ns: int) -> None:
        if name in self.known:
            self.known[name][2:] = [now_ns + SETTINGS.first_wait_ns, now_ns, self.known[name][4], 0]

    def wake(self, now_ns: int) -> None:
        self.wake_first(now_ns)
        for one in self.known.values():
            if one[3] >= 0 and not one[5]:
                doubled = SETTINGS.first_wait_ns << max(one[4] - 1, 0)
                one[2] = min(one[2], max(one[3] + min(doubled, SETTINGS.longest_wait_ns), now_ns))

    def wake_first(self, now_ns: int) -> None:
        refused = [one for one in self.known.values() if one[3] >= 0 and not one[5] and one[2] > self.asked_ns]
        if refused:
            first = min(refused, key=lambda one: (-one[0], one[1]))
            first[2] = min(first[2], max(first[3] + SETTINGS.first_wait_ns, now_ns))

    def bound(self, name: str, now_ns: int) -> None:
        if self.known.pop(name, None) is not None:
            self.wake_first(now_ns)

    def forget(self, name: str) -> None:
        self.known.pop(name, None)


ACTS = ["put", "put", "refused", "again", "wake", "forget", "take_out", "bound"]


@given(
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 4), st.integers(0, 50), st.integers(-1, 1)), max_size=60)
)
def test_queue_equals_its_plain_twin(steps: list[tuple[str, int, int, int]]) -> None:
    queue, plain, now_ns = PendingQueue(SETTINGS), PlainQueue(), 0
    for act, number, later_ns, priority in steps:
        now_ns += later_ns
        name = f"p{number}"
        for one in (queue, plain):
            if act == "put":
                one.put(name, priority, now_ns)
            elif act == "wake":
                one.wake(now_ns)
            elif act in {"forget", "take_out"}:
                getattr(one, act)(name)
            else:
                getattr(one, act)(name, now_ns)
        assert queue.next_due_ns() == plain.next_due_ns()
        assert queue.first_due(now_ns) == plain.first_due(now_ns)
