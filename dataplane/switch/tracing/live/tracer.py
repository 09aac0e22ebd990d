"""Explains packets of live traffic, off the forwarding path: selection, limits and output.

A chosen packet is copied; the interpreter explains the copy over a shadow of the state, in which nothing that it does
is counted twice. Nothing waits for it: packets beyond the limits are skipped, and their number is recorded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from dataplane.clock import NS_PER_S
from dataplane.errors import ConfigError, SwitchError
from dataplane.program.model import Program
from dataplane.switch.pipeline import Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.explainer import Depth, Explainer
from dataplane.switch.tracing.filters import EVERYTHING, bind_filter, parse_filter
from dataplane.switch.tracing.live.options import FILTER, TraceSettings
from dataplane.switch.tracing.live.prefilter import Alternative, prefilter
from dataplane.switch.tracing.matching import Matcher
from dataplane.switch.tracing.shadow import ShadowState
from dataplane.switch.tracing.showing.formats import TraceFormat
from dataplane.switch.tracing.showing.show import shown
from dataplane.switch.tracing.steps import PacketTrace, Queued, Ran, TableApplied

LOOKS_PER_SECOND = 2_000
"""Frames parsed to check the filter, if their first bytes do not decide it."""
_JSON_ENDINGS = (".json", ".jsonl")

log = logging.getLogger("millrace.trace")


@dataclass(frozen=True, slots=True)
class _Bound:
    """Explainer of one program's packets over its running state."""

    program: Program
    state: ForwardingState
    shadow: ShadowState
    explainer: Explainer
    matches: Matcher


class LiveTracer:
    """Explains chosen packets of a switch; `follow` names the running program, the rest belongs to one thread.

    `exact` is for callers of `look` before the packet itself reaches the state.
    """

    def __init__(self, settings: TraceSettings, *, exact: bool) -> None:
        self._condition = parse_filter(settings.filter, FILTER) if settings.filter else EVERYTHING
        self._exact = exact
        self._sink = _Sink(settings)
        self._per_second, self._left = settings.per_second, settings.packets
        self._window_ns = time.monotonic_ns()
        self._explained = self._looks = self._passed_over = self._told = 0
        self._bound: _Bound | None = None

    def __enter__(self) -> LiveTracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note_passed_over()
        self._sink.close()

    def check(self, program: Program) -> None:
        """Raise ConfigError if the filter names something that the program does not have."""
        bind_filter(self._condition, program, FILTER)

    def follow(self, program: Program, state: ForwardingState, depth: Depth) -> Sequence[Alternative]:
        """Explain packets of this program from now on; return what matching packets have in common.

        If the filter does not suit the program, that is logged, and no packet is explained.
        """
        try:
            self.check(program)
        except ConfigError as error:
            self._bound = None
            log.warning("packets are not traced: %s", error)
            return ()
        shadow = ShadowState(state)
        explainer = Explainer(program, shadow, exact=self._exact, depth=depth)
        self._bound = _Bound(program, state, shadow, explainer, Matcher(program, shadow, self._condition, FILTER))
        return prefilter(self._condition, program)

    def room(self, now_ns: int) -> int:
        """Return how many frames may be inspected now."""
        if now_ns - self._window_ns >= NS_PER_S:
            self._note_passed_over()
            self._window_ns, self._explained, self._looks = now_ns, 0, 0
        if self._left == 0 or self._explained >= self._per_second:
            return 0
        return LOOKS_PER_SECOND - self._looks

    def wakes_ns(self) -> int | None:
        """Return when there will be room again, if there is none now."""
        if self._left == 0 or (self._explained < self._per_second and self._looks < LOOKS_PER_SECOND):
            return None
        return self._window_ns + NS_PER_S

    def look(self, frame: Frame, now_us: int, rng: SplitMix | None = None) -> PacketTrace | None:
        """Explain a frame if it matches and the limits allow it; `rng` is what the packet itself will draw from."""
        bound = self._bound
        if bound is None or self._left == 0:
            return None
        self._looks += 1
        with bound.state.lock:
            if not bound.matches(frame):
                return None
            if self._explained >= self._per_second:
                self._passed_over += 1
                return None
            bound.shadow.reset()
            if rng is not None:
                bound.explainer.rng.state = rng.state
            trace = bound.explainer.explain(frame, now_us)
        trace.unknown = (*trace.unknown, *_unknown(trace))
        self._explained += 1
        self._told += 1
        self._left -= 1
        self._sink.write(trace)
        if self._left == 0:
            self._sink.note(f"{self._told} packets were traced: the limit is reached")
        return trace

    def pass_over(self, frames: int) -> None:
        """Record that possibly matching frames were not inspected."""
        self._passed_over += frames

    def _note_passed_over(self) -> None:
        if self._passed_over:
            limit = f"{self._per_second} a second are traced at most"
            self._sink.note(f"{self._passed_over} possibly matching packets were skipped: {limit}")
            self._passed_over = 0


def _unknown(trace: PacketTrace) -> Iterator[str]:
    """Yield the uncertainties about a packet that was explained off the forwarding path."""
    steps = trace.steps()
    if any(
        (isinstance(step, Ran) and not step.exact) or (isinstance(step, TableApplied) and step.colour) for step in steps
    ):
        yield "registers, counters, meters and random numbers: they are read shortly after the packet passed"
    if any(isinstance(step, Queued) for step in steps):
        yield "its waiting time in the queue"


class _Sink:
    """Destination of traces: a file of the settings, JSON lines if its name says so, or else the log."""

    def __init__(self, settings: TraceSettings) -> None:
        self._path = settings.file
        self._file: TextIO | None = None
        self._form = TraceFormat.TEXT
        if settings.file is not None:
            self._form = TraceFormat.JSON if settings.file.suffix in _JSON_ENDINGS else TraceFormat.TEXT
            try:
                self._file = settings.file.open("w", encoding="utf-8")
            except OSError as error:
                raise SwitchError(f"{settings.file}: {error.strerror}") from error

    def write(self, trace: PacketTrace) -> None:
        if self._path is None:
            log.info("%s", shown(trace, self._form))
        elif self._file is not None:
            try:
                self._file.write(shown(trace, self._form) + "\n")
                self._file.flush()
            except OSError as error:
                log.warning("traces are no longer written: %s: %s", self._path, error.strerror)
                self.close()

    def note(self, text: str) -> None:
        log.info("%s", text)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
