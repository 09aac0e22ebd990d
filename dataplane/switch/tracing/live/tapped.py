"""A Python pipeline that explains chosen packets, each right before it goes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dataplane.program.model import Program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Pipeline, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.explainer import Depth
from dataplane.switch.tracing.live.tracer import LiveTracer

Follow = Callable[[], object]
Clock = Callable[[], int]
"""Nanoseconds, on any clock that keeps advancing."""


class TappedPipeline:
    """A wrapper of another `Pipeline` whose frames a tracer sees first."""

    def __init__(self, pipeline: Pipeline, tracer: LiveTracer, rng: SplitMix, now_ns: Clock, follow: Follow) -> None:
        self._pipeline, self._tracer, self._rng, self._now_ns = pipeline, tracer, rng, now_ns
        self._follow: Follow | None = follow

    @property
    def drops(self) -> Mapping[str, int]:
        """Return packets that ended here, by reason."""
        return self._pipeline.drops

    @property
    def parser_errors(self) -> Mapping[str, int]:
        """Return packets by the name of their parser error."""
        return self._pipeline.parser_errors

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        """Take frames through ingress one at a time while some are traced, else together."""
        if self._follow is not None:  # not before the first frame: a prepared program may never run
            self._follow()
            self._follow = None
        if not self._tracer.room(self._now_ns()):
            self._tracer.pass_over(len(frames))
            return self._pipeline.ingress(frames, now_us)
        placements: list[Placement] = []
        for frame in frames:
            self._tracer.look(frame, now_us, self._rng)
            placements += self._pipeline.ingress([frame], now_us)
        return placements

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        """Run egress and deparse."""
        return self._pipeline.egress(packets, now_us)

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return placements for a packet that a queue refused."""
        return self._pipeline.deflect(refused, session)

    def take_digests(self) -> list[DigestMessage]:
        """Return the digests sent since the last call, oldest first."""
        return self._pipeline.take_digests()


def tapped_factory(
    tracer: LiveTracer, depth: Depth, now_ns: Clock
) -> Callable[[Program, ForwardingState, SplitMix], Pipeline]:
    """Return a factory of interpreters with a tracer."""

    def make(program: Program, state: ForwardingState, rng: SplitMix) -> Pipeline:
        pipeline = InterpretedPipeline(program, state, rng=rng)
        return TappedPipeline(pipeline, tracer, rng, now_ns, lambda: tracer.follow(program, state, depth))

    return make
