"""Lifetime of the group of Gloo's ring."""

from __future__ import annotations

import importlib.util
import weakref

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from dataplane.allreduce.torch.ring import Ring


class Unfinished:
    """An all-reduce that gloo has not finished."""

    def __init__(self) -> None:
        self.future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self.future


def test_what_gloo_has_not_finished_does_not_keep_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one of gloo's threads could drop the last reference to the group, which joins all of them: abort."""
    monkeypatch.setattr(dist, "new_group", lambda *_, **__: object())
    work = Unfinished()
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: work)
    ring = Ring((0,), 1.0)
    started = ring.start(torch.ones(3), mean=False)
    gone = weakref.ref(ring)
    del ring
    assert gone() is None
    assert started.work is work
