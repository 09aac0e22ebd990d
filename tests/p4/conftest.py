"""Targets for the packet tests: every switch that is present runs every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from dataplane.switch.compiled.pipeline import compiled_pipeline
from tests.p4.bmv2_target import Bmv2Target
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.targets import AGGREGATION, Target


@pytest.fixture(scope="session")
def bmv2() -> Iterator[Target]:
    """Return simple_switch_grpc; skip where it is not installed or may not have a network namespace."""
    _need_bmv2()
    with Bmv2Target() as target:
        yield target


@pytest.fixture(scope="session")
def bmv2_aggregating() -> Iterator[Target]:
    """Return simple_switch_grpc with the program that adds up; skip as `bmv2` does."""
    _need_bmv2()
    with Bmv2Target(AGGREGATION) as target:
        yield target


def _need_bmv2() -> None:
    if shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on the PATH")
    if os.geteuid() != 0:
        pytest.skip("bmv2 needs root here: a network namespace")


@pytest.fixture(scope="session")
def builtin() -> Target:
    """Return the built-in switch with the interpreter."""
    return BuiltinTarget()


@pytest.fixture(scope="session")
def compiled() -> Target:
    """Return the built-in switch with the compiled pipeline."""
    return BuiltinTarget(name="compiled", pipeline_factory=compiled_pipeline)


@pytest.fixture(scope="session")
def builtin_aggregating() -> Target:
    """Return the built-in switch with the interpreter and the program that adds up."""
    return BuiltinTarget(program=AGGREGATION)


@pytest.fixture(scope="session")
def compiled_aggregating() -> Target:
    """Return the built-in switch with the compiled program that adds up."""
    return BuiltinTarget(name="compiled", pipeline_factory=compiled_pipeline, program=AGGREGATION)


@pytest.fixture(params=["builtin", "compiled", pytest.param("bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])])
def target(request: pytest.FixtureRequest) -> Target:
    """Return a fresh switch of each kind that is present."""
    switch: Target = request.getfixturevalue(request.param)
    switch.reset()
    return switch


@pytest.fixture(params=["builtin", "compiled", pytest.param("bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])])
def aggregating(request: pytest.FixtureRequest) -> Target:
    """Return a fresh switch of each kind that is present, with the program that adds up."""
    switch: Target = request.getfixturevalue(f"{request.param}_aggregating")
    switch.reset()
    return switch
