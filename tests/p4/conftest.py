"""Targets for the packet tests: every switch that is present runs every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from dataplane.switch.compiled.pipeline import compiled_pipeline
from tests.p4.bmv2_target import Bmv2Target
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.targets import Target


@pytest.fixture(scope="session")
def bmv2() -> Iterator[Target]:
    """Return simple_switch_grpc; skip where it is not installed or may not have a network namespace."""
    if shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on the PATH")
    if os.geteuid() != 0:
        pytest.skip("bmv2 needs root here: a network namespace")
    with Bmv2Target() as target:
        yield target


@pytest.fixture(scope="session")
def builtin() -> Target:
    """Return the built-in switch with the interpreter."""
    return BuiltinTarget()


@pytest.fixture(scope="session")
def compiled() -> Target:
    """Return the built-in switch with the compiled pipeline."""
    return BuiltinTarget(name="compiled", pipeline_factory=compiled_pipeline)


@pytest.fixture(params=["builtin", "compiled", pytest.param("bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])])
def target(request: pytest.FixtureRequest) -> Target:
    """Return a fresh switch of each kind that is present."""
    switch: Target = request.getfixturevalue(request.param)
    switch.reset()
    return switch
