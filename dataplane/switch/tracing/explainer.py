"""Takes one frame through a program and back out, with an empty queue on the way, and returns its trace."""

from __future__ import annotations

from collections.abc import Callable

from dataplane.program.model import Program
from dataplane.switch.interpreter.state import PipelineState
from dataplane.switch.pipeline import Dequeued, Frame, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tracing.pipeline import TracedPipeline
from dataplane.switch.tracing.steps import PacketTrace

MOST_PASSAGES = 256
"""Maximum traced passages of one packet through egress: a program may recirculate its copies forever."""
_CUT = f"only the first {MOST_PASSAGES} passages through egress are shown"

Depth = Callable[[int, int], int]
"""(port, priority) -> frames waiting there."""


def _empty(_port: int, _priority: int) -> int:
    return 0


class Explainer:
    """Explains frames one after another over one state, which they change as in a switch."""

    def __init__(
        self,
        program: Program,
        state: PipelineState,
        *,
        seed: int = 0,
        exact: bool = True,
        depth: Depth = _empty,
    ) -> None:
        self.program, self.rng = program, SplitMix(seed)
        self._pipeline = TracedPipeline(program, state, rng=self.rng, exact=exact)
        self._depth = depth

    def explain(self, frame: Frame, now_us: int) -> PacketTrace:
        """Return the trace of a frame that arrives now and never waits."""
        pipeline = self._pipeline
        waiting = pipeline.ingress([frame], now_us)
        (trace,) = pipeline.take()
        passages = 0
        while waiting:
            if passages == MOST_PASSAGES:
                trace.unknown = (*trace.unknown, _CUT)
                break
            passages += 1
            waiting += pipeline.egress([self._dequeued(waiting.pop(0), now_us)], now_us).placements
        pipeline.take_digests()
        return trace

    def _dequeued(self, placement: Placement, now_us: int) -> Dequeued:
        depth = self._depth(placement.port, placement.priority)
        return Dequeued(
            placement.packet,
            placement.port,
            placement.priority,
            enq_timestamp_us=now_us,
            enq_qdepth=depth,
            deq_timedelta_us=0,
            deq_qdepth=depth,
        )
