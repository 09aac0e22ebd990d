"""Above the preset: the accelerator, else the CPU; unknown operators stay on the CPU, and the reason is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Choice, TimeColumns, Works, decide
from controller.acceleration.values import SWITCH, Accelerator, Growth, Machines, Network, Work
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind

GPU = Accelerator(DeviceKind.GPU, 64)
FAST, SLOW = Machines(Network(80.0), 1000), Machines(Network(1.0), 1000)
FILTER = Work("filter", Growth.LINEAR, 0.005, 1.0, kind="filter")
JOIN = Work("join", Growth.SQUARE, 0.2, 1.0, kind="join")


def test_operators_are_placed_one_by_one_by_their_ratio() -> None:
    kept, sent = decide(Works.of([FILTER, JOIN]), FAST, [GPU])
    assert (kept.device, sent.device) == ("cpu", "gpu")
    assert kept.ratio == pytest.approx(0.98718, abs=1e-5)
    assert sent.reasons == ("gpu: the CPU takes 2.316 times as long, above the preset of 1",)
    assert set(sent.times) == {"cpu", "gpu"}


def test_ratio_within_the_tie_band_stays_on_the_cpu() -> None:
    ratio = decide(Works.of([JOIN]), FAST, [GPU])[0].ratio
    assert ratio is not None
    (inside,) = decide(Works.of([JOIN]), FAST, [GPU], tie_band=ratio - 1 + 1e-9)
    assert (inside.device, inside.tied, inside.ratio) == ("cpu", "gpu", ratio)
    assert inside.reasons[0].endswith(f"above the preset of 1, but within the tie band of {ratio - 1:g} around 1")
    (outside,) = decide(Works.of([JOIN]), FAST, [GPU], tie_band=ratio - 1 - 1e-9)
    assert (outside.device, outside.tied) == ("gpu", "")
    assert "tie band" not in outside.reasons[0]


def test_preset_above_the_tie_band_decides_alone() -> None:
    (kept,) = decide(Works.of([JOIN]), FAST, [GPU], preset=3.0, tie_band=0.5)
    assert (kept.device, kept.tied) == ("cpu", "")
    assert "tie band" not in kept.reasons[0]
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(AccelerationError, match=r"tie band of .* is not finite and at least 0"):
            decide(Works.of([JOIN]), FAST, [GPU], tie_band=wrong)


def test_a_greater_preset_keeps_what_gains_less() -> None:
    (decision,) = decide(Works.of([JOIN]), FAST, [GPU], preset=3.0)
    assert decision.device == "cpu"
    assert decision.ratio == pytest.approx(2.3162, abs=1e-4)
    assert "not above the preset of 3" in decision.reasons[0]


def test_slower_network_moves_an_operator_back_to_the_cpu() -> None:
    (fast,), (slow,) = (decide(Works.of([JOIN]), machines, [GPU], preset=1.5) for machines in (FAST, SLOW))
    assert (fast.device, slow.device) == ("gpu", "cpu")


def test_unknown_operator_stays_on_the_cpu_and_says_why() -> None:
    unknown = Work("udf", Growth.LINEAR, 0.0, 1.0, basis=Basis.NONE, unknown="nobody has measured python_udf")
    (decision,) = decide(Works.of([unknown]), FAST, [GPU])
    assert (decision.device, decision.ratio, decision.times, decision.basis) == ("cpu", None, {}, Basis.NONE)
    assert decision.reasons == ("nobody has measured python_udf", "its time is unknown: the CPU is used")


def test_device_with_the_greatest_ratio_is_taken() -> None:
    npu = Accelerator(DeviceKind.NPU, 512)
    (decision,) = decide(Works.of([JOIN]), FAST, [GPU, npu])
    assert decision.device == "npu"
    assert len(decision.reasons) == 2


def test_a_device_runs_only_the_operators_that_it_can() -> None:
    npu = Accelerator(DeviceKind.NPU, 512, runs=frozenset({"gemm"}))
    (decision,) = decide(Works.of([JOIN]), FAST, [npu])
    assert (decision.device, decision.ratio) == ("cpu", None)
    assert decision.reasons == ("npu: it does not run join",)


def test_join_must_fit_in_device_memory_but_streams_need_not() -> None:
    small = replace(GPU, memory_gb=0.5)
    join = Work("join", Growth.HASH_JOIN, 0.2, 1.0, other_gb=1.0, kind="join")
    scan = Work("scan", Growth.LINEAR, 10.0, 1.0)
    kept, sent = decide(Works.of([join, scan]), FAST, [small])
    assert kept.reasons == ("gpu: 2 GB do not fit in its 0.5 GB of memory",)
    assert (kept.device, sent.device) == ("cpu", "gpu")


def test_switch_is_a_choice_with_times_of_its_own() -> None:
    works = Works.of([FILTER, JOIN])
    no_time, total_s = np.zeros(2), np.full(2, 0.001)
    switch = Choice(SWITCH, TimeColumns(total_s, no_time, no_time, no_time, no_time), ("", "no sum of fixed width"))
    added, joined = decide(works, FAST, [GPU], others=[switch])
    assert added.device == SWITCH
    assert joined.device == "gpu"
    assert joined.reasons[1] == "switch: no sum of fixed width"


def test_two_choices_of_one_name_are_an_error() -> None:
    with pytest.raises(AccelerationError, match="two choices have the label gpu"):
        decide(Works.of([JOIN]), FAST, [GPU, GPU])
    first, second = decide(Works.of([JOIN]), FAST, [GPU, replace(GPU, name="big gpu", parallelism=1024)])[0].reasons
    assert (first[:4], second[:8]) == ("gpu:", "big gpu:")


def test_without_any_accelerator_the_cpu_is_all_there_is() -> None:
    (decision,) = decide(Works.of([JOIN]), FAST, [])
    assert (decision.device, decision.reasons) == ("cpu", ("the CPU is the only choice",))
