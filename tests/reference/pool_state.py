"""State and planning of the plain twin of the pool."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from controller.learning.environment.model import NOWHERE
from controller.learning.environment.values import Engine
from controller.learning.environment.view import Forecast


@dataclass(slots=True)
class EngineState:
    """An engine: when each of its slots is free, and how many tasks it has that have not ended."""

    engine: Engine
    free_ns: list[int]
    assigned: int = 0


@dataclass(slots=True)
class NodeState:
    """A node: what its fast memory keeps, least recently used first, and until when its ports are taken."""

    engines: list[EngineState]
    free_bytes: int
    kept: OrderedDict[int, None] = field(default_factory=OrderedDict)
    in_free_ns: int = 0
    out_free_ns: int = 0
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """Data on its way to its place: there from `arrives_ns` on, and in store `source` from `source_ns` on."""

    arrives_ns: int
    source: int = NOWHERE
    source_ns: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Predicted execution of a task on a node."""

    forecast: Forecast
    fetched_ns: int
    engine: int
    slot: int
    in_free_ns: int
    out_free_ns: list[int]
    moves: dict[int, Move]
