"""Tests frames against a filter: parses them like the program, and no further."""

from __future__ import annotations

from dataplane.program.model import Program
from dataplane.switch.interpreter.layout import INGRESS_LENGTH, PACKET_LENGTH, Layout, Moment
from dataplane.switch.interpreter.parser import bind_parser
from dataplane.switch.interpreter.primitives import Binder
from dataplane.switch.interpreter.state import PipelineState
from dataplane.switch.pipeline import Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tracing.filters import Condition, bind_filter

_PORT_MASK = (1 << 9) - 1


class Matcher:
    """Parses frames over a state's value sets; raises ConfigError for a field that the program does not have."""

    def __init__(self, program: Program, state: PipelineState, condition: Condition, where: str = "filter") -> None:
        self._layout = layout = Layout(program)
        self._matches = bind_filter(condition, program, where)
        self._parse = bind_parser(program, layout, Binder(layout, state, SplitMix(0), Moment()), state.value_sets)
        standard = layout.headers["standard_metadata"]
        self._port, self._length = standard.slot("ingress_port"), standard.slot("packet_length")

    def __call__(self, frame: Frame) -> bool:
        """Return whether a frame satisfies the filter."""
        fields = self._layout.template.copy()
        fields[self._port] = frame.port & _PORT_MASK
        fields[self._length] = fields[PACKET_LENGTH] = fields[INGRESS_LENGTH] = len(frame.data)
        self._parse(fields, frame.data)
        return self._matches(fields)
