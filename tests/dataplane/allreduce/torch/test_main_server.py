"""A main server and two PyTorch workers in threads: first weights, convergence at the same step, the model back."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch

from dataplane.allreduce.errors import JobRefusedError
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.jobs.convergence import Convergence, ConvergenceTest
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch import MillraceState
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.errors import AllReduceError
from tests.controller.network.aggregation.service.serving_jobs import BOUND_S, RunningService, run_service

T = TypeVar("T")
STEPS = 500


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with TemporaryDirectory(prefix="jobs") as name, run_service(Path(name)) as service:
        yield service


def join(service: RunningService, host: str, job: str, **more: Any) -> MillraceState:
    """Join as `MillraceState.connect` does, with the reference aggregator as the switch."""
    terms = more.pop("convergence", None)
    membership = Membership.join(
        service.address,
        job=job,
        host=host,
        workers=2,
        convergence=terms,
        make=lambda settings: JobEngine(service.here(settings)),
        **more,
    )
    service._made.append(membership)
    return MillraceState(membership.engine, member=JobMember(membership, host), convergence=terms)


def both(work: Callable[[int], T]) -> list[Future[T]]:
    threads = ThreadPoolExecutor(2)
    futures = [threads.submit(work, number) for number in range(2)]
    threads.shutdown(wait=False)
    return futures


def train(state: MillraceState, rank: int, measure: str) -> tuple[int, torch.nn.Linear]:
    """Fit a line from the main server's weights and rate on; return the step at which it ended, and the model."""
    model = torch.nn.Linear(3, 1)
    state.receive_into(model.parameters())
    rate = float(state.receive())
    chance = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        inputs = torch.randn(16, 3, generator=chance)
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        model.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            state.submit(parameter.grad, mean=True).wait()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(rate * parameter.grad)
        if state.has_converged(loss if measure == "loss" else None):
            state.deliver(model.parameters())
            return step, model
    raise AssertionError("it has not converged")


@pytest.mark.parametrize(("measure", "below"), [("loss", 1e-3), ("gradient", 1e-2)])
def test_training_ends_at_one_step_with_the_model_at_the_server(
    service: RunningService, measure: Any, below: float
) -> None:
    terms = Convergence(measure, below, steps=3)

    def work(rank: int) -> tuple[int, torch.nn.Linear]:
        with join(service, f"h{rank + 1}", measure, server="h6", convergence=terms) as state:
            return train(state, rank, measure)

    working = both(work)
    with service.serve("h6", 2, job=measure) as server:
        weights = np.zeros(4, np.float32)
        server.distribute(weights)
        server.distribute(b"0.2")
        final = np.frombuffer(server.take(), np.float32)
    (step, model), (other, _) = (future.result(BOUND_S) for future in working)
    assert step == other
    assert 3 <= step < STEPS - 1
    assert np.array_equal(final[:3], model.weight.detach().numpy()[0])
    assert np.allclose(final, [1, 1, 1, 0], atol=0.1)


def test_workers_state_the_same_end(service: RunningService) -> None:
    service.together("h3", job="terms", capacity=2, convergence=Convergence("loss", 0.1))
    with pytest.raises(JobRefusedError, match="h4 asks for convergence"):
        service.join("h4", 1, job="terms", capacity=2, convergence=Convergence("loss", 0.2)).result(BOUND_S)


def test_a_transfer_without_a_main_server_is_an_error() -> None:
    with MillraceState(None) as state:
        with pytest.raises(AllReduceError, match="needs the job's switches; there is no reducer"):
            state.receive()
        with pytest.raises(AllReduceError, match="the job has no convergence test"):
            state.has_converged()


def test_values_below_the_bound_in_a_row() -> None:
    test = ConvergenceTest(Convergence("loss", 1.0, steps=2))
    assert [test.note(value) for value in (0.5, float("nan"), 0.5, 1.0, 0.9, 0.9)] == [False] * 5 + [True]
    assert str(test.terms) == "mean loss below 1 for 2 steps"
    for wrong in (("loss", 0.0, 1), ("loss", float("inf"), 1), ("gradient", 1.0, 0), ("accuracy", 1.0, 1)):
        with pytest.raises(AllReduceError, match="convergence"):
            Convergence(*wrong)
