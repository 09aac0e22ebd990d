"""A unit's precision in PyTorch, without other weights: fp32, tf32, and half precision by autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from dataplane.balance.errors import UnitError

_HALVES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def computing_in(precision: str, device_type: str = "cuda") -> Iterator[None]:
    """Run the block's operators in a precision; raise UnitError for one that needs a model of its own, such as int8.

    tf32 is a setting of the whole process: no other thread may compute in fp32 meanwhile.
    """
    if precision in _HALVES:
        with torch.autocast(device_type, dtype=_HALVES[precision]):
            yield
    elif precision == "tf32":
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
    elif precision == "fp32":
        yield
    else:
        raise UnitError(f"{precision} needs a model of its own: autocast provides fp32, tf32, bf16 and fp16")
