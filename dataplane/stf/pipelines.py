"""Pipelines that a test may run on, by name."""

from __future__ import annotations

from collections.abc import Mapping

from dataplane.program.model import Program
from dataplane.stf import PipelineName
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Pipeline
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import PipelineFactory
from dataplane.switch.tables import ForwardingState


def pipeline_factory(name: PipelineName) -> PipelineFactory:
    """Return the factory of pipelines with that name."""
    return _FACTORIES[name]


def _interpreted(program: Program, state: ForwardingState, rng: SplitMix) -> Pipeline:
    return InterpretedPipeline(program, state, rng=rng)


_FACTORIES: Mapping[PipelineName, PipelineFactory] = {
    PipelineName.COMPILED: compiled_pipeline,
    PipelineName.INTERPRETER: _interpreted,
}
