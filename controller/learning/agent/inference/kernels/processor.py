"""Features of this processor."""

from __future__ import annotations

from typing import Final

from llvmlite import binding as llvm

_FEATURES: Final = llvm.get_host_cpu_features()

HAS_WIDE_REGISTERS: Final = all(_FEATURES.get(name, False) for name in ("avx512f", "avx512bw", "avx512vl"))
"""True with AVX-512: 32 registers of 16 floats, enough to hold the sums of 16 tokens."""
MULTIPLIES_PAIRS: Final = HAS_WIDE_REGISTERS and bool(_FEATURES.get("avx512bf16", False))
"""True if the processor also has AVX-512's bfloat16 instructions."""
