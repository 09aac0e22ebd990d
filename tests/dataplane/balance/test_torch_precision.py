"""A unit's precision in PyTorch, on this machine's CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("precision", "type_name"), [("fp32", "float32"), ("tf32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
)
def test_operators_run_in_the_units_precision(precision: str, type_name: str) -> None:
    from dataplane.balance.torch import computing_in  # noqa: PLC0415 - torch may be absent

    before, ones = torch.get_float32_matmul_precision(), torch.ones(4, 4)
    with computing_in(precision, "cpu"):
        assert (ones @ ones).dtype is getattr(torch, type_name)
        assert (torch.get_float32_matmul_precision() == "high") is (precision == "tf32")
    assert torch.get_float32_matmul_precision() == before
    assert (ones @ ones).dtype is torch.float32


def test_a_precision_with_other_weights_is_an_error() -> None:
    from dataplane.balance import UnitError  # noqa: PLC0415
    from dataplane.balance.torch import computing_in  # noqa: PLC0415

    with pytest.raises(UnitError, match=r"^int8 needs a model of its own"), computing_in("int8"):
        pass
