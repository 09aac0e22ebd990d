"""p4c's own samples, if MILLRACE_P4C_SAMPLES names a source tree of p4c."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from dataplane.errors import MillraceError
from dataplane.stf import PipelineName
from tests.dataplane.stf.samples import COMPILER, Sample, compile_sample, describe, find_samples, run_sample

VARIABLE = "MILLRACE_P4C_SAMPLES"
WANTED_SHARE = 0.98
# Not compiled without the extern functions of a C++ module that the sample brings along.
NOT_FOR_BMV2_ALONE = {"extern-funcs-bmv2"}


@cache
def samples() -> list[Sample]:
    return find_samples(Path(os.environ[VARIABLE]))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samples")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.p4c
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no p4c source tree")
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not on the PATH")
@pytest.mark.parametrize("pipeline", PipelineName)
def test_samples_pass(pipeline: PipelineName, out: Path) -> None:
    reasons = {}
    for sample in samples():
        compiled = compile_sample(sample, out)
        if isinstance(compiled, str):
            reasons[sample.name] = compiled
            continue
        try:
            differences = run_sample(sample, compiled, pipeline)
        except MillraceError as error:
            reasons[sample.name] = str(error)
        else:
            if differences:
                reasons[sample.name] = describe(differences[0])
    wanted = [sample.name for sample in samples() if sample.name not in NOT_FOR_BMV2_ALONE]
    failed = {name: reason for name, reason in reasons.items() if name in wanted}
    assert len(wanted) > 150
    assert len(failed) <= (1 - WANTED_SHARE) * len(wanted), failed
