"""Every way of executing a program, as fixtures."""

from __future__ import annotations

import pytest

from dataplane.program.model import Program
from tests.dataplane.switch.interpreter.harness import PIPELINES, Bench, MakeBench, MakePipeline, own_program


@pytest.fixture(scope="session", params=sorted(PIPELINES))
def make_pipeline(request: pytest.FixtureRequest) -> MakePipeline:
    return PIPELINES[request.param]


@pytest.fixture(scope="session")
def make_bench(make_pipeline: MakePipeline) -> MakeBench:
    def make(program: Program | str, *, seed: int = 1) -> Bench:
        return Bench(own_program(program) if isinstance(program, str) else program, make_pipeline, seed=seed)

    return make
