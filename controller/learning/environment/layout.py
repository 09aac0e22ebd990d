"""A model in the memory that kernels work on: constants, and all mutable state in one block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from controller.learning.environment.kernels.structures import (
    NONE,
    PLAN_PLACES,
    RESULT_PLACES,
    Changes,
    Engines,
    Nodes,
    Objects,
    PoolState,
    Queue,
    Stores,
    Tasks,
    Ways,
)
from controller.learning.environment.model import Model, price
from controller.learning.environment.values import Longs
from controller.learning.values import COMMON, LOADS, Bools, Floats
from dataplane.native import Struct, pointer_to

_SCALARS: Final = ("now_ns", "task", "epoch", "first", "change", "decisions", "running")


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """A saved state of a pool."""

    memory: Longs
    scalars: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The state of one pool: `changing` are the arrays of `memory` by name; `row` to `result` are four of them.

    `constants` keeps their memory alive, as kernels only know addresses.
    """

    state: PoolState
    memory: Longs
    changing: Mapping[str, Longs]
    row: Floats
    candidates: Bools
    plan: Longs
    result: Longs
    constants: Mapping[str, Longs]

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return memory for a model, before its first episode."""
        constants, counts = _constants(model), _counts(model)
        memory = np.zeros(sum(counts.values()), np.int64)
        ends = np.cumsum(list(counts.values())).tolist()
        changing = {name: memory[end - counts[name] : end] for name, end in zip(counts, ends, strict=True)}
        actions = model.system.actions
        row = changing["row"].view(np.float32)[: _row_length(model)]
        candidates = changing["candidates"].view(np.bool_)[:actions]
        state = _state(model, constants, changing)
        return cls(state, memory, changing, row, candidates, changing["plan"], changing["result"], constants)

    def save(self) -> Saved:
        """Return the current state."""
        scalars = [getattr(self.state, name) for name in _SCALARS]
        return Saved(self.memory.copy(), (*scalars, self.state.ready.size, self.state.ends.size))

    def restore(self, saved: Saved) -> None:
        """Restore a saved state."""
        self.memory[:] = saved.memory
        *scalars, self.state.ready.size, self.state.ends.size = saved.scalars
        for name, value in zip(_SCALARS, scalars, strict=True):
            setattr(self.state, name, value)


def initial(model: Model, seed: int, layout: Layout) -> Saved:
    """Return the state at the beginning of an episode, before its first decision."""
    memory = np.zeros_like(layout.memory)
    start = layout.memory.__array_interface__["data"][0]
    homes = model.homes(seed).astype(np.int64)
    workload = model.workload
    values: dict[str, npt.NDArray[np.int64] | int] = {
        "oldest": NONE,
        "newest": NONE,
        "is_there": 1,
        "free_bytes": layout.constants["capacity_bytes"],
        "home": homes,
        "place": np.where(workload.created != 0, NONE, homes),
        "source": NONE,
        "missing": workload.predecessors.astype(np.int64),
    }
    for name, value in values.items():
        array = layout.changing[name]
        begin = (array.__array_interface__["data"][0] - start) // 8
        memory[begin : begin + len(array)] = value
    return Saved(memory, (0, NONE, *[0] * (len(_SCALARS) - 2), 0, 0))


def _row_length(model: Model) -> int:
    loads = LOADS + model.settings.foretold if model.settings.load_features else 0
    return _load_start(model) + loads * model.system.actions


def _load_start(model: Model) -> int:
    return COMMON + (4 if model.settings.network_features else 2) * model.system.actions


def _counts(model: Model) -> dict[str, int]:
    """Return the number of figures of each array that changes."""
    nodes, objects, tasks = len(model.system.nodes), len(model.workload.object_bytes), len(model.workload)
    engines = [engine for node in model.system.nodes for engine in node.engines]
    of_nodes = ("free_bytes", "oldest", "newest", "in_free_ns", "out_free_ns", "planned_ns", "is_there")
    return {
        **dict.fromkeys(of_nodes, nodes),
        "held": nodes * nodes,
        "assigned": len(engines),
        "free_ns": sum(engine.slots for engine in engines),
        **dict.fromkeys(("home", "place", "arrives_ns", "source", "source_ns", "older", "newer", "used"), objects),
        **dict.fromkeys(("missing", "engine", "refusal", "listed"), tasks),
        **dict.fromkeys(_SCRATCH, int(np.diff(model.workload.access_start).max(initial=0))),
        **dict.fromkeys(("ready_time_ns", "ready_task", "ends_time_ns", "ends_task"), tasks),
        # Counted in words of 8 bytes: two figures, or eight flags, in each.
        "row": -(-_row_length(model) // 2),
        "candidates": -(-model.system.actions // 8),
        "plan": PLAN_PLACES,
        "result": RESULT_PLACES,
    }


def _constants(model: Model) -> dict[str, Longs]:
    """Return everything constant, as whole numbers; features as the bits of float32."""
    workload, network, nodes = model.workload, model.network, model.system.nodes
    engines = [engine for node in nodes for engine in node.engines]
    numbers = {node.name: number for number, node in enumerate(nodes)}
    constants = {
        "kinds": [model.kinds(number) for number in range(len(nodes))],
        "engine_start": np.cumsum([0, *(len(node.engines) for node in nodes)]),
        "fast": [NONE if not node.engines else fast for node, fast in zip(nodes, model.fast, strict=True)],
        "capacity_bytes": [node.memories[0].capacity_bytes if node.engines else 0 for node in nodes],
        "kind": [engine.kind.bit for engine in engines],
        "slot_start": np.cumsum([0, *(engine.slots for engine in engines)]),
        **{name: [getattr(e, name) for e in engines] for name in ("cores", "slots", *_RATES)},
        "node": [store.node for store in model.stores],
        "is_fast": [store.is_fast for store in model.stores],
        **{name: [getattr(store.memory, name) for store in model.stores] for name in _MEMORY},
        "times_ns": network.times_ns,
        "delay_ns": network.delay_ns.ravel(),
        "rate_bps": network.rate_bps.ravel(),
        "nbytes": workload.object_bytes,
        **{name: getattr(workload, name) for name in _WORKLOAD},
        "first": np.flatnonzero(workload.predecessors == 0),
        "data_bytes": model.data_bytes,
        "change_ns": [change.time_ns for change in model.system.changes],
        "change_node": [numbers[change.node] for change in model.system.changes],
        "change_is_there": [change.is_there for change in model.system.changes],
    }
    return {name: np.ascontiguousarray(values, np.int64) for name, values in constants.items()}


_RATES: Final = ("float_ops_per_s", "int_ops_per_s")
_SCRATCH: Final = ("taken", "taken_ns", "reaches_ns")
_MEMORY: Final = ("read_ns", "write_ns", "read_bps", "write_bps")
_WORKLOAD: Final = (
    "submitted_ns",
    "float_operations",
    "int_operations",
    "access_start",
    "access_object",
    "access_is_write",
    "follower_start",
    "follower",
    "created",
)


def _state(model: Model, constants: dict[str, Longs], changing: Mapping[str, Longs]) -> PoolState:
    at = {name: pointer_to(array) for name, array in (*constants.items(), *changing.items())}
    network, tasks = model.network, {name: at[name] for name in _WORKLOAD if name != "created"}
    constants["task_kinds"] = model.workload.kinds.astype(np.int64)
    return PoolState(
        slots=model.slots,
        has_network=model.settings.network_features,
        await_arrival=model.settings.await_arrival,
        load_start=_load_start(model) if model.settings.load_features else 0,
        has_foretold=model.settings.foretold,
        port_price=price(model.settings.port_hz),
        slot_price=price(model.settings.slot_hz),
        nodes=Nodes(
            count=len(model.system.nodes),
            actions=model.system.actions,
            **_fields(Nodes, at),
        ),
        engines=Engines(**_fields(Engines, at)),
        stores=Stores(**_fields(Stores, at)),
        ways=Ways(
            epochs=len(network.times_ns),
            times_ns=at["times_ns"],
            delay_ns=at["delay_ns"],
            rate_bps=at["rate_bps"],
            delay_feature=pointer_to(model.delay_features.view(np.uint32)),
            bandwidth_feature=pointer_to(model.bandwidth_features.view(np.uint32)),
        ),
        objects=Objects(count=len(model.workload.object_bytes), **_fields(Objects, at)),
        tasks=Tasks(
            firsts=len(constants["first"]),
            kinds=pointer_to(constants["task_kinds"]),
            features=pointer_to(model.task_features.view(np.uint32)),
            **tasks,
            **{name: at[name] for name in ("first", "data_bytes", "missing", "engine", "refusal", "listed", *_SCRATCH)},
        ),
        changes=Changes(
            count=len(model.system.changes),
            time_ns=at["change_ns"],
            node=at["change_node"],
            is_there=at["change_is_there"],
        ),
        ready=Queue(time_ns=at["ready_time_ns"], task=at["ready_task"]),
        ends=Queue(time_ns=at["ends_time_ns"], task=at["ends_task"]),
        row=pointer_to(changing["row"].view(np.uint32)),
        candidates=pointer_to(changing["candidates"].view(np.uint8)),
        plan=at["plan"],
        result=at["result"],
    )


def _fields(struct: type[Struct], at: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a struct that are arrays of the same name."""
    return {field[0]: at[field[0]] for field in struct._fields_ if field[0] in at}
