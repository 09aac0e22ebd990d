"""The end of a training: whether it has converged, from a value that all workers of a step agree on."""

from __future__ import annotations

import torch

from dataplane.allreduce.jobs.convergence import Convergence, ConvergenceTest
from dataplane.errors import AllReduceError


class TrainingEnd:
    """A job's convergence test at one worker."""

    def __init__(self, terms: Convergence | None) -> None:
        self._test = None if terms is None else ConvergenceTest(terms)
        self._squares = 0.0
        self._own: torch.Tensor | None = None
        """This worker's value of the step, whose mean is no gradient."""

    @property
    def progress(self) -> torch.Tensor:
        """Return what a newcomer must share to reach the end at the same step."""
        return torch.tensor([0 if self._test is None else self._test.passed])

    def restore(self, progress: torch.Tensor) -> None:
        """Continue with another worker's progress."""
        if self._test is not None:
            self._test.passed = int(progress[0])

    def add(self, submitted: torch.Tensor, mean: torch.Tensor) -> None:
        """Take a part of the step's mean gradient, as it was submitted and as the mean."""
        if self._test is None or self._test.terms.measure != "gradient" or submitted is self._own:
            return
        values = mean.coalesce().values() if mean.is_sparse else mean
        self._squares += float(torch.linalg.vector_norm(values.detach(), dtype=torch.float64)) ** 2

    def value(self, loss: torch.Tensor | float | None) -> torch.Tensor:
        """Return this worker's value of the step; raise AllReduceError for a missing or needless loss."""
        if self._test is None:
            raise AllReduceError("the job has no convergence test: state one with MillraceState.connect(convergence=)")
        terms = self._test.terms
        if (terms.measure == "loss") is (loss is None):
            raise AllReduceError(f"the job ends by its {terms}: {'a' if loss is None else 'no'} loss is to be reported")
        reported = loss.detach() if isinstance(loss, torch.Tensor) else loss
        own = self._squares**0.5 if reported is None else float(reported)
        self._squares = 0.0
        self._own = torch.tensor([own], dtype=torch.float32)
        return self._own

    def note(self, mean: torch.Tensor) -> bool:
        """Take the workers' mean value of the step; return whether the training has converged."""
        assert self._test is not None
        return self._test.note(float(mean[0]))
