"""A kernel repeated r times yields the mean of its r outputs, which feeds its successors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.probing.running import work
from controller.probing.running.crew import Ready
from controller.probing.running.steady import Series
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, sizes_of
from dataplane.topology.values import DeviceKind

NUMBERED = Implementation(DeviceKind.CPU, Library.PYTHON, "user_kernels:numbered")


@pytest.fixture(autouse=True, scope="module")
def users_modules() -> Iterator[None]:
    """Make the kernels next to this file importable, like users' kernels."""
    sys.path.insert(0, str(Path(__file__).parent))
    yield
    sys.path.remove(str(Path(__file__).parent))
    sys.modules.pop("user_kernels", None)


@st.composite
def probe_tasks(draw: st.DrawFn) -> ProbeTask:
    count = draw(st.integers(1, 7))
    uses = tuple(
        KernelUse(f"k{at}", "numbered", 1, sizes_of({"n": draw(st.integers(0, 3))}), times, times, NUMBERED, 0.0)
        for at, times in enumerate(draw(st.lists(st.integers(1, 5), min_size=count, max_size=count)))
    )
    pairs = [(f"k{src}", f"k{dst}") for dst in range(count) for src in range(dst)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return ProbeTask("p", "hpc", uses, tuple(Link(*pair) for pair in links), seed=draw(st.integers(0, 9)))


def ready_of(probe: ProbeTask) -> dict[str, Ready]:
    read = {link.src for link in probe.links}
    return {
        name: Ready(probe.use[name], dict(probe.use[name].sizes), probe.seed + at, is_read=name in read)
        for at, name in enumerate(probe.order)
    }


def means_by_numpy(probe: ProbeTask, first_run: int) -> dict[str, float]:
    """Return each use's mean by numpy over all outputs, by the definition of `user_kernels.Numbered`."""
    means: dict[str, float] = {}
    for at, name in enumerate(probe.order):
        given_sum = sum(means[source] for source in probe.sources[name])
        runs = np.arange(first_run, first_run + probe.use[name].repetitions)
        means[name] = float(np.mean(probe.seed + at + 0.1 * runs + given_sum))
    return means


@given(probe_tasks())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_repeated_kernel_feeds_the_mean_output_to_successors(probe: ProbeTask) -> None:
    ready, told = ready_of(probe), list[str]()
    run = work.run_once(probe, ready, lambda event, content: told.append(f"{event} {content}"), Series())
    assert told == [f"use {name}" for name in probe.order]
    assert {name: len(times) for name, times in run.kernels_s.items()} == {
        use.name: use.repetitions for use in probe.uses
    }
    expected = means_by_numpy(probe, 1)
    for name in {link.src for link in probe.links}:
        mean = ready[name].mean()
        assert np.shape(mean) == ((n,) if (n := dict(probe.use[name].sizes)["n"]) else ())
        assert np.allclose(mean, expected[name], rtol=1e-12)


def test_k1_x3_and_k2_x2_both_feeding_k3_x1() -> None:
    uses = tuple(
        KernelUse(name, "numbered", 1, (("n", 0),), times, 1000 * times, NUMBERED, 0.0)
        for name, times in (("k1", 3), ("k2", 2), ("k3", 1), ("k4", 1))
    )
    links = (Link("k1", "k3"), Link("k2", "k3"), Link("k3", "k4"))
    probe = ProbeTask("p", "hpc", uses, links)
    ready = ready_of(probe)
    work.run_once(probe, ready, lambda *_: None, Series())
    # Their seeds are 0, 1 and 2, and the nth run adds n tenths.
    assert ready["k1"].mean() == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert ready["k2"].mean() == pytest.approx(1 + (0.1 + 0.2) / 2)
    assert ready["k3"].mean() == pytest.approx(2 + 0.1 + 0.2 + 1.15)
