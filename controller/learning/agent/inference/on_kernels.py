"""Inference in machine code, with weights in float32 or, if `halved`, in bfloat16.

Halved products of many tokens round the tokens' figures, too; sums, normalisation and attention are float32.
"""

from __future__ import annotations

from typing import ClassVar

from controller.learning.agent.inference.base import Late, never
from controller.learning.agent.inference.kernels import stages
from controller.learning.agent.inference.kernels.compiled import compiled
from controller.learning.agent.inference.packed import Packed, Room, Rooms
from controller.learning.agent.weights import WeightSet
from controller.learning.values import COMMON, Floats, Observation
from dataplane.native import Kernel


class _OnKernels:
    """A network as stages: `made_of` has the first, those of a later layer's attention, and those after attention."""

    made_of: ClassVar[tuple[Kernel[..., None], ...]]

    def __init__(self, weights: WeightSet, *, halved: bool) -> None:
        packed = self._packed = Packed(weights, halved=halved)
        first, *attend, feed = (compiled(stage) for stage in self.made_of)
        steps = [(first, packed.first), (feed, packed.feed_forward[0])]
        for attention, feed_forward in zip(packed.attention, packed.feed_forward[1:], strict=True):
            steps += [*((stage, attention) for stage in attend), (feed, feed_forward)]
        steps.append((compiled(stages.head_of_all), packed.head))
        self.version = weights.version
        self._shape = weights.shape
        self._sizes = packed.told.address
        self._steps = [(call, structure.address) for call, structure in steps]
        self._rooms = Rooms(packed.sizes, weights.shape.actions)

    def _run(self, room: Room, late: Late) -> bool:
        """Run all stages; return whether it was in time: the clock is checked before each stage of a later layer."""
        sizes, work = self._sizes, room.address
        for number, (call, structure) in enumerate(self._steps):
            if 1 < number < len(self._steps) - 1 and late():
                return False
            call(sizes, structure, work)
        return True


class TokensOnKernels(_OnKernels):
    """The form `tokens`, for any number of them, on processors with AVX-512; halved, also with its bfloat16."""

    made_of = (
        stages.first_of_tokens,
        stages.projection_of_tokens,
        stages.attention_of_tokens,
        stages.feed_forward_of_tokens,
    )

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        self._shape.check(observation)
        count, row = observation.actions, observation.row
        room = self._rooms.take(count)
        try:
            features = room.mixed[:count]
            features[:, :COMMON] = row[:COMMON]
            features[:, COMMON : self._shape.inputs] = row[COMMON:].reshape(-1, count).T
            features[:, self._shape.inputs] = 1
            # A copy, because the next decision reuses the room.
            return room.values[:count, 0].copy() if self._run(room, late) else None
        finally:
            self._rooms.give_back(room)


class FlatOnKernels(_OnKernels):
    """The form `flat`."""

    made_of = (stages.first_of_one, stages.attention_of_one, stages.feed_forward_of_one)

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        self._shape.check(observation)
        room = self._rooms.take(1)
        try:
            room.mixed[0, : self._shape.inputs] = observation.row
            # A copy, because the next decision reuses the room.
            return room.values[0].copy() if self._run(room, late) else None
        finally:
            self._rooms.give_back(room)
