"""The plain twin of the pool: what happens, one sentence after another, over lists and dictionaries."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from controller.learning.environment.model import (
    BACKLOG_UNIT_NS,
    LAST_NS,
    LOAD_UNIT_NS,
    MOST_BACKLOG_NS,
    MOST_LEFT,
    NOWHERE,
    PRICE_BITS,
    QUEUE_BITS,
    Model,
    price,
)
from controller.learning.environment.rewarding import reward
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import Memory, System, Workload
from controller.learning.environment.view import Forecast, Refusal, no_time, nothing_runs, wrong_action
from controller.learning.values import Observation, Step
from tests.reference.pool_figures import logarithmic, serving_ns, share, transfer_ns
from tests.reference.pool_state import EngineState, Move, NodeState, Plan


@dataclass(frozen=True, slots=True)
class PlainSaved:
    """A moment of a pool."""

    attributes: dict[str, object]


class PlainPool:
    """Plain twin of `Pool`."""

    def __init__(self, system: System, workload: Workload, settings: PoolSettings | None = None) -> None:
        self.model = Model.of(system, workload, settings or PoolSettings())
        self._begin(0)

    @property
    def actions(self) -> int:
        """Number of nodes with engines."""
        return self.model.system.actions

    @property
    def view(self) -> PlainPool:
        """State for heuristics: the pool itself."""
        return self

    def start(self, seed: int) -> Observation:
        """Restart with the homes that the seed draws; raise LearningError where no task can run at all."""
        self._begin(seed)
        if not self._advance():
            raise nothing_runs(self.refusals)
        return self._observed()

    def step(self, action: int) -> Step:
        """Let the task run on a node; raise LearningError for one that is no candidate, or after the end."""
        if self.task < 0 or not 0 <= action < self.actions or self._obstacle(action, self.task) is not None:
            raise wrong_action(action, self.task)
        task, ready_ns, forecast = self.task, self.now_ns, self.predict(action)
        before, held = self._backlog(), self._held(action)
        evicted_bytes, eviction_ns = self._act(action)
        left = self._backlog() - before
        running = sum(min(e.assigned, e.engine.slots) for node in self._nodes for e in node.engines)
        penalty_ns = eviction_ns if evicted_bytes else None
        latency_ns, response_ns = forecast.served_ns - ready_ns, forecast.end_ns - ready_ns
        gained = reward(
            self.model.settings,
            running / self.model.cores,
            latency_ns,
            response_ns,
            eviction_ns=penalty_ns,
            left=left,
            held=held,
        )
        following = self._observed() if self._advance() else None
        return Step(
            observation=following,
            reward=gained,
            task=task,
            submitted_ns=ready_ns,
            wait_ns=forecast.start_ns - ready_ns,
            latency_ns=latency_ns,
            response_ns=response_ns,
            evicted_bytes=evicted_bytes,
            eviction_ns=eviction_ns,
            elapsed_ns=self.now_ns - ready_ns,
        )

    def predict(self, action: int) -> Forecast:
        """Return how the task would run on a candidate."""
        if self.task < 0 or not 0 <= action < self.actions or self._obstacle(action, self.task) is not None:
            raise wrong_action(action, self.task)
        return self._plan(action, self.task).forecast

    def local_bytes(self, action: int) -> int:
        """Return how much of the task's data is local to a node."""
        stores = self.model.stores
        return sum(
            self._bytes(number)
            for number, _ in self._accesses(self.task)
            if self._place[number] != NOWHERE and stores[self._place[number]].node == action
        )

    def queued(self, action: int) -> int:
        """Return how many tasks are assigned to a node and have not ended."""
        return sum(engine.assigned for engine in self._nodes[action].engines)

    def slots(self, action: int) -> int:
        """Return how many tasks a node runs at a time."""
        return sum(engine.slots for engine in self.model.system.nodes[action].engines)

    def fast_bytes(self, action: int) -> int:
        """Return the capacity of a node's fast memory."""
        return self.model.system.nodes[action].memories[0].capacity_bytes

    @property
    def needed_bytes(self) -> int:
        """Size of all data of the task to decide on."""
        return int(self.model.data_bytes[self.task])

    def save(self) -> PlainSaved:
        """Return this moment, to go back to."""
        return PlainSaved(deepcopy({name: value for name, value in vars(self).items() if name != "model"}))

    def restore(self, saved: PlainSaved) -> Observation | None:
        """Restore a saved moment, and return its observation; None at the end."""
        vars(self).update(deepcopy(saved.attributes))
        return None if self.task < 0 else self._observed()

    def _begin(self, seed: int) -> None:
        model = self.model
        self._nodes = [
            NodeState(
                [EngineState(engine, [0] * engine.slots) for engine in node.engines],
                node.memories[0].capacity_bytes if node.engines else 0,
            )
            for node in model.system.nodes
        ]
        self._home: list[int] = model.homes(seed).tolist()
        created = model.workload.created.tolist()
        self._place = [NOWHERE if new else home for new, home in zip(created, self._home, strict=True)]
        self._moves = [Move(0) for _ in self._home]
        self._missing: list[int] = model.workload.predecessors.tolist()
        self._ready = [(ns, n) for n, ns in enumerate(model.workload.submitted_ns.tolist()) if not self._missing[n]]
        self._ends: list[tuple[int, int]] = []
        self._engine_of: dict[int, EngineState] = {}
        self._changes = list(model.system.changes)
        self._numbers = {node.name: number for number, node in enumerate(model.system.nodes)}
        self.refusals: dict[int, Refusal] = {}
        self.now_ns, self.task = 0, -1

    # Time

    def _advance(self) -> bool:
        """Go on to the next decision; return False at the end of all tasks."""
        while True:
            self.task = -1
            while self._ends and (not self._ready or self._ends[0][0] <= self._ready[0][0]):
                self._end(*heappop(self._ends))
            if not self._ready:
                return False
            self.now_ns, self.task = heappop(self._ready)
            self._change()
            obstacles = [self._obstacle(node, self.task) for node in range(self.actions)]
            if None in obstacles:
                return True
            self._refuse(self.task, max(obstacle for obstacle in obstacles if obstacle is not None))

    def _end(self, end_ns: int, task: int) -> None:
        self._engine_of.pop(task).assigned -= 1
        for follower in self._followers(task):
            self._missing[follower] -= 1
            # A task after a refused one is never ready: that one does not end.
            if self._missing[follower] == 0:
                heappush(self._ready, (max(end_ns, int(self.model.workload.submitted_ns[follower])), follower))

    def _refuse(self, task: int, why: Refusal) -> None:
        self.refusals[task] = why
        waiting = [task]
        while waiting:
            for follower in self._followers(waiting.pop()):
                if follower not in self.refusals:
                    self.refusals[follower] = Refusal.AFTER_REFUSED
                    waiting.append(follower)

    def _change(self) -> None:
        """Remove and add nodes.

        What a vanished node's fast memory kept is at its home, as it was there; objects created by a task are lost.
        """
        while self._changes and self._changes[0].time_ns <= self.now_ns:
            change = self._changes.pop(0)
            node = self._nodes[self._numbers[change.node]]
            node.is_there = change.is_there
            for number in [] if change.is_there else list(node.kept):
                self._drop(number)
                self._place[number] = NOWHERE if self.model.workload.created[number] else self._home[number]
                self._moves[number] = Move(0)
            if not change.is_there:
                gone = self._numbers[change.node]
                self._moves = [
                    Move(move.arrives_ns) if self._is_at(move.source, gone) else move for move in self._moves
                ]

    # Who can

    def _obstacle(self, action: int, task: int) -> Refusal | None:
        """Return what keeps a task from running on a node."""
        node, model = self._nodes[action], self.model
        if not node.is_there or not model.kinds(action) & int(model.workload.kinds[task]):
            return Refusal.NO_ENGINE
        accesses = self._accesses(task)
        if not all(is_write or self._is_in_reach(number, action) for number, is_write in accesses):
            return Refusal.NO_DATA
        own = {number for number, _ in accesses}
        needed = sum(self._bytes(number) for number in own if number not in node.kept)
        room = node.free_bytes
        if room < needed:
            room += sum(self._bytes(n) for n in node.kept if n not in own and self._can_go(n, action))
        return None if room >= needed else Refusal.NO_ROOM

    def _is_at(self, store: int, node: int) -> bool:
        return store != NOWHERE and self.model.stores[store].node == node

    def _is_in_reach(self, number: int, action: int) -> bool:
        store = self._place[number]
        return store != NOWHERE and self._is_way(self.model.stores[store].node, action)

    def _can_go(self, number: int, action: int) -> bool:
        return self._is_way(action, self.model.stores[self._home[number]].node)

    def _is_way(self, src: int, dst: int) -> bool:
        if not (self._nodes[src].is_there and self._nodes[dst].is_there):
            return False
        return src == dst or self.model.network.delay_ns[self._epoch, src, dst] >= 0

    # How long

    def _plan(self, action: int, task: int) -> Plan:
        """Return how a task would run: its data begins to move at once, while it waits for a slot of an engine.

        A node's incoming and outgoing transfers are each served one after another.
        """
        node, fast = self._nodes[action], self._fast(action)
        fetched_ns, access_ns, moves = self.now_ns, 0, dict[int, Move]()
        free_ns = [other.out_free_ns for other in self._nodes]
        in_free_ns = node.in_free_ns
        for number, is_write in self._accesses(task):
            access_ns += serving_ns(fast, 8 * self._bytes(number), is_write=is_write)
            if is_write:
                continue
            if number in node.kept:
                fetched_ns = max(fetched_ns, self._moves[number].arrives_ns)
                continue
            sources = self._sources(number, action)
            moves[number], sent_ns = min(
                (self._sent(action, number, source, in_free_ns, free_ns) for source in sources),
                key=lambda source: source[0].arrives_ns,
            )
            src = self.model.stores[moves[number].source].node
            free_ns[src] = sent_ns
            if src != action:
                in_free_ns = sent_ns
            fetched_ns = max(fetched_ns, moves[number].arrives_ns)
        forecast, engine, slot = self._soonest(action, task, fetched_ns, access_ns)
        return Plan(forecast, fetched_ns, engine, slot, in_free_ns, free_ns, moves)

    def _sources(self, number: int, action: int) -> list[tuple[int, int]]:
        """Return the stores of an object, and from when on: one in transit is still at its source, too."""
        move = self._moves[number]
        sources = [(self._place[number], move.arrives_ns)]
        is_source = move.arrives_ns > self.now_ns and move.source != NOWHERE
        if is_source and self._is_way(self.model.stores[move.source].node, action):
            sources.insert(0, (move.source, move.source_ns))
        return sources

    def _sent(
        self, action: int, number: int, source: tuple[int, int], in_free_ns: int, free_ns: list[int]
    ) -> tuple[Move, int]:
        """Return how an object moves to a node from a store that has it from a time on, and when it has been sent."""
        store_number, since_ns = source
        store = self.model.stores[store_number]
        begin_ns = max(self.now_ns, free_ns[store.node])
        rate_bps, delay_ns = min(store.memory.read_bps, self._fast(action).write_bps), store.memory.read_ns
        if store.node != action:
            begin_ns = max(begin_ns, in_free_ns)
            rate_bps = min(rate_bps, int(self.model.network.rate_bps[self._epoch, store.node, action]))
            delay_ns += int(self.model.network.delay_ns[self._epoch, store.node, action])
        takes_ns = transfer_ns(8 * self._bytes(number), rate_bps)
        # While its data is yet to come, it lets others pass.
        return Move(max(begin_ns, since_ns) + takes_ns + delay_ns, store_number, since_ns), begin_ns + takes_ns

    def _soonest(self, action: int, task: int, fetched_ns: int, access_ns: int) -> tuple[Forecast, int, int]:
        """Return how the task runs on that engine of a node on which it ends first, with engine and slot."""
        workload = self.model.workload
        candidates: list[tuple[int, int, int, Forecast]] = []
        for number, state in enumerate(self._nodes[action].engines):
            engine = state.engine
            if not engine.kind.bit & int(workload.kinds[task]):
                continue
            slot = state.free_ns.index(min(state.free_ns))
            start_ns = max(self.now_ns, state.free_ns[slot])
            # As many tasks as share a core when this one comes share it for all of its run.
            sharing = -(-min(state.assigned + 1, engine.slots) // engine.cores)
            compute_ns = transfer_ns(int(workload.float_operations[task]), engine.float_ops_per_s)
            compute_ns += transfer_ns(int(workload.int_operations[task]), engine.int_ops_per_s)
            served_ns = max(start_ns, fetched_ns) + access_ns
            end_ns = served_ns + compute_ns * sharing
            candidates.append((end_ns, number, slot, Forecast(start_ns, served_ns, end_ns)))
        _, number, slot, forecast = min(candidates, key=lambda entry: entry[:2])
        return forecast, number, slot

    # What it changes

    def _act(self, action: int) -> tuple[int, int]:
        """Run the task on a node; return how many bytes were evicted, and how long their eviction takes."""
        plan, node, task = self._plan(action, self.task), self._nodes[action], self.task
        end_ns = plan.forecast.end_ns
        node.in_free_ns = plan.in_free_ns
        for other, free_ns in zip(self._nodes, plan.out_free_ns, strict=True):
            other.out_free_ns = free_ns
        engine = node.engines[plan.engine]
        engine.free_ns[plan.slot] = end_ns
        engine.assigned += 1
        self._engine_of[task] = engine
        heappush(self._ends, (end_ns, task))
        evicted = self._keep(action, [number for number, _ in self._accesses(task)])
        for number, is_write in self._accesses(task):
            move = Move(plan.forecast.served_ns) if is_write else plan.moves.get(number)
            if move and self.model.settings.await_arrival:
                self._moves[number] = move
        if max(end_ns, node.out_free_ns) > LAST_NS:
            raise no_time(task)
        return evicted

    def _backlog(self) -> int:
        """Return the sum over all ports of the square of the time for which they are taken, in `BACKLOG_UNIT_NS`."""
        return sum(self._squared(ns) for node in self._nodes for ns in (node.in_free_ns, node.out_free_ns))

    def _squared(self, free_ns: int) -> int:
        """Return the square of how long it is until a time."""
        return (min(max(free_ns - self.now_ns, 0), MOST_BACKLOG_NS) // BACKLOG_UNIT_NS) ** 2

    def _held(self, action: int) -> int:
        """Return by how much the square of the time grows for which the slot is taken that the task would get."""
        plan = self._plan(action, self.task)
        slot_ns = self._nodes[action].engines[plan.engine].free_ns[plan.slot]
        return self._squared(plan.forecast.end_ns) - self._squared(slot_ns)

    def _foretold_ns(self, action: int, plan: Plan) -> int:
        """Return the predicted cost of the task on a node: its response, and the resulting waits of others."""
        left = self._squared(plan.in_free_ns) - self._squared(self._nodes[action].in_free_ns)
        for node, free_ns in zip(self._nodes, plan.out_free_ns, strict=True):
            left += self._squared(free_ns) - self._squared(node.out_free_ns)
        settings, held = self.model.settings, self._held(action)
        waits = price(settings.port_hz) * min(left, MOST_LEFT) + price(settings.slot_hz) * min(held, MOST_LEFT)
        return plan.forecast.end_ns - self.now_ns + (waits >> PRICE_BITS)

    def _keep(self, action: int, accessed: list[int]) -> tuple[int, int]:
        """Load all objects of a task into a node's fast memory, evicting the least recently used until they fit."""
        node = self._nodes[action]
        for number in accessed:
            if number in node.kept:
                node.kept.move_to_end(number)
        evicted_bytes = eviction_ns = 0
        for number in accessed:
            if number in node.kept:
                continue
            while node.free_bytes < self._bytes(number):
                victim = next(n for n in node.kept if n not in accessed and self._can_go(n, action))
                evicted_bytes += self._bytes(victim)
                eviction_ns += self._evict(victim, action)
            self._drop(number)
            node.kept[number] = None
            node.free_bytes -= self._bytes(number)
            self._place[number] = self.model.fast[action]
        return evicted_bytes, eviction_ns

    def _evict(self, number: int, action: int) -> int:
        """Send an object home, behind the data that the task waits for; return how long that takes."""
        node, home = self._nodes[action], self.model.stores[self._home[number]]
        self._drop(number)
        self._place[number] = self._home[number]
        rate_bps, delay_ns = min(self._fast(action).read_bps, home.memory.write_bps), self._fast(action).read_ns
        since_ns = self._moves[number].arrives_ns
        begin_ns = max(self.now_ns, node.out_free_ns)
        if home.node != action:
            rate_bps = min(rate_bps, int(self.model.network.rate_bps[self._epoch, action, home.node]))
            begin_ns = max(begin_ns, self._nodes[home.node].in_free_ns)
            delay_ns += int(self.model.network.delay_ns[self._epoch, action, home.node])
        takes_ns = transfer_ns(8 * self._bytes(number), rate_bps)
        node.out_free_ns = begin_ns + takes_ns
        if home.node != action:
            self._nodes[home.node].in_free_ns = begin_ns + takes_ns
        if self.model.settings.await_arrival:
            arrives_ns = max(begin_ns, since_ns) + takes_ns + delay_ns
            self._moves[number] = Move(arrives_ns, self.model.fast[action], since_ns)
        return takes_ns

    def _drop(self, number: int) -> None:
        """Remove an object from the fast memory that holds it, if any."""
        store = self._place[number]
        if store != NOWHERE and self.model.stores[store].is_fast:
            node = self._nodes[self.model.stores[store].node]
            del node.kept[number]
            node.free_bytes += self._bytes(number)

    # What is seen

    def _observed(self) -> Observation:
        actions, model, total = range(self.actions), self.model, int(self.model.data_bytes[self.task])
        busy = sum(min(e.assigned, e.engine.slots) for node in self._nodes for e in node.engines)
        operations, size, is_write = model.task_features[self.task].tolist()
        ways = [self._way_features(node) for node in actions] if model.settings.network_features else None
        loads = [self._load_features(node) for node in actions] if model.settings.load_features else []
        return Observation.of(
            utilisation=share(busy, model.slots),
            operations=operations,
            size=size,
            is_write=is_write,
            free=[share(self._nodes[node].free_bytes, self._fast(node).capacity_bytes) for node in actions],
            similarity=[share(self.local_bytes(node), max(total, 1)) for node in actions],
            delay=None if ways is None else [delay for delay, _ in ways],
            bandwidth=None if ways is None else [bandwidth for _, bandwidth in ways],
            load=list(zip(*loads, strict=True)),
            candidates=self.candidates,
        )

    @property
    def candidates(self) -> tuple[bool, ...]:
        """Nodes that can run the task."""
        return tuple(self._obstacle(node, self.task) is None for node in range(self.actions))

    def _way_features(self, action: int) -> tuple[float, float]:
        """Return the longest delay and the least bandwidth to what the task reads and other nodes have."""
        delay, bandwidth = 0.0, 1.0
        for number, is_write in self._accesses(self.task):
            store = self._place[number]
            if is_write or (store != NOWHERE and self.model.stores[store].node == action):
                continue
            if not self._is_in_reach(number, action):
                return 1.0, 0.0
            src = self.model.stores[store].node
            delay = max(delay, float(self.model.delay_features[self._epoch, src, action]))
            bandwidth = min(bandwidth, float(self.model.bandwidth_features[self._epoch, src, action]))
        return delay, bandwidth

    def _load_features(self, action: int) -> tuple[float, ...]:
        """Return queued, wait, compute, arriving, leaving, fetching, evicting, cost; 1 for what cannot be there."""
        node, now_ns = self._nodes[action], self.now_ns
        slots = sum(engine.engine.slots for engine in node.engines)
        queued = logarithmic(LOAD_UNIT_NS * self.queued(action) // slots, QUEUE_BITS)
        arriving, leaving = (logarithmic(free_ns - now_ns) for free_ns in (node.in_free_ns, node.out_free_ns))
        if self._obstacle(action, self.task) is not None:
            return queued, 1.0, 1.0, arriving, leaving, 1.0, 1.0, *[1.0] * self.model.settings.foretold
        plan = self._plan(action, self.task)
        waits_ns = plan.forecast.start_ns - now_ns
        takes_ns = plan.forecast.end_ns - plan.forecast.served_ns
        fetching = logarithmic(plan.fetched_ns - now_ns)
        missing = sum(self._bytes(number) for number, _ in self._accesses(self.task) if number not in node.kept)
        evicting = logarithmic(missing - node.free_bytes)
        cost = [logarithmic(self._foretold_ns(action, plan))] if self.model.settings.foretold else []
        return queued, logarithmic(waits_ns), logarithmic(takes_ns), arriving, leaving, fetching, evicting, *cost

    # What is known

    @property
    def _epoch(self) -> int:
        return int(np.searchsorted(self.model.network.times_ns, self.now_ns, side="right")) - 1

    def _fast(self, node: int) -> Memory:
        return self.model.system.nodes[node].memories[0]

    def _bytes(self, number: int) -> int:
        return int(self.model.workload.object_bytes[number])

    def _accesses(self, task: int) -> list[tuple[int, bool]]:
        workload = self.model.workload
        start, end = workload.access_start[task : task + 2].tolist()
        numbers, writes = workload.access_object[start:end].tolist(), workload.access_is_write[start:end].tolist()
        return [(number, bool(written)) for number, written in zip(numbers, writes, strict=True)]

    def _followers(self, task: int) -> list[int]:
        start, end = self.model.workload.follower_start[task : task + 2].tolist()
        followers: list[int] = self.model.workload.follower[start:end].tolist()
        return followers
